"""Replay: the trace of an operator's own users, given to the configured engine on simulated clusters."""
