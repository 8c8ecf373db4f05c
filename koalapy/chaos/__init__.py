"""Chaos: faults and user actions drawn from a seed, promises checked after every event, and the shortest proof."""
