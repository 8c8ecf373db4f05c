"""What if: the trace of an operator's own users through the engine as configured, on clusters that are simulated."""
