"""Sweeps in a random world: whatever happens, in any order, no parameter is lost, and none is recorded twice."""

import os
from collections.abc import Callable
from random import Random

from engine_play import component
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sweep_play import NODE, SweepPlay, result

from koalapy.model.attempt import Attempt
from koalapy.model.commands import FeedSweep
from koalapy.model.events import (
    CancelRequested,
    HoldRequested,
    LauncherSuspected,
    ParametersEnded,
    ParametersReturned,
    ParametersWanted,
    ReleaseRequested,
)
from koalapy.model.identity import JobId
from koalapy.model.intervals import NONE, Intervals
from koalapy.model.states import JobState
from koalapy.model.sweep import Sweep
from koalapy.model.units import SECOND, Duration
from koalapy.model.work import Work
from koalapy.policies.fairshare import EQUIPARTITION_ALL, EQUIPARTITION_PERSITE
from koalapy.policies.scavenging import ScavengingPolicies

WALKS = int(os.environ.get("KOALA_WALKS", "100"))
SIZES = {"alpha": 16, "beta": 12}


class Walk:
    """A grid with sweeps, and random steps. `out`: the parameters that each KCM holds, by the messages so far."""

    def __init__(self, seed: int) -> None:
        dice = Random(seed)
        policy = dice.choice((EQUIPARTITION_ALL, EQUIPARTITION_PERSITE))
        most = dice.choice((None, None, 1, 2))
        self.play = SweepPlay(SIZES, policies=ScavengingPolicies(fairshare=policy), max_runners=most)
        self.out: dict[tuple[int, str], Intervals] = {}

    def step(self, number: int) -> None:
        dice = Random(number)
        dice.choice(STEPS)(self, dice)
        self._check_feeds()
        self._check()

    # ---- steps

    def submit(self, dice: Random) -> None:
        self.play.sweep(dice.choice((1, 7, 60, 1000)), processors=dice.choice((1, 1, 2)))

    def start(self, dice: Random) -> None:
        waiting = [each for each in self._launchers() if each.started_at is None and not each.cancelling]
        reachable = [each for each in waiting if each.cluster not in self.play.down]
        if reachable:
            self.play.start(*reachable[: dice.randint(1, len(reachable))])

    def want(self, dice: Random) -> None:
        if (sweep := self._sweep(dice)) is not None and (cluster := self._reachable(dice)):
            self.play.apply(ParametersWanted(cluster=cluster, sweep=sweep, wanted=dice.randint(0, 30)))

    def run(self, dice: Random) -> None:
        """End parameters that the KCM holds, and some that it does not hold."""
        launcher = self._running(dice)
        if launcher is None:
            return
        sweep, cluster = JobId(launcher.owner.id), launcher.cluster
        there = self.out.get((sweep, cluster), NONE)
        numbers = [*there.lowest(dice.randint(0, 9)), *(dice.randint(-1, 61) for _ in range(dice.randint(0, 2)))]
        rows = tuple(result(each, dice.choice((0, 0, 1))) for each in numbers)
        attempt = launcher.id
        self.play.apply(ParametersEnded(cluster=cluster, sweep=sweep, attempt=attempt, results=rows))
        self.out[sweep, cluster] = there - Intervals.numbers(numbers)

    def give_back(self, dice: Random) -> None:
        if not (held := [key for key, numbers in self.out.items() if numbers and key[1] not in self.play.down]):
            return
        sweep, cluster = dice.choice(held)
        numbers = self.out[sweep, cluster].lowest(dice.randint(1, 20)) | Intervals.numbers([dice.randint(1, 60)])
        self.play.apply(
            ParametersReturned(cluster=cluster, sweep=JobId(sweep), numbers=numbers, begun=numbers.lowest(2))
        )
        self.out[sweep, cluster] -= numbers

    def lose(self, dice: Random) -> None:
        if (cluster := self._reachable(dice)) is not None:
            self.play.lose(cluster)

    def reach(self, dice: Random) -> None:
        if self.play.down:
            self.play.reach(sorted(self.play.down)[0])

    def restart(self, dice: Random) -> None:
        self.play.restart()

    def fail(self, dice: Random) -> None:
        if (launcher := self._running(dice)) is not None:
            self.play.end(launcher.id, *dice.choice(((137, "killed"), (0, "exited"))))

    def suspect(self, dice: Random) -> None:
        if (launcher := self._running(dice)) is not None:
            attempt, cluster = launcher.id, launcher.cluster
            self.play.apply(LauncherSuspected(cluster=cluster, attempt=attempt, host=f"n{dice.randint(1, 3)}"))

    def ask(self, dice: Random) -> None:
        if (sweep := self._sweep(dice)) is not None:
            kind = dice.choice((HoldRequested, ReleaseRequested, ReleaseRequested))
            force = dice.random() < 0.3
            self.play.apply(CancelRequested(sweep, force) if dice.random() < 0.3 else kind(sweep))

    def others(self, dice: Random) -> None:
        """Change the number of waiting local jobs; sometimes submit a job of the grid."""
        cluster = dice.choice(list(SIZES))
        self.play.wanted[cluster] = dice.choice((0, 0, 4, 12))
        if dice.random() < 0.3:
            self.play.submit(component(dice.randint(1, 8), dice.choice((None, cluster))))

    def finish(self, dice: Random) -> None:
        jobs = [job for job in self.play.jobs.values() if job.state is JobState.CLAIMING]
        for job in jobs:
            if not self.play.down:
                self.play.run(job.id)
        for job in list(self.play.jobs.values()):
            if job.state is JobState.RUNNING and not self.play.down:
                self.play.end(job.present[0].id)

    def measure(self, dice: Random) -> None:
        self.play.measure()

    def go(self, dice: Random) -> None:
        self.play.go()

    def wait(self, dice: Random) -> None:
        self.play.apply(after=Duration(dice.choice((1, 31, 700)) * SECOND))

    # ---- invariants

    def _check_feeds(self) -> None:
        hints, self.play.hints = self.play.hints, []
        for hint in hints:
            if not isinstance(hint, FeedSweep):
                continue
            assert hint.cluster not in self.play.down, "a feed to an unreachable cluster"
            before = self.out.get((hint.sweep, hint.cluster), NONE)
            assert hint.anew or not before & hint.numbers, "parameters were fed twice to one cluster"
            self.out[hint.sweep, hint.cluster] = hint.numbers if hint.anew else before | hint.numbers

    def _check(self) -> None:
        for sweep in self.play.sweeps.values():
            self._check_sweep(sweep)
        for name, size in SIZES.items():
            nodes = sum(1 for each in self._launchers() if each.cluster == name)
            assert nodes * NODE <= size, f"{nodes} Launchers on {name}"

    def _check_sweep(self, sweep: Sweep) -> None:
        parts = [sweep.done, sweep.pool, *(numbers for _, numbers in sweep.out)]
        assert sum(map(len, parts)) == sweep.count, "a parameter is in no place or in several"
        assert Intervals.of([pair for part in parts for pair in part.pairs]) == Intervals(((1, sweep.count),))
        recorded = self.play.recorded(sweep.id)
        assert len(recorded) == len(set(recorded)), "a result is recorded twice"
        assert Intervals.numbers(recorded) == sweep.done
        assert not sweep.failed - sweep.done
        for _, numbers in sweep.returned:
            assert not numbers - sweep.pool
        for cluster in SIZES:
            if not sweep.state.final:
                there = self.out.get((sweep.id, cluster), NONE)
                assert not sweep.out_on(cluster) - there or cluster in self.play.down, (
                    "a parameter is out, and no KCM holds it"
                )
        if sweep.state is JobState.DONE:
            assert len(sweep.done) == sweep.count
        if sweep.state.final:
            assert not self.play.launchers(sweep.id), "a final sweep has Launchers"

    # ---- choices

    def _launchers(self) -> list[Attempt]:
        return [each for each in self.play.pilots.values() if not each.let_go]

    def _running(self, dice: Random) -> Attempt | None:
        there = [each for each in self._launchers() if each.cluster not in self.play.down]
        running = [each for each in there if each.started_at is not None]
        return dice.choice(running) if running else None

    def _sweep(self, dice: Random) -> JobId | None:
        sweeps = [sweep.id for sweep in self.play.sweeps.values() if not sweep.state.final]
        return dice.choice(sweeps) if sweeps else None

    def _reachable(self, dice: Random) -> str | None:
        return dice.choice([name for name in SIZES if name not in self.play.down] or [""]) or None

    def finish_all(self) -> None:
        """Reach all clusters again, cancel everything, and check that all jobs become final."""
        while self.play.down:
            self.reach(Random(0))
        for work in self._work():
            if not work.state.final:
                self.play.apply(CancelRequested(work.id))
        for _ in range(3):
            self.play.go()
            self.play.apply()
        self._check()
        assert all(work.state.final for work in self._work())

    def _work(self) -> list[Work]:
        return [*self.play.jobs.values(), *self.play.sweeps.values()]


STEPS: tuple[Callable[[Walk, Random], None], ...] = (
    *(Walk.start, Walk.want, Walk.run, Walk.give_back) * 3,
    *(Walk.submit, Walk.lose, Walk.reach, Walk.restart, Walk.fail, Walk.suspect, Walk.ask, Walk.others, Walk.finish),
    *(Walk.measure, Walk.go, Walk.wait) * 2,
)
SEEDS = st.integers(0, 1 << 20)


@given(seed=SEEDS, steps=st.lists(SEEDS, min_size=10, max_size=80))
@settings(max_examples=WALKS, derandomize=True, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_a_random_walk_loses_no_parameter_and_records_none_twice(seed: int, steps: list[int]) -> None:
    walk = Walk(seed)
    walk.step(0)
    walk.submit(Random(seed))
    for number in steps:
        walk.step(number)
    walk.finish_all()
