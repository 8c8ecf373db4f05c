"""The world of `koala sim replay`: the engine as configured, on clusters that are processors and a queue."""

import gc
import itertools
from collections.abc import Callable, Iterable
from random import Random

import pytest

from koalapy.experiments.replay.cluster import ReplayBatchJob
from koalapy.experiments.replay.record import Ran, ReplayJob
from koalapy.experiments.replay.world import Replay
from koalapy.model.cluster import ClusterSettings
from koalapy.model.job import Job
from koalapy.model.request import WhenBusy
from koalapy.model.settings import Settings
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration
from koalapy.policies.placement import best_fit, worst_fit
from koalapy.policies.queueing import QueueingPolicy, fcfs, fpfs
from koalapy.scheduler.schedule import Policies

SIZES = {"a": 16, "b": 8, "c": 8}
BARELY = 1_000_000  # overtakes: no bound


def job(number: int, at: int, processors: int | tuple[int, ...], runs: int, **changes: object) -> ReplayJob:
    """Make a job whose components name no cluster. Times are in seconds."""
    sizes = (processors,) if isinstance(processors, int) else processors
    fields = {
        "components": tuple((size, None) for size in sizes),
        "submitted": Duration(at * SECOND),
        "runtime": Duration(runs * SECOND),
        "walltime": HOUR,
    }
    return ReplayJob(number=number, **fields | changes)  # type: ignore[arg-type]


def world(
    jobs: Iterable[ReplayJob],
    queueing: QueueingPolicy = fcfs,
    sizes: dict[str, int] = SIZES,
    on_end: Callable[[Ran], None] = lambda ran: None,
    **changes: object,
) -> Replay:
    clusters = tuple(ClusterSettings(name=name, batch="slurm") for name in sizes)
    settings = Settings(clusters=clusters, **changes)  # type: ignore[arg-type]
    return Replay(settings, Policies(worst_fit, queueing), sizes, jobs, on_end)


def replay(jobs: Iterable[ReplayJob], queueing: QueueingPolicy = fcfs, **changes: object) -> dict[int, Ran]:
    """Return the outcome of each job, in the order of their ends."""
    ran: dict[int, Ran] = {}
    for _ in world(jobs, queueing, on_end=lambda each: ran.update({each.number: each}), **changes).run():  # type: ignore[arg-type]
        pass
    return ran


def seconds(ran: Ran) -> tuple[float | None, float | None]:
    return tuple(None if at is None else at / SECOND for at in (ran.started, ran.ended))  # type: ignore[return-value]


def drawn(count: int, seed: int = 1, components: int = 1) -> list[ReplayJob]:
    rng = Random(seed)
    at = 0
    jobs = []
    for number in range(1, count + 1):
        at += round(rng.expovariate(1 / 40))
        sizes = tuple(rng.choice((1, 2, 3, 4, 8)) for _ in range(rng.randint(1, components)))
        jobs.append(job(number, at, sizes, rng.randrange(600)))
    return jobs


def kept() -> int:
    """Count the jobs in memory, whatever refers to them."""
    gc.collect()
    return sum(isinstance(each, Job | ReplayJob | ReplayBatchJob) for each in gc.get_objects())


def reference(jobs: Iterable[ReplayJob], processors: int) -> dict[int, int]:
    """Return the starts under FCFS on one cluster: each job starts when it fits, and not before the one before it."""
    running: list[tuple[int, int]] = []
    starts: dict[int, int] = {}
    now = 0
    for each in jobs:
        now = max(now, each.submitted)
        while sum(size for end, size in running if end > now) + each.processors > processors:
            now = min(end for end, _ in running if end > now)
        starts[each.number] = now
        running.append((now + min(each.runtime, each.walltime), each.processors))
    return starts


