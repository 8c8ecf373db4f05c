"""`koala clusters`: the engine's knowledge of each cluster, and its troubles in sentences."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from koalapy.answers import clusters as answers
from koalapy.core.foreign import Foreign
from koalapy.core.remaining import Remaining
from koalapy.engine import Engine
from koalapy.information.kis import ClusterSummary, Known
from koalapy.model.identity import JobId
from koalapy.model.units import SECOND, Instant, format_instant
from koalapy.views.sweeps import scavenged

Connection = Literal["up", "down", "connecting", "login_required"]
_CONNECTION_BY_TROUBLE: dict[str, Connection] = {
    "connecting": "connecting",
    "asks": "login_required",
    "answer_refused": "login_required",
}


_JOBS = 5  # listed in a sentence


@dataclass(frozen=True, slots=True)
class Silence:
    """Running components whose wrappers are silent since this instant or later, with their jobs and sweeps."""

    components: int
    jobs: tuple[JobId, ...]
    since: Instant


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """The state of one cluster."""

    known: Known
    summary: ClusterSummary
    age: int | None  # microseconds since the measurement
    scavenged: int = 0  # processors that Launchers have
    foreign: Foreign | None = None  # its reports about attempts of other clusters
    silent: Silence | None = None
    candidates: int = 0  # batch jobs of ours that wait there beside another one of their component

    @property
    def connection(self) -> Connection:
        """Return whether koalad is connected; else `login_required` if a person must log in."""
        if self.known.connected:
            return "up"
        trouble = self.known.trouble
        return _CONNECTION_BY_TROUBLE.get(trouble.code, "down") if trouble else "down"


def cluster_reports(engine: Engine, now: Instant) -> list[ClusterReport]:
    """Describe each cluster of the grid between two batches of events."""
    taken, known = scavenged(engine.records.launchers.values()), engine.core.information.clusters
    foreign = engine.core.foreign.foreign
    return [
        ClusterReport(
            known[summary.name], summary, _age(now, summary), taken.get(summary.name, 0), foreign.get(summary.name),
            _silent(engine, summary.name), len(engine.records.candidates_on(summary.name)),
        )
        for summary in engine.summaries(now)
    ]  # fmt: skip


def clusters_answer(reports: Iterable[ClusterReport], added: Collection[str] = ()) -> answers.ClustersAnswer:
    """Answer with these clusters. `added`: those that were added by command."""
    return {"schema": "koala.clusters/1", "clusters": [cluster(each, added) for each in reports]}


def cluster(report: ClusterReport, added: Collection[str]) -> answers.Cluster:
    """Describe a cluster. Its numbers are None until the first measurement."""
    known, summary, state = report.known, report.summary, report.summary.state
    return {
        "name": summary.name,
        "batch": known.settings.batch,
        "version": known.version or None,
        "connection": report.connection,
        "total": state.total if state else None,
        "ours": state.ours if state else None,
        "scavenged": report.scavenged if state else None,
        "others": state.others if state else None,
        "waiting_local": state.waiting_local if state else None,
        "idle": summary.idle if state else None,
        "committed": summary.committed,
        "candidates": report.candidates,
        "unit": state.unit if state else None,
        "walltime_limit_s": state.walltime_limit / SECOND if state and state.walltime_limit is not None else None,
        "age_s": None if report.age is None else round(report.age / SECOND, 3),
        "reason": str(summary.trouble) if summary.trouble else None,
        "foreign_reports": report.foreign.count if report.foreign else 0,
        "draining": known.settings.draining,
        "added_by_command": summary.name in added,
    }


def cluster_change(
    name: str, state: Literal["added", "draining", "resumed", "removed"], remaining: Remaining, by_command: bool
) -> answers.ClusterChangeAnswer:
    """Answer with the change of a cluster, and with what koalapy has there."""
    return {
        "schema": "koala.cluster/1",
        "cluster": name,
        "state": state,
        "left": {
            "jobs": [*remaining.living],
            "pending_cancels": remaining.pending_cancels,
            "collecting": [*remaining.collecting],
            "naming": [*remaining.naming],
            "text": str(remaining) if remaining else "",
        },
        "added_by_command": by_command,
    }


def cluster_troubles(reports: Iterable[ClusterReport]) -> list[str]:
    """Sentences on clusters that cannot be used, have silent components, or reported on other clusters' attempts."""
    clusters = list(reports)
    unusable = [f"{each.summary.name}: {each.summary.trouble}" for each in clusters if each.summary.trouble]
    silent = [_silence(each.summary.name, each.silent) for each in clusters if each.silent]
    return unusable + silent + [_foreign_reports(each.summary.name, each.foreign) for each in clusters if each.foreign]


def _silent(engine: Engine, cluster: str) -> Silence | None:
    """Return the silent components on a cluster, or None if there are none."""
    found = [attempt for attempt in engine.records.live(cluster) if attempt.is_silent]
    instants = [attempt.silent_since for attempt in found if attempt.silent_since is not None]
    if not instants:
        return None
    jobs = sorted({JobId(attempt.owner.id) for attempt in found})
    return Silence(len(found), tuple(jobs), min(instants))


def _age(now: Instant, summary: ClusterSummary) -> int | None:
    return None if summary.state is None else max(0, now - summary.state.measured_at)


def _silence(name: str, silent: Silence) -> str:
    components = "1 running component" if silent.components == 1 else f"{silent.components} running components"
    jobs = ", ".join(map(str, silent.jobs[:_JOBS])) + (", ..." if len(silent.jobs) > _JOBS else "")
    since = f"since {format_instant(silent.since)}{'' if silent.components == 1 else ' or later'}"
    return (
        f"{name}: There is no sign of life of {components} (job{'' if len(silent.jobs) == 1 else 's'} {jobs}) {since}. "
        f"`koala explain` shows what its batch system reports."
    )


def _foreign_reports(name: str, foreign: Foreign) -> str:
    times = "once" if foreign.count == 1 else f"{foreign.count} times"
    return (
        f"{name}: It has reported {times} on attempts that are not on it; this was ignored (last: {foreign.last}). "
        f"Check which program runs as the KCM there, and who can write to its shared directory."
    )
