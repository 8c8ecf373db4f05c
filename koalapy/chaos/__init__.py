"""Chaos: faults and users' doings drawn from a seed, promises checked after every event, and the shortest proof."""
