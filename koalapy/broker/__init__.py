"""The resource broker, which matches requests with clusters."""
