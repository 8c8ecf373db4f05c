"""The batch queue of a replay's clusters: first come, first served, with EASY backfilling."""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koalapy.experiments.replay.easy import DEPTH, EasyQueue, QueuedJob, Reservation
from koalapy.model.units import Duration, Instant

SIZE = 10


@dataclass(eq=False, slots=True, kw_only=True)
class Sample(QueuedJob):
    """A job of a test, with times in microseconds. `cancelled`: when it is removed if it has not started by then."""

    submitted: int
    runtime: int
    cancelled: int | None = None
    started: int | None = None
    reserved: int | None = None  # the first reservation that it had


def sample(submitted: int, processors: int, walltime: int, runtime: int | None = None) -> Sample:
    lasts = walltime if runtime is None else runtime
    return Sample(processors=processors, walltime=Duration(walltime), submitted=submitted, runtime=lasts)


@dataclass
class Played:
    """The course of a queue. `used`: the processors in use after each instant."""

    jobs: Sequence[Sample]
    used: list[int] = field(default_factory=list)

    @property
    def starts(self) -> list[int | None]:
        return [job.started for job in self.jobs]


def play(jobs: Sequence[Sample], size: int = SIZE) -> Played:
    """Run the jobs through a queue. At each instant ends and cancels come first, then submissions."""
    queue: EasyQueue[Sample] = EasyQueue(size)
    played = Played(jobs)
    events = [(job.submitted, 1, number) for number, job in enumerate(jobs)]
    events += [(job.cancelled, 0, number) for number, job in enumerate(jobs) if job.cancelled is not None]
    heapq.heapify(events)
    while events:
        now = events[0][0]
        while events and events[0][0] == now:
            _, kind, number = heapq.heappop(events)
            job = jobs[number]
            if kind == 1:
                queue.submit(job)
            elif kind == 2 or job.started is None:
                queue.remove(job)
        for job in queue.start(Instant(now)):
            job.started = now
            heapq.heappush(events, (now + job.runtime, 2, jobs.index(job)))
        first = next(queue.waiting, None)
        if first is not None and first.reserved is None and queue.reserved is not None:
            first.reserved = queue.reserved.at
        played.used.append(queue.processors - queue.idle)
    return played


@pytest.mark.parametrize(
    ("jobs", "starts"),
    [
        pytest.param([sample(0, 6, 100), sample(1, 6, 50), sample(2, 6, 10)], [0, 100, 150], id="first come first"),
        pytest.param([sample(0, 6, 100), sample(1, 6, 50), sample(2, 4, 98)], [0, 100, 2], id="ends in time"),
        pytest.param([sample(0, 6, 100), sample(1, 7, 50), sample(2, 4, 99)], [0, 100, 150], id="would end too late"),
        pytest.param([sample(0, 6, 100), sample(1, 7, 50), sample(2, 3, 999)], [0, 100, 2], id="spare processors"),
        pytest.param(
            [sample(0, 6, 100), sample(1, 7, 50), sample(2, 2, 999), sample(3, 2, 999)], [0, 100, 2, 150],
            id="spare processors are spent",
        ),
        pytest.param(
            [sample(0, 6, 100, 20), sample(1, 7, 50), sample(2, 4, 98)], [0, 100, 2], id="a walltime that was too long"
        ),
        pytest.param(
            [sample(0, 6, 100, 20), sample(1, 7, 50), sample(2, 4, 200)], [0, 20, 70], id="the first one starts early"
        ),
        pytest.param(
            [sample(0, 4, 50), sample(0, 4, 100), sample(1, 10, 10), sample(2, 2, 98)], [0, 0, 100, 2],
            id="a reservation after several ends",
        ),
        pytest.param([sample(0, 11, 5), sample(1, 2, 10_000)], [None, 1], id="a job larger than the cluster"),
    ],
)  # fmt: skip
def test_hand_made_cases(jobs: list[Sample], starts: list[int | None]) -> None:
    assert play(jobs).starts == starts


def test_a_reservation_is_the_end_of_walltimes_and_what_is_left_then() -> None:
    queue: EasyQueue[Sample] = EasyQueue(SIZE)
    for job in (sample(0, 5, 100), sample(0, 4, 60), sample(0, 6, 10)):
        queue.submit(job)
    assert len(queue.start(Instant(0))) == 2
    assert queue.reserved == Reservation(Instant(100), 4 + 1 + 5 - 6)
    assert len(queue) == 1


def test_the_next_job_starts_as_soon_as_the_first_one_is_removed() -> None:
    blocked, behind = sample(1, 10, 10), sample(2, 5, 10_000)
    blocked.cancelled = 30
    assert play([sample(0, 5, 100), blocked, behind]).starts == [0, None, 30]


def test_a_removed_job_behind_the_first_one_changes_nothing() -> None:
    jobs = [sample(0, 5, 100), sample(1, 10, 10), sample(2, 5, 10_000), sample(3, 5, 10_000)]
    jobs[2].cancelled = 30
    assert play(jobs).starts == [0, 100, None, 110]


