"""How many commands it takes to end jobs: hardly more for a thousand than for ten, by machine and simulated queue."""

import heapq
from itertools import count
from typing import Any

import kcm_talk as talk
import pytest
from koalapy_adapters.batch.protocol import RUNNING, JobStatus
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.kcm.state.poll_schedule import (
    COST_FACTOR,
    FIRST,
    LULL,
    SOON,
    URGENT,
    CancelStatusSchedule,
    Debounce,
)
from koalapy_adapters.messages import Cancel, CleanedUp

SECOND, T0 = talk.SECOND, talk.T0
COMMAND = SECOND // 10  # that any command of the batch system takes


class Queue:
    """A batch system that needs its time: the jobs that are cancelled end one after another, evenly, over `drain`.

    It does the machine's actions at their instants, and counts the commands that they come to.
    """

    def __init__(self, jobs: int, drain: int, cost: int, news: bool, claim: int = 0) -> None:
        """`claim`: what it takes to revoke one, one after another."""
        self._ids = {f"kabcde{number:09d}": str(number) for number in range(jobs)}
        self._ends = {batch_id: T0 + drain * (place + 1) // jobs for place, batch_id in enumerate(self._ids.values())}
        self._kcm = talk.machine(*([tag, batch_id] for tag, batch_id in self._ids.items()))
        self._cost, self._claim, self._claimed_at = cost, claim, T0
        self._turn = count()
        self._agenda: list[tuple[int, int, Any]] = []
        self.checks: list[int] = []  # when they were asked
        self.others: dict[type, int] = {do.CancelJob: 0, do.Look: 0}  # how many of each
        self.gone: dict[str, int] = {}
        for at in self._ends.values() if news else ():
            self._later(at, do.Woken())

    def end_all(self) -> None:
        for tag in self._ids:
            self._do(T0, self._kcm.handle(T0, Cancel(9, tag)))
        while len(self.gone) < len(self._ids):
            now, due = self._next()
            self._do(now, self._kcm.tick(now) if due is None else self._kcm.handle(now, due))

    def _next(self) -> tuple[int, Any]:
        wakeup = self._kcm.wakeup()
        if self._agenda and (wakeup is None or self._agenda[0][0] <= wakeup):
            at, _, event = heapq.heappop(self._agenda)
            return at, event
        assert wakeup is not None, "nothing would ever happen"
        return wakeup, None

    def _do(self, now: int, actions: list[Any]) -> None:
        for message in talk.said(actions):
            if isinstance(message, CleanedUp):
                self.gone[message.tag] = now
        for action in actions:
            if type(action) in self.others:
                self.others[type(action)] += 1
            if isinstance(action, do.TakeStartLock):
                self._claimed_at += self._claim
                self._later(max(now, self._claimed_at) + 1000, do.StartLockTaken(action.tag, True))
            elif isinstance(action, do.CancelJob):
                self._later(now + COMMAND, do.JobCancelled(action.tag))
            elif isinstance(action, do.Measure):
                self._later(now + COMMAND, do.CapacityMeasured(now, error={}))
            elif isinstance(action, do.CheckJobs):
                self.checks.append(now)
                self._later(now + COMMAND, do.JobsChecked(action.batch_ids, self._listed(now), None, self._cost))

    def _listed(self, now: int) -> dict[str, JobStatus]:
        left = {batch_id: tag for tag, batch_id in self._ids.items() if self._ends[batch_id] > now}
        return {batch_id: JobStatus(batch_id, tag, RUNNING) for batch_id, tag in left.items()}

    def _later(self, at: int, event: Any) -> None:
        heapq.heappush(self._agenda, (at, next(self._turn), event))


@pytest.mark.parametrize("news", [False, True], ids=["unheard", "each end is heard"])
def test_a_thousand_take_hardly_more_looks_than_ten(news: bool) -> None:
    """Over as long a time, at the same cost of a look."""
    few, many = (Queue(jobs, 27 * SECOND, SECOND // 100, news) for jobs in (10, 1000))
    few.end_all()
    many.end_all()
    assert len(many.checks) <= 1.5 * len(few.checks)
    assert len(many.checks) <= 40
    assert max(many.gone.values()) <= T0 + 27 * SECOND + URGENT + 2 * COMMAND


def test_looks_that_cost_much_become_as_seldom_as_that_asks_for() -> None:
    many = Queue(1000, 27 * SECOND, SECOND // 25, news=False)
    many.end_all()
    gaps = [after - before for before, after in zip(many.checks, many.checks[1:], strict=False)]
    assert max(gaps) == COST_FACTOR * SECOND // 25 + COMMAND
    assert len(many.checks) <= 20


def test_what_the_queue_no_longer_lists_costs_no_command_until_its_claim_is_known() -> None:
    """A thousand claims take a shared directory longer than a batch system takes for a thousand cancels."""
    many = Queue(1000, COMMAND, SECOND // 100, news=True, claim=SECOND // 125)
    many.end_all()
    assert max(many.gone.values()) >= T0 + 8 * SECOND
    assert many.others == {do.CancelJob: 1000, do.Look: 0}
    assert len(many.checks) <= 5


def test_one_that_ends_at_once_is_known_to_at_once() -> None:
    one = Queue(1, 2 * COMMAND, SECOND // 100, news=False)
    one.end_all()
    assert max(one.gone.values()) <= T0 + 4 * COMMAND


def test_after_a_lull_it_begins_anew() -> None:
    checks, now = CancelStatusSchedule(), T0
    for _ in range(20):
        checks.want(now, "a")
        now = max(now, checks.due() or 0)
        assert checks.take() == ["a"]
        checks.begin()
        assert checks.due() is None
        checks.finish(now, 0)
    checks.want(now, "a")
    assert checks.due() == now + URGENT
    checks.take()
    checks.want(now + LULL, "a")
    assert (checks.due() or 0) <= now + LULL
    checks.take()
    checks.begin()
    checks.finish(now + LULL, 0)
    checks.want(now + LULL, "a")
    assert checks.due() == now + LULL + FIRST


def test_a_bell_that_rings_often_is_heard_at_once_and_once_more() -> None:
    bell = Debounce()
    assert [bell.ring(T0 + at) for at in range(3)] == [True, False, False]
    assert bell.due() == T0 + SOON
    assert bell.ring(T0 + SOON)
    assert bell.due() is None
