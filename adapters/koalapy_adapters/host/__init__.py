"""Processes, signals, pipes, a private directory and the host's name, for every part of the pushed file."""