def test_one_job_starts_at_once_and_runs_as_long_as_it_did() -> None:
    ran = replay([job(7, 30, 4, 100, user="u", group="g", queue="q")])
    assert ran == {
        7: Ran(
            number=7, submitted=Duration(30 * SECOND), started=Duration(30 * SECOND), ended=Duration(130 * SECOND),
            processors=4, places=(("a", 4),), requested=HOUR, user="u", group="g", queue="q", killed=False,
        )
    }  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_fcfs_on_one_cluster_is_first_come_first_served(seed: int) -> None:
    jobs = drawn(300, seed)
    ran = replay(jobs, sizes={"one": 10})
    starts = reference(jobs, 10)
    assert {number: each.started for number, each in ran.items()} == starts
    assert any(starts[each.number] > each.submitted for each in jobs)


def test_under_fcfs_no_job_overtakes_another() -> None:
    """This holds on several clusters and for jobs of several components, too."""
    ran = replay(drawn(300, components=3))
    starts = [ran[number].started or 0 for number in sorted(ran)]
    assert starts == sorted(starts)


def test_no_cluster_ever_has_more_than_its_processors() -> None:
    ran = replay(drawn(400, components=3), fpfs)
    changes: dict[str, list[tuple[int, int]]] = {name: [] for name in SIZES}
    for each in ran.values():
        assert each.started is not None
        assert each.ended is not None
        for cluster, processors in each.places:
            changes[cluster] += [(each.started, processors), (each.ended, -processors)]
    for name, moves in changes.items():
        used = itertools.accumulate(processors for _, processors in sorted(moves))
        assert max(used) == SIZES[name]


def test_the_same_trace_gives_the_same_starts() -> None:
    first, second = (replay(drawn(300, components=3), fpfs) for _ in range(2))
    assert list(first.items()) == list(second.items())


def test_another_queueing_policy_changes_only_which_jobs_wait() -> None:
    jobs = drawn(300)
    strict, passing = replay(jobs), replay(jobs, fpfs, max_overtakes=BARELY)
    assert strict.keys() == passing.keys()
    for number, each in strict.items():
        other = passing[number]
        assert each.ended is not None
        assert each.started is not None
        assert other.ended is not None
        assert other.started is not None
        assert each.ended - each.started == other.ended - other.started
        assert (each.submitted, each.processors, each.requested) == (other.submitted, other.processors, other.requested)
    assert [each.started for each in strict.values()] != [each.started for each in passing.values()]


def test_a_policy_changes_nothing_if_no_job_waits() -> None:
    jobs = [each for each in drawn(100) if each.processors <= 2]
    assert replay(jobs, sizes={"one": 1000}) == replay(jobs, fpfs, sizes={"one": 1000})


def test_fpfs_allows_as_many_overtakes_as_the_grid_file() -> None:
    jobs = [job(1, 0, 8, 100), job(2, 1, 10, 10), *(job(number, 2, 1, 500) for number in (3, 4, 5))]
    ran = replay(jobs, fpfs, sizes={"one": 10}, max_overtakes=1)
    assert {number: seconds(each)[0] for number, each in ran.items()} == {1: 0, 2: 502, 3: 2, 4: 512, 5: 512}


def test_a_cluster_without_events_for_a_day_is_usable() -> None:
    ran = replay([job(1, 0, 4, 10), job(2, 86_400, 16, 10), job(3, 200_000, 8, 10, components=((8, "c"),))])
    assert [seconds(each)[0] for each in ran.values()] == [0, 86_400, 200_000]


def test_a_job_that_ends_makes_room_for_one_submitted_at_the_same_instant() -> None:
    ran = replay([job(1, 0, 10, 50), job(2, 10, 10, 50), job(3, 50, 1, 50)], fpfs, sizes={"one": 10})
    assert {number: seconds(each)[0] for number, each in ran.items()} == {1: 0, 2: 50, 3: 100}


def test_a_job_beyond_its_walltime_is_killed() -> None:
    ran = replay([job(1, 0, 10, 1000, walltime=Duration(100 * SECOND)), job(2, 0, 10, 5)], sizes={"one": 10})
    assert seconds(ran[1]) == (0, 100)
    assert ran[1].killed
    assert "longer than its walltime" in ran[1].reason
    assert seconds(ran[2]) == (100, 105)
    assert not ran[2].killed