# ---- any jobs

JOBS = st.lists(
    st.tuples(
        st.integers(0, 60), st.integers(1, SIZE), st.integers(1, 40), st.floats(0, 1), st.none() | st.integers(1, 80)
    ),
    min_size=1, max_size=40,
)  # fmt: skip


def samples(drawn: Sequence[tuple[int, int, int, float, int | None]]) -> list[Sample]:
    jobs = []
    for submitted, processors, walltime, part, cancelled in drawn:
        job = sample(submitted, processors, walltime, round(part * walltime))
        job.cancelled = None if cancelled is None else submitted + cancelled
        jobs.append(job)
    return jobs


def reference(jobs: Sequence[Sample], size: int = SIZE) -> list[int | None]:
    """Return the starts under EASY, by the definition: at every instant all waiting jobs are examined in order."""
    starts: dict[int, int] = {}
    order = sorted(range(len(jobs)), key=lambda number: (jobs[number].submitted, number))
    gone: set[int] = set()
    now = -1
    while True:
        later = [jobs[n].submitted for n in order] + [starts[n] + jobs[n].runtime for n in starts]
        later += [at for n in order if (at := jobs[n].cancelled) is not None]
        later = [at for at in later if at > now]
        if not later:
            return [starts.get(number) for number in range(len(jobs))]
        now = min(later)
        while True:
            gone |= {n for n in order if n not in starts and (at := jobs[n].cancelled) is not None and at <= now}
            waiting = [n for n in order if jobs[n].submitted <= now and n not in starts and n not in gone]
            running = [n for n in starts if starts[n] + jobs[n].runtime > now]
            begun = _next_start(jobs, waiting, running, starts, now, size)
            if begun is None:
                break
            starts[begun] = now


def _next_start(
    jobs: Sequence[Sample], waiting: list[int], running: list[int], starts: dict[int, int], now: int, size: int
) -> int | None:
    """Return the first of the waiting jobs that may start now."""
    idle = size - sum(jobs[n].processors for n in running)
    if not waiting:
        return None
    first = jobs[waiting[0]]
    if first.processors <= idle:
        return waiting[0]
    free, at = idle, 0
    for n in sorted(running, key=lambda each: starts[each] + jobs[each].walltime):
        free += jobs[n].processors
        if free >= first.processors:
            at = starts[n] + jobs[n].walltime
            break
    for n in waiting[1:]:
        job = jobs[n]
        if job.processors <= idle and (now + job.walltime <= at or job.processors <= free - first.processors):
            return n
    return None


@settings(max_examples=200)
@given(JOBS)
def test_no_job_starts_after_its_reservation_and_the_cluster_is_never_overfull(
    drawn: list[tuple[int, int, int, float, int | None]],
) -> None:
    played = play(samples(drawn))
    assert all(0 <= used <= SIZE for used in played.used)
    assert played.used[-1] == 0
    for job in played.jobs:
        if job.cancelled is None:
            assert job.started is not None
        if job.reserved is not None and job.started is not None:
            assert job.submitted <= job.started <= job.reserved


def positive_runtimes(jobs: list[Sample]) -> list[Sample]:
    """Return the jobs, each of which lasts: the reference knows no job that ends at the instant of its start."""
    for job in jobs:
        job.runtime = max(1, job.runtime)
    return jobs


@settings(max_examples=200)
@given(JOBS)
def test_a_queue_that_examines_only_what_has_changed_starts_the_same_jobs(
    drawn: list[tuple[int, int, int, float, int | None]],
) -> None:
    played = play(positive_runtimes(samples(drawn)))
    assert played.starts == reference(positive_runtimes(samples(drawn)))


def test_backfilling_shortens_the_waits_of_many_jobs() -> None:
    """The same jobs wait longer if each starts after those before it."""
    rng = Random(1)
    jobs = [sample(9 * number, rng.choice((1, 2, 4, 8)), rng.randrange(1, 60)) for number in range(500)]
    in_order = 0
    waits = []
    running: list[tuple[int, int]] = []
    for job in jobs:
        in_order = max(in_order, job.submitted)
        while sum(size for end, size in running if end > in_order) + job.processors > SIZE:
            in_order = min(end for end, _ in running if end > in_order)
        running.append((in_order + job.runtime, job.processors))
        waits.append(in_order - job.submitted)
    started = play(jobs).starts
    assert sum((at or 0) - job.submitted for at, job in zip(started, jobs, strict=True)) < 0.8 * sum(waits)


def test_jobs_far_behind_in_the_queue_are_not_examined() -> None:
    first = [sample(0, 6, 1000), *[sample(1, 8, 5) for _ in range(DEPTH - 1)]]
    jobs = [*first, sample(2, 2, 10), sample(2, 2, 10), sample(3, 2, 10)]
    assert play(jobs).starts[DEPTH:] == [2, 12, 22]
