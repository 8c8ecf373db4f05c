"""Sweeps as `koala runners` shows them: how each runner stands, how fast it goes, and what sweeps can expect."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from koalapy.engine import Engine
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Component, Job
from koalapy.model.states import ComponentState, JobState
from koalapy.model.sweep import ResultBatch, Runner
from koalapy.model.units import MINUTE, SECOND, Instant
from koalapy.scavenging.prediction import Prediction

Doing = Mapping[AttemptId, int]  # Launchers, and how many parameters each runs
_WINDOW = MINUTE


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a runner has on one cluster.

    `nodes` and `processors`: its Launchers that have theirs, those included that are `going` or `suspended`.
    `starting`: Launchers whose batch job waits. `running`: parameters that run, None if that is not known. `out`:
    parameters there that are not done. `owed`: see Runner. `left_out`: nodes that are black holes.
    """

    cluster: str
    nodes: int = 0
    processors: int = 0
    starting: int = 0
    going: int = 0
    suspended: int = 0
    running: int | None = None
    out: int = 0
    owed: int = 0
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerReport:
    """One sweep. `charged`: processor-microseconds of its Launchers' allocations up to now, those that run included."""

    job: Job
    runner: Runner
    places: tuple[Place, ...]
    charged: int
    per_minute: float | None = None
    ends_at: Instant | None = None


@dataclass(frozen=True, slots=True)
class Forecast:
    """Mean nodes that sweeps can expect over the next hour; what was predicted of the last one, what came true of that,
    and how far predictions were off in the mean. None before there is one to tell by."""

    expected: float
    predicted: float | None = None
    came_true: float | None = None
    mean_error: float | None = None


class Pace:
    """How fast sweeps go, by the results that were committed in the last minute."""

    def __init__(self) -> None:
        self._counts: dict[JobId, deque[tuple[Instant, int]]] = {}

    def count(self, now: Instant, batches: Iterable[ResultBatch]) -> None:
        """Results that were committed now."""
        for batch in batches:
            counts = self._counts.setdefault(batch.sweep, deque())
            if counts and now - counts[-1][0] < SECOND:
                counts[-1] = counts[-1][0], counts[-1][1] + len(batch.results)
            else:
                counts.append((now, len(batch.results)))
            _forget(now, counts)

    def per_minute(self, now: Instant, sweep: JobId) -> float | None:
        """None before there is anything to tell it by.

        What came first only begins the time that is measured: nobody knows how long it took.
        """
        counts = self._counts.get(sweep, deque())
        _forget(now, counts)
        if len(counts) < 2:
            return None
        since = now - counts[0][0]
        return (sum(count for _, count in counts) - counts[0][1]) * MINUTE / since

    def over(self, sweep: JobId) -> None:
        self._counts.pop(sweep, None)


def living_runners(engine: Engine, now: Instant, pace: Pace) -> list[RunnerReport]:
    """By id; of the sweeps that are not over."""
    launchers: dict[JobId, list[Job]] = {}
    for job in engine.records.jobs.values():
        if job.pilot is not None:
            launchers.setdefault(job.pilot.sweep, []).append(job)
    sweeps = sorted((job for job in engine.records.jobs.values() if job.runner is not None), key=lambda job: job.id)
    doing = engine.scavenger.running_parameters
    return [_living(job, launchers.get(job.id, []), doing, pace.per_minute(now, job.id), now) for job in sweeps]


def _living(job: Job, launchers: Sequence[Job], doing: Doing, per_minute: float | None, now: Instant) -> RunnerReport:
    assert job.runner is not None
    left, runs = job.runner.left, job.state is JobState.RUNNING
    return RunnerReport(
        job=job,
        runner=job.runner,
        places=places(job.runner, launchers, doing),
        charged=job.runner.charged + sum(_charged(each.components[0], now) for each in launchers),
        per_minute=per_minute,
        ends_at=Instant(now + round(left * MINUTE / per_minute)) if per_minute and left and runs else None,
    )


def past_runner(job: Job) -> RunnerReport:
    """Of a sweep that is over."""
    assert job.runner is not None
    return RunnerReport(job=job, runner=job.runner, places=places(job.runner, (), {}), charged=job.runner.charged)


def forecast(prediction: Prediction, now: Instant) -> Forecast:
    expected = prediction.forecast(now)
    if not prediction.checks:
        return Forecast(expected)
    last = prediction.checks[-1]
    return Forecast(expected, last.predicted, last.came_true, prediction.mean_error)


def scavenged(jobs: Iterable[Job]) -> dict[str, int]:
    """Processors of each cluster that Launchers have."""
    found: dict[str, int] = {}
    for job in jobs:
        if job.pilot is not None and (cluster := _has_nodes(job.components[0])):
            found[cluster] = found.get(cluster, 0) + job.components[0].processors
    return found


def places(runner: Runner, launchers: Sequence[Job], doing: Doing) -> tuple[Place, ...]:
    """By cluster: those where it has, is owed or has left out anything. `doing`: what was heard of its Launchers."""
    clusters = {name for name, _ in (*runner.out, *runner.owed, *runner.left_out)}
    clusters |= {job.components[0].cluster for job in launchers if job.components[0].cluster}
    return tuple(_place(runner, cluster, launchers, doing) for cluster in sorted(clusters))


def _place(runner: Runner, cluster: str, launchers: Sequence[Job], doing: Doing) -> Place:
    here = [job for job in launchers if job.components[0].cluster == cluster]
    having = [job for job in here if _has_nodes(job.components[0])]
    suspended = [job for job in having if job.components[0].state is ComponentState.SUSPENDED]
    heard = [doing.get(job.attempt_of(job.components[0])) for job in having if job not in suspended]
    running = [each for each in heard if each is not None]
    return Place(
        cluster=cluster,
        nodes=len(having),
        processors=sum(job.components[0].processors for job in having),
        starting=sum(not job.components[0].cleaned_up and job.components[0].allocated_at is None for job in here),
        running=sum(running) if len(running) == len(heard) else None,
        going=sum(job.pilot is not None and job.pilot.stop_reason != "" for job in having),
        suspended=len(suspended),
        out=len(runner.out_on(cluster)),
        owed=dict(runner.owed).get(cluster, 0),
        left_out=tuple(host for name, host in runner.left_out if name == cluster),
    )


def _has_nodes(component: Component) -> str | None:
    """The cluster on which it has its node now."""
    has = not component.cleaned_up and component.allocated_at is not None and component.ended_at is None
    return component.cluster if has else None


def _charged(component: Component, now: Instant) -> int:
    """Of a Launcher that has not been counted into its runner's yet."""
    if component.allocated_at is None:
        return 0
    return (now - component.allocated_at) * component.processors


def _forget(now: Instant, counts: deque[tuple[Instant, int]]) -> None:
    """What is older than the window, but for one that begins it."""
    while len(counts) > 1 and now - counts[1][0] > _WINDOW:
        counts.popleft()