def test_a_job_that_runs_exactly_as_long_as_it_may_is_not_killed() -> None:
    ran = replay([job(1, 0, 1, 100, walltime=Duration(100 * SECOND))])
    assert not ran[1].killed
    assert seconds(ran[1]) == (0, 100)


def test_components_start_all_at_one_time_each_on_its_cluster() -> None:
    jobs = [job(1, 0, 16, 50), job(2, 0, 8, 70), job(3, 1, (12, 6, 6), 30)]
    ran = replay(jobs)
    assert seconds(ran[3]) == (70, 100)
    assert sorted(ran[3].places) == [("a", 12), ("b", 6), ("c", 6)]
    assert ran[3].processors == 24


def test_a_component_runs_on_the_cluster_that_it_names() -> None:
    ran = replay([job(1, 0, 0, 5, components=((4, "c"), (2, None)))])
    assert ran[1].places == (("c", 4), ("a", 2))


def test_whole_nodes_are_taken_where_allocation_is_exclusive() -> None:
    clusters = (ClusterSettings(name="one", batch="slurm", processors_per_node=4, exclusive=True),)
    ran: list[Ran] = []
    jobs = [job(1, 0, 1, 10), job(2, 0, 4, 10), job(3, 0, 1, 10)]
    for _ in Replay(Settings(clusters=clusters), Policies(best_fit, fcfs), {"one": 8}, jobs, ran.append).run():
        pass
    assert [seconds(each)[0] for each in ran] == [0, 0, 10]


@pytest.mark.parametrize(
    ("components", "reason"),
    [
        (((17, None),), "never fits"),
        (((9, None), (9, None)), "never fits"),
        (((9, "b"),), "never fits"),
        (((1, "nowhere"),), "not in the grid"),
    ],
)
def test_a_job_that_fits_nowhere_is_reported_at_once(
    components: tuple[tuple[int, str | None], ...], reason: str
) -> None:
    ran = replay([job(1, 0, 16, 50), job(2, 5, 0, 5, components=components), job(3, 6, 1, 5)], fcfs)
    assert list(ran) == [2, 3, 1]
    assert (ran[2].started, ran[2].ended, ran[2].places) == (None, None, ())
    assert reason in ran[2].reason


def test_a_job_that_never_starts_is_reported_at_the_end() -> None:
    ran = replay([job(1, 0, 1, 5)], lambda blocked, most: False)
    assert (ran[1].started, ran[1].ended, ran[1].places) == (None, None, ())


def test_an_empty_trace_is_replayed() -> None:
    empty = world([])
    assert list(empty.run()) == [0]


def test_jobs_that_may_queue_are_sent_to_batch_queues() -> None:
    """This happens after `queue_after`. There they are served before the jobs that come into the wait queue."""
    jobs = [job(1, 0, 10, 3000), job(2, 1, 10, 10, when_busy=WhenBusy.QUEUE), job(3, 2, 10, 10)]
    ran = replay(jobs, sizes={"one": 10}, queue_after=MINUTE)
    assert {number: seconds(each)[0] for number, each in ran.items()} == {1: 0, 2: 3000, 3: 3010}


def test_nothing_is_kept_of_ended_jobs() -> None:
    """The trace is read as time passes, no job before it is submitted."""
    over = 0
    ahead: list[int] = []

    def trace() -> Iterable[ReplayJob]:
        for each in drawn(2000):
            if each.processors <= 2:
                ahead.append(each.number)
                yield each

    def on_end(_: Ran) -> None:
        nonlocal over
        over += 1
        assert len(ahead) - over < 64

    before = kept()
    replaying = world(trace(), sizes={"one": 100}, on_end=on_end)
    counts = list(replaying.run())
    assert counts == sorted(counts)
    assert counts[-1] == over == len(ahead)
    assert len(counts) > 1
    assert not replaying.engine.records.jobs
    assert kept() <= before


def test_calls_and_events_are_counted() -> None:
    replaying = world([job(1, 0, 1, 5)])
    list(replaying.run())
    assert replaying.calls >= 5
    assert replaying.happened >= 8
