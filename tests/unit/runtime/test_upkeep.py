"""The loop that keeps pilots and leases: it looks at its start, when it is asked to, in time, and after a failure."""

import queue
from collections.abc import Iterator

import pytest

from koalapy.model.errors import TransientError
from koalapy.runtime import upkeep
from koalapy.runtime.upkeep import Upkeep

PATIENCE_S = 60.0


class Kept:
    """Something that is kept. `answers`: what each look in turn returns or raises; None afterwards."""

    def __init__(self, *answers: float | Exception) -> None:
        self._answers = list(answers)
        self._looks: queue.Queue[None] = queue.Queue()
        self.upkeep = Upkeep("things", self._keep)

    def wait_for_looks(self, count: int) -> None:
        for _ in range(count):
            self._looks.get(timeout=PATIENCE_S)
        assert self._looks.empty()

    def _keep(self) -> float | None:
        self._looks.put(None)
        answer = self._answers.pop(0) if self._answers else None
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Kept]]:
    monkeypatch.setattr(upkeep, "_AGAIN_S", 0.01)
    found: list[Kept] = []
    yield found
    for each in found:
        each.upkeep.stop()


def test_it_looks_at_its_start_and_when_it_is_asked_to(made: list[Kept]) -> None:
    made.append(Kept())
    made[0].upkeep.start()
    made[0].wait_for_looks(1)
    made[0].upkeep.look_soon()
    made[0].wait_for_looks(1)


def test_it_looks_again_in_time(made: list[Kept]) -> None:
    made.append(Kept(0.01, 0.01))
    made[0].upkeep.start()
    made[0].wait_for_looks(3)


@pytest.mark.parametrize("error", [TransientError("busy", "It is busy.", ""), ValueError("a mistake")])
def test_it_looks_again_after_a_failure(made: list[Kept], error: Exception) -> None:
    made.append(Kept(error))
    made[0].upkeep.start()
    made[0].wait_for_looks(2)
