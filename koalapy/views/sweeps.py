"""`koala runners`: the state and pace of each CS-Runner, and the nodes that sweeps can expect."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from koalapy.answers.koalad import RunnersAtWork
from koalapy.answers.sweeps import Admission, Counts, JobStateName, Runner, RunnerCluster, SweepProgress
from koalapy.engine import Engine
from koalapy.model.attempt import Attempt, OwnerKind, fields_of
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.parameters import ResultBatch
from koalapy.model.states import AttemptState, JobState
from koalapy.model.sweep import Sweep
from koalapy.model.units import MINUTE, SECOND, Instant, format_instant
from koalapy.scavenging.launchers import owner_of
from koalapy.scavenging.prediction import Prediction
from koalapy.views.fields import optional_instant

Doing = Mapping[AttemptId, int]  # Launchers, and how many parameters each runs
_WINDOW = MINUTE


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


def counts(sweep: Sweep) -> Counts:
    """Count the parameters of a sweep by their state."""
    return {
        "parameters": sweep.count,
        "done": len(sweep.done),
        "failed": len(sweep.failed),
        "assigned": sum(len(numbers) for _, numbers in sweep.out),
        "preempted": sweep.preempted,
    }


def progress(sweep: Sweep) -> SweepProgress:
    """Describe the progress of a sweep."""
    return {**counts(sweep), "clusters": [cluster for cluster, numbers in sweep.out if numbers]}


def runners_at_work(runners: Sequence[Runner]) -> RunnersAtWork:
    """Count the sweeps that are not final, and their nodes."""
    active = sum(JobState(each["state"]).active for each in runners)
    nodes = sum(place["nodes"] for each in runners for place in each["clusters"])
    return {"active": active, "waiting": len(runners) - active, "nodes": nodes}


def living_runners(engine: Engine, now: Instant, pace: Pace) -> list[Runner]:
    """Describe the sweeps that are not final, by id."""
    doing = engine.scavenger.running_parameters
    return [
        runner(sweep, engine.core.launchers.of(owner_of(sweep.id)), doing, pace.per_minute(now, sweep.id), now)
        for _, sweep in sorted(engine.records.sweeps.items())
    ]


def past_runner(sweep: Sweep) -> Runner:
    """Describe a final sweep."""
    return runner(sweep, (), {}, None, Instant(0))


def runner(sweep: Sweep, launchers: Sequence[Attempt], doing: Doing, per_minute: float | None, now: Instant) -> Runner:
    """Describe a CS-Runner. `doing`: parameters that its Launchers run."""
    clusters, counted = places(sweep, launchers, doing), counts(sweep)
    running = [each["running"] for each in clusters]
    known = [each for each in running if each is not None]
    ends_at = None
    if per_minute and sweep.remaining and sweep.state is JobState.RUNNING:
        ends_at = Instant(now + round(sweep.remaining * MINUTE / per_minute))
    charged = sweep.charged + sum(_charged(each, now) for each in launchers)
    return {
        "id": sweep.id,
        "name": sweep.request.name,
        "owner": sweep.owner,
        "state": cast(JobStateName, str(sweep.state)),
        "submitted_at": format_instant(sweep.submitted_at),
        "admitted_at": optional_instant(sweep.admitted_at),
        "finished_at": optional_instant(sweep.finished_at),
        **counted,
        "running": sum(known) if len(known) == len(running) else None,
        "waiting": counted["parameters"] - counted["done"] - counted["assigned"],
        "parameters_per_minute": _rounded(per_minute),
        "ends_at": optional_instant(ends_at),
        "charged_processor_seconds": round(charged / SECOND, 6),
        "reason": str(sweep.reason) if sweep.reason else None,
        "clusters": clusters,
    }


def forecast(prediction: Prediction, now: Instant) -> Admission:
    """Describe the prediction of nodes for sweeps: the mean over the next hour, and its success in the past.

    The other numbers are null before the first hour ends.
    """
    last = prediction.checks[-1] if prediction.checks else None
    return {
        "expected_nodes": round(prediction.forecast(now), 3),
        "predicted_nodes": None if last is None else round(last.predicted, 3),
        "nodes": None if last is None else round(last.came_true, 3),
        "mean_error": None if last is None else _rounded(prediction.mean_error),
    }


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 3)


def scavenged(launchers: Iterable[Attempt]) -> dict[str, int]:
    """Count the processors of sweeps' Launchers by cluster."""
    found: dict[str, int] = {}
    for each in launchers:
        if each.owner.kind is OwnerKind.SWEEP and _has_nodes(each):
            found[each.cluster] = found.get(each.cluster, 0) + each.processors
    return found


def places(sweep: Sweep, launchers: Sequence[Attempt], doing: Doing) -> list[RunnerCluster]:
    """Describe a CS-Runner's clusters, in order of their names. `doing`: parameters that its Launchers run."""
    clusters = {name for name, _ in (*sweep.out, *sweep.reclaimed, *sweep.black_holes)}
    clusters |= {each.cluster for each in launchers}
    return [_place(sweep, cluster, launchers, doing) for cluster in sorted(clusters)]


def _place(sweep: Sweep, cluster: str, launchers: Sequence[Attempt], doing: Doing) -> RunnerCluster:
    here = [each for each in launchers if each.cluster == cluster]
    having = [each for each in here if _has_nodes(each)]
    suspended = [each for each in having if each.state is AttemptState.SUSPENDED]
    reports = [doing.get(each.id) for each in having if each not in suspended]
    running = [each for each in reports if each is not None]
    return {
        "cluster": cluster,
        "nodes": len(having),
        "processors": sum(each.processors for each in having),
        "starting": sum(not each.let_go and each.allocated_at is None for each in here),
        "stopping": sum(fields_of(each).stop_reason != "" for each in having),
        "suspended": len(suspended),
        "running": sum(running) if len(running) == len(reports) else None,
        "assigned": len(sweep.out_on(cluster)),
        "reclaimed": dict(sweep.reclaimed).get(cluster, 0),
        "black_holes": [host for name, host in sweep.black_holes if name == cluster],
    }


def _has_nodes(launcher: Attempt) -> bool:
    """Return whether a Launcher has its node now."""
    return not launcher.let_go and launcher.allocated_at is not None and launcher.ended_at is None


def _charged(launcher: Attempt, now: Instant) -> int:
    """Return the processor-microseconds of a Launcher that are not in the sum of its CS-Runner yet."""
    if launcher.allocated_at is None:
        return 0
    return (now - launcher.allocated_at) * launcher.processors


def _forget(now: Instant, counts: deque[tuple[Instant, int]]) -> None:
    """Remove counts older than the window, except the one that begins it."""
    while len(counts) > 1 and now - counts[1][0] > _WINDOW:
        counts.popleft()
