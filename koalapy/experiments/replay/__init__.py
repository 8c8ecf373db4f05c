"""Replay: a trace of an operator's own users through the engine as configured, on simulated clusters."""
