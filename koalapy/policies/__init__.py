"""Policies: pure functions with registered names that the grid file selects. Entry points can add further ones."""
