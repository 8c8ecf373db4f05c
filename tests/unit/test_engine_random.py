"""Engine and driver in a random world: whatever happens, in whatever order, the promises hold after every step.

A walk is a list of numbers: the first makes the grid, each other one is the dice of one step, so that a failing walk
can be shrunk by leaving steps out. `KOALA_WALKS=10000 pytest tests/unit/test_engine_random.py` walks farther.
"""

import os

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from random_world.walk import walk

DICE = st.integers(0, 1 << 20)
WALKS = int(os.environ.get("KOALA_WALKS", "300"))


@given(seed=DICE, steps=st.lists(DICE, min_size=10, max_size=200))
@settings(max_examples=WALKS, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
def test_a_random_walk_keeps_all_promises(seed: int, steps: list[int]) -> None:
    walk(seed, steps)
