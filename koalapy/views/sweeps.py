"""`koala runners`: the state and pace of each CS-Runner, and the nodes that sweeps can expect."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from koalapy.engine import Engine
from koalapy.model.attempt import Attempt, OwnerKind, pilot_of
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.parameters import ResultBatch
from koalapy.model.states import AttemptState, JobState
from koalapy.model.sweep import Sweep, sweep_value
from koalapy.model.units import MINUTE, SECOND, Instant
from koalapy.scavenging.pilots import owner_of
from koalapy.scavenging.prediction import Prediction

Doing = Mapping[AttemptId, int]  # Launchers, and how many parameters each runs
_WINDOW = MINUTE


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The Launchers and parameters of a CS-Runner on one cluster.

    `nodes` and `processors`: those of its Launchers, with those that are `stopping` or `suspended`.
    `starting`: Launchers whose batch job waits. `running`: parameters that run, None if unknown.
    `assigned`: parameters there that are not done. `reclaimed`: nodes that others' jobs took from it.
    """

    cluster: str
    nodes: int = 0
    processors: int = 0
    starting: int = 0
    stopping: int = 0
    suspended: int = 0
    running: int | None = None
    assigned: int = 0
    reclaimed: int = 0
    black_holes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCounts:
    """Numbers of a sweep's parameters. `assigned`: those that a cluster has. `waiting`: those that none has.

    `failed` are some of `done`. `preempted` counts a parameter each time that its node was given back.
    """

    parameters: int
    done: int
    failed: int
    assigned: int
    waiting: int
    preempted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerReport:
    """The state of one sweep. `charged`: processor-microseconds of its Launchers' allocations until now."""

    sweep: Sweep
    places: tuple[Place, ...]
    charged: int
    per_minute: float | None = None
    ends_at: Instant | None = None

    @property
    def running(self) -> int | None:
        """The number of parameters that run, or None if a cluster's is unknown."""
        running = [place.running for place in self.places]
        known = [each for each in running if each is not None]
        return sum(known) if len(known) == len(running) else None


@dataclass(frozen=True, slots=True)
class SweepTotals:
    """Numbers of sweeps that are not final, and the nodes of their Launchers."""

    active: int
    waiting: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """Prediction of nodes for sweeps: the mean over the next hour, and its success in the past.

    `predicted` and `came_true` are those of the last hour; they and `mean_error` are None before the first hour ends.
    """

    expected: float
    predicted: float | None = None
    came_true: float | None = None
    mean_error: float | None = None


class Pace:
    """The pace of sweeps, from the results that were committed in the last minute."""

    def __init__(self) -> None:
        self._counts: dict[JobId, deque[tuple[Instant, int]]] = {}

    def count(self, now: Instant, batches: Iterable[ResultBatch]) -> None:
        """Add results that were committed now."""
        for batch in batches:
            counts = self._counts.setdefault(batch.sweep, deque())
            if counts and now - counts[-1][0] < SECOND:
                counts[-1] = counts[-1][0], counts[-1][1] + len(batch.results)
            else:
                counts.append((now, len(batch.results)))
            _forget(now, counts)

    def per_minute(self, now: Instant, sweep: JobId) -> float | None:
        """Return the parameters per minute of a sweep, or None before the second result.

        The first result only begins the measured time, since its own duration is unknown.
        """
        counts = self._counts.get(sweep, deque())
        _forget(now, counts)
        if len(counts) < 2:
            return None
        since = now - counts[0][0]
        return (sum(count for _, count in counts) - counts[0][1]) * MINUTE / since

    def forget(self, sweep: JobId) -> None:
        """Forget a final sweep."""
        self._counts.pop(sweep, None)


def count_parameters(sweep: Sweep) -> ParameterCounts:
    """Count the parameters of a sweep by their state."""
    done, assigned = len(sweep.done), sum(len(numbers) for _, numbers in sweep.out)
    return ParameterCounts(
        parameters=sweep.count,
        done=done,
        failed=len(sweep.failed),
        assigned=assigned,
        waiting=sweep.count - done - assigned,
        preempted=sweep.preempted,
    )


