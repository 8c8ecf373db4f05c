"""Long tables of simulated runs: each day one half of the rows, and all of them with `tests/run --all`.

`KOALA_TESTS_DAY` is the number of a day, or `all`, which is the default.
"""

import os
from collections.abc import Sequence
from typing import TypeVar

Row = TypeVar("Row")

DAY = os.environ.get("KOALA_TESTS_DAY", "all")
HALVES = 1 if DAY == "all" else 2
HALF = 0 if DAY == "all" else int(DAY) % 2


def half_of(rows: Sequence[Row]) -> Sequence[Row]:
    """Return every other row, from the first or the second on, by the day."""
    return rows[HALF::HALVES]
