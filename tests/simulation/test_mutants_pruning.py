"""Each test breaks what is promised of pruning, in one function of the engine, and chaos must catch it."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

from koalapy.coallocation.pruning import Pruning
from koalapy.simulation.chaos.plan import plan
from koalapy.simulation.chaos.run import run
from koalapy.simulation.chaos.violation import Promise

DOINGS = {"submit": 12, "submit_many": 3, "cancel": 2, "release": 1, "prune": 6}
HARDLY_ANY = {"commands_fail": 1}


def _what_is_not_over_is_pruned() -> Any:
    return patch.object(Pruning, "_why_kept", lambda self, job, before, owing: "")


def _records_go_before_directories() -> Any:
    real = Pruning._finish

    def finish(self: Any, now: Any, wanted: Any) -> None:
        self._directories.pop(wanted.job.id, None)
        real(self, now, wanted)

    return patch.object(Pruning, "_finish", finish)


@pytest.mark.parametrize("begin", [_what_is_not_over_is_pruned, _records_go_before_directories])
def test_mutant_is_caught(begin: Callable[[], Any]) -> None:
    with begin():
        results = (run(seed, 3_000, until=3_000, moves=plan(seed, 3_000, DOINGS, HARDLY_ANY)) for seed in range(1, 6))
        violation = next((result.violation for result in results if result.violation is not None), None)
    assert violation is not None, "nobody noticed"
    assert violation.promise is Promise.PRUNED, str(violation)
