"""The real world: koalad's threads, its clock, its links to the clusters."""
