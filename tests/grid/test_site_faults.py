"""Leases between sites on real Slurm and Grid Engine under faults: a round of each row of the bench's table."""

from collections.abc import Iterator
from typing import Any

import pytest
from _faults.lease_perform import begun, perform
from _faults.lease_scene import linked_sites
from _faults.lease_table import LONGEST, ROWS

from koalapy.testgrid import Running


@pytest.fixture(scope="module")
def linked(testgrid_session: Running) -> Iterator[Any]:
    testgrid_session.reset()
    with linked_sites(testgrid_session) as found:
        yield (testgrid_session, *found)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in ROWS if row.name != LONGEST])
def test_nothing_of_a_lease_is_lost_or_left_and_nothing_runs_twice(linked: Any, row: Any) -> None:
    verdict = perform(row, begun(row, *linked))
    assert verdict.holds, verdict
