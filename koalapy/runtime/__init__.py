"""The parts of koalad that touch the real world: its threads, its clock, its links to the clusters, its files."""
