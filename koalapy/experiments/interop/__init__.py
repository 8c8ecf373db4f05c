"""Grids that inter-operate: the SC'07 experiments, delegated matchmaking against five other architectures."""
