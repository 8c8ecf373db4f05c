"""The number of commands that it takes to cancel jobs, by the KCM's machine and a simulated queue.

A thousand jobs take hardly more commands than ten.
"""

import heapq
from itertools import count
from typing import Any

import pytest
from kcm_machine import SECOND, T0, machine, to_koalad
from koalapy_adapters.batch.protocol import RUNNING, JobStatus
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.kcm.state.poll_schedule import (
    COST_FACTOR,
    FIRST,
    LULL,
    SOON,
    SOON_IN_OWN,
    URGENT,
    CancelStatusSchedule,
    Debounce,
)
from koalapy_adapters.messages.kcm import CleanedUp
from koalapy_adapters.messages.koalad import Cancel

COMMAND = SECOND // 10  # the time that any command of the batch system takes


class Queue:
    """A slow batch system: cancelled jobs end one after another, evenly, over `drain` microseconds.

    It performs the machine's actions at their instants, and counts the commands.
    """

    def __init__(self, jobs: int, drain: int, cost: int, watched: bool, locking: int = 0) -> None:
        """`watched`: the KCM is woken at each end. `locking`: the time of each start lock, one after another."""
        self._ids = {f"kabcde{number:09d}": str(number) for number in range(jobs)}
        self._ends = {batch_id: T0 + drain * (place + 1) // jobs for place, batch_id in enumerate(self._ids.values())}
        self._kcm = machine(*([tag, batch_id] for tag, batch_id in self._ids.items()))
        self._cost, self._locking, self._locked_at = cost, locking, T0
        self._turn = count()
        self._agenda: list[tuple[int, int, Any]] = []
        self.checks: list[int] = []  # the instants of the checks
        self.others: dict[type, int] = {do.CancelJob: 0, do.Look: 0}  # the number of each
        self.cleaned_up: dict[str, int] = {}
        for at in self._ends.values() if watched else ():
            self._later(at, do.Woken())

    def end_all(self) -> None:
        for tag in self._ids:
            self._do(T0, self._kcm.handle(T0, Cancel(9, tag)))
        while len(self.cleaned_up) < len(self._ids):
            now, due = self._next()
            self._do(now, self._kcm.tick(now) if due is None else self._kcm.handle(now, due))

    def _next(self) -> tuple[int, Any]:
        wakeup = self._kcm.wakeup()
        if self._agenda and (wakeup is None or self._agenda[0][0] <= wakeup):
            at, _, event = heapq.heappop(self._agenda)
            return at, event
        assert wakeup is not None, "no event will ever come"
        return wakeup, None

    def _do(self, now: int, actions: list[Any]) -> None:
        for message in to_koalad(actions):
            if isinstance(message, CleanedUp):
                self.cleaned_up[message.tag] = now
        for action in actions:
            if type(action) in self.others:
                self.others[type(action)] += 1
            if isinstance(action, do.TakeStartLock):
                self._locked_at += self._locking
                self._later(max(now, self._locked_at) + 1000, do.StartLockTaken(action.tag, True))
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


@pytest.mark.parametrize("watched", [False, True], ids=["ends unnoticed", "each end wakes the KCM"])
def test_a_thousand_cancels_take_hardly_more_checks_than_ten(watched: bool) -> None:
    """The jobs end over the same time, and a check costs the same."""
    few, many = (Queue(jobs, 27 * SECOND, SECOND // 100, watched) for jobs in (10, 1000))
    few.end_all()
    many.end_all()
    assert len(many.checks) <= 1.5 * len(few.checks)
    assert len(many.checks) <= 40
    assert max(many.cleaned_up.values()) <= T0 + 27 * SECOND + URGENT + 2 * COMMAND


def test_expensive_checks_are_made_less_often() -> None:
    many = Queue(1000, 27 * SECOND, SECOND // 25, watched=False)
    many.end_all()
    gaps = [after - before for before, after in zip(many.checks, many.checks[1:], strict=False)]
    assert max(gaps) == COST_FACTOR * SECOND // 25 + COMMAND
    assert len(many.checks) <= 20


def test_a_job_that_is_no_longer_listed_costs_no_command_until_its_start_lock_is_known() -> None:
    """A thousand start locks take longer in a shared directory than a thousand cancels in a batch system."""
    many = Queue(1000, COMMAND, SECOND // 100, watched=True, locking=SECOND // 125)
    many.end_all()
    assert max(many.cleaned_up.values()) >= T0 + 8 * SECOND
    assert many.others == {do.CancelJob: 1000, do.Look: 0}
    assert len(many.checks) <= 5


def test_a_job_that_ends_at_once_is_cleaned_up_at_once() -> None:
    one = Queue(1, 2 * COMMAND, SECOND // 100, watched=False)
    one.end_all()
    assert max(one.cleaned_up.values()) <= T0 + 4 * COMMAND


def test_after_a_lull_the_first_check_is_soon_again() -> None:
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


def test_a_debounced_bell_acts_at_its_first_ring_and_once_more_later() -> None:
    bell = Debounce()
    assert [bell.expire(T0 + at) for at in range(3)] == [True, False, False]
    assert bell.due() == T0 + SOON
    assert bell.expire(T0 + SOON)
    assert bell.due() is None


def test_checks_in_an_allocation_do_not_become_seldom() -> None:
    checks, now = CancelStatusSchedule(own=True), T0
    for _ in range(20):
        checks.want(now, "a")
        checks.take()
        checks.begin()
        checks.finish(now, SECOND)
        checks.want(now, "a")
        now = checks.due() or 0
    assert now == T0 + 20 * SOON_IN_OWN
