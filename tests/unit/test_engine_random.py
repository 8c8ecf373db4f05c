"""Engine and driver in a random world: whatever happens, in any order, the promises hold after every step.

A walk is a list of numbers. The first one seeds the grid, each other one seeds a step, so that a failing walk can be
shrunk by removing steps. `KOALA_WALKS=10000 pytest tests/unit/test_engine_random.py` runs more walks.
"""

import os

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_world.walk import walk

SEEDS = st.integers(0, 1 << 20)
WALKS = int(os.environ.get("KOALA_WALKS", "300"))


@given(seed=SEEDS, steps=st.lists(SEEDS, min_size=10, max_size=200))
@settings(max_examples=WALKS, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_a_random_walk_keeps_all_promises(seed: int, steps: list[int]) -> None:
    walk(seed, steps)
