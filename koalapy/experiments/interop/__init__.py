"""Interoperating grids: the SC'07 experiments, with delegated matchmaking and five other architectures."""
