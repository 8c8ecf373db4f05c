"""Engines and stores as the bench of the engine needs them: many jobs waiting, some running, clusters busy or not."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

from _mix import INSTANCE, START, engine_of, request, settings

from koalapy.driver.driver import Delivery, Driver
from koalapy.engine import Engine
from koalapy.model.change import OutboxEntry, Snapshot
from koalapy.model.cluster import ClusterState, Node
from koalapy.model.commands import Hint
from koalapy.model.errors import Reason
from koalapy.model.events import (
    AttemptSubmitted,
    ClusterConnected,
    ClusterMeasured,
    Event,
    WorkSubmitted,
    WrapperReported,
)
from koalapy.model.identity import AttemptId, Tag, tag_of
from koalapy.model.job import Job
from koalapy.model.states import JobState, WrapperPhase
from koalapy.model.units import SECOND, Duration, Instant
from koalapy.store.records import dump_work, load_work
from koalapy.store.sql import SqlStore
from koalapy.store.sqlite import SqliteFile

CLUSTERS, PROCESSORS = 100, 640
NO_LIMIT = 1_000_000  # on overtaking, so that a pass looks at the whole queue; the default would end it after 20
SETTINGS = settings(CLUSTERS, max_overtakes=NO_LIMIT)
LATER = Instant(START + SECOND)


def waiting_jobs(count: int, components: int | None = None) -> tuple[Job, ...]:
    """Make waiting jobs as the engine does. None shares a value with another, as after a restart."""
    dice, engine = Random(1), engine_of(settings())
    made = engine.handle(START, [submitted(dice, number, components) for number in range(count)]).jobs
    again = [load_work(*dump_work(job)) for job in made]
    return tuple(job for job in again if isinstance(job, Job))


def submitted(dice: Random, number: int, components: int | None = None) -> WorkSubmitted:
    return WorkSubmitted(request=request(dice, CLUSTERS, components), owner="me", key=f"key-{number}")


def busy_grid(waiting: int) -> Engine:
    """An engine before its first pass: all clusters but the first are busy, and the first is not known yet."""
    engine = engine_of(SETTINGS, Snapshot(instance=INSTANCE, jobs=waiting_jobs(waiting)))
    engine.handle(START, [ClusterConnected(cluster=name, version="22.05") for name in names()])
    engine.handle(START, [measured(name, START, 0) for name in names()[1:]])
    return engine


def names() -> list[str]:
    return [each.name for each in SETTINGS.clusters]


def measured(cluster: str, now: Instant, idle: int, allocated: Sequence[Tag] = ()) -> ClusterMeasured:
    state = ClusterState(
        measured_at=now, total=PROCESSORS, idle=idle, ours=0, others=PROCESSORS - idle, waiting_local=1,
        allocated=tuple(allocated),
    )  # fmt: skip
    return ClusterMeasured(cluster=cluster, state=state)


@contextmanager
def koalad(path: Path) -> Iterator[Driver]:
    """Driver, engine and SQLite store, started from what the store holds."""
    store = SqlStore(SqliteFile(path))
    try:
        snapshot = store.load()
        engine = engine_of(SETTINGS, snapshot)
        driver = Driver(engine, store, _Links(), _Clock(), snapshot.outbox, store.next_number)
        driver.start()
        yield driver
    finally:
        store.close()


def fill(path: Path, waiting: int, running: int) -> None:
    """A store as a koalad leaves it: jobs that run, jobs that wait because the grid is full, and all their history."""
    dice = Random(1)
    with koalad(path) as driver:
        deliver(driver, [ClusterConnected(cluster=name, version="22.05") for name in names()])
        deliver(driver, [measured(name, START, PROCESSORS) for name in names()])
        deliver(driver, [submitted(dice, number) for number in range(running)])
        for phase in ("at_barrier", "running"):
            deliver(
                driver, [event for attempt in _live(driver.engine) for event in _reports(driver.engine, attempt, phase)]
            )
        deliver(driver, [measured(name, START, 0) for name in names()])
        deliver(driver, [submitted(dice, running + number) for number in range(waiting)])
        states = [job.state for job in driver.engine.records.jobs.values()]
        driver.step([Delivery(confirmed=tuple(range(10 * len(states))))])
    found = states.count(JobState.RUNNING), states.count(JobState.WAITING)
    if abs(found[0] - running) > running // 20:
        raise SystemExit(f"{found[0]} jobs run and {found[1]} wait, {running} and {waiting} were to")


def recover(path: Path) -> None:
    """Recover: open the store, and run the pass over all waiting jobs on a grid with a few idle processors."""
    with koalad(path) as driver:
        deliver(driver, [ClusterConnected(cluster=name, version="22.05") for name in names()])
        records = driver.engine.records
        shown = {name: [tag_of(records.instance, attempt.id) for attempt in records.live(name)] for name in names()}
        claimed = len(records.jobs) - len(driver.engine.core.queue)
        deliver(driver, [measured(name, LATER, 4, shown[name]) for name in names()])
        if len(records.jobs) - len(driver.engine.core.queue) == claimed:
            raise SystemExit("the pass claimed nothing: there was nothing to measure")


def deliver(driver: Driver, events: Sequence[Event]) -> None:
    driver.step([Delivery(events=tuple(events))])


def _live(engine: Engine) -> list[AttemptId]:
    return [each.id for job in engine.records.jobs.values() for each in job.live]


def _reports(engine: Engine, attempt: AttemptId, phase: str) -> list[Event]:
    processors = engine.records.jobs[attempt.job].request.components[attempt.component].processors
    nodes = tuple(Node(f"n{n}", f"10.0.0.{n}", min(8, processors - 8 * n)) for n in range(-(-processors // 8)))
    cluster = engine.records.attempts[attempt].cluster
    report = WrapperReported(
        cluster=cluster, attempt=attempt, batch_id="1", phase=WrapperPhase(phase), nodes=nodes, at_barrier_at=START
    )
    if phase == "running":
        return [replace(report, released_at=START, started_at=START)]
    return [AttemptSubmitted(cluster=cluster, attempt=attempt, batch_id="1"), report]


def _tag(engine: Engine, job: Job, component: int) -> Tag:
    return tag_of(engine.records.instance, AttemptId(job.id, component, job.number_of(component)))


class _Links:
    """To nowhere."""

    def send(self, entry: OutboxEntry, doubt: bool) -> None: ...

    def hint(self, hint: Hint) -> None: ...

    def acknowledge(self, cluster: str, epoch: int, number: int) -> None: ...

    def end_sessions(self, reason: Reason) -> dict[str, int]:
        raise AssertionError(reason)


class _Clock:
    """Every step is a microsecond after the last."""

    def __init__(self) -> None:
        self._now = START

    def now(self) -> Instant:
        self._now = Instant(self._now + 1)
        return self._now

    def slept(self) -> Duration:
        return Duration(0)