def sweep_totals(reports: Sequence[RunnerReport]) -> SweepTotals:
    """Count sweeps that are not final, and their nodes."""
    active = sum(each.sweep.state.active for each in reports)
    return SweepTotals(active, len(reports) - active, sum(place.nodes for each in reports for place in each.places))


def living_runners(engine: Engine, now: Instant, pace: Pace) -> list[RunnerReport]:
    """Describe the sweeps that are not final, by id."""
    doing = engine.scavenger.running_parameters
    return [
        _living(sweep, engine.core.pilots.of(owner_of(sweep.id)), doing, pace.per_minute(now, sweep.id), now)
        for _, sweep in sorted(engine.records.sweeps.items())
    ]


def _living(
    sweep: Sweep, pilots: Sequence[Attempt], doing: Doing, per_minute: float | None, now: Instant
) -> RunnerReport:
    left, runs = sweep.left, sweep.state is JobState.RUNNING
    return RunnerReport(
        sweep=sweep_value(sweep),
        places=places(sweep, pilots, doing),
        charged=sweep.charged + sum(_charged(each, now) for each in pilots),
        per_minute=per_minute,
        ends_at=Instant(now + round(left * MINUTE / per_minute)) if per_minute and left and runs else None,
    )


def past_runner(sweep: Sweep) -> RunnerReport:
    """Describe a final sweep."""
    return RunnerReport(sweep=sweep, places=places(sweep, (), {}), charged=sweep.charged)


def forecast(prediction: Prediction, now: Instant) -> Forecast:
    """Describe a prediction and its success in the past."""
    expected = prediction.forecast(now)
    if not prediction.checks:
        return Forecast(expected)
    last = prediction.checks[-1]
    return Forecast(expected, last.predicted, last.came_true, prediction.mean_error)


def scavenged(pilots: Iterable[Attempt]) -> dict[str, int]:
    """Count the processors of sweeps' pilots by cluster."""
    found: dict[str, int] = {}
    for each in pilots:
        if each.owner.kind is OwnerKind.SWEEP and _has_nodes(each):
            found[each.cluster] = found.get(each.cluster, 0) + each.processors
    return found


def places(sweep: Sweep, pilots: Sequence[Attempt], doing: Doing) -> tuple[Place, ...]:
    """Describe a CS-Runner's clusters, in order of their names. `doing`: parameters that its Launchers run."""
    clusters = {name for name, _ in (*sweep.out, *sweep.reclaimed, *sweep.black_holes)}
    clusters |= {each.cluster for each in pilots}
    return tuple(_place(sweep, cluster, pilots, doing) for cluster in sorted(clusters))


def _place(sweep: Sweep, cluster: str, pilots: Sequence[Attempt], doing: Doing) -> Place:
    here = [each for each in pilots if each.cluster == cluster]
    having = [each for each in here if _has_nodes(each)]
    suspended = [each for each in having if each.state is AttemptState.SUSPENDED]
    reports = [doing.get(each.id) for each in having if each not in suspended]
    running = [each for each in reports if each is not None]
    return Place(
        cluster=cluster,
        nodes=len(having),
        processors=sum(each.processors for each in having),
        starting=sum(not each.let_go and each.allocated_at is None for each in here),
        running=sum(running) if len(running) == len(reports) else None,
        stopping=sum(pilot_of(each).stop_reason != "" for each in having),
        suspended=len(suspended),
        assigned=len(sweep.out_on(cluster)),
        reclaimed=dict(sweep.reclaimed).get(cluster, 0),
        black_holes=tuple(host for name, host in sweep.black_holes if name == cluster),
    )


def _has_nodes(pilot: Attempt) -> bool:
    """Return whether a pilot has its node now."""
    return not pilot.let_go and pilot.allocated_at is not None and pilot.ended_at is None


def _charged(pilot: Attempt, now: Instant) -> int:
    """Return the processor-microseconds of a pilot that are not in the sum of its CS-Runner yet."""
    if pilot.allocated_at is None:
        return 0
    return (now - pilot.allocated_at) * pilot.processors


def _forget(now: Instant, counts: deque[tuple[Instant, int]]) -> None:
    """Remove counts older than the window, except the one that begins it."""
    while len(counts) > 1 and now - counts[1][0] > _WINDOW:
        counts.popleft()
