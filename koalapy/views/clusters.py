"""`koala clusters`: the engine's knowledge of each cluster, and its troubles in sentences."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from koalapy.core.foreign import Foreign
from koalapy.engine import Engine
from koalapy.information.kis import ClusterSummary, Known
from koalapy.model.identity import JobId
from koalapy.model.units import Instant, format_instant
from koalapy.views.sweeps import scavenged

Connection = Literal["up", "down", "connecting", "login_required"]
_CONNECTION_BY_TROUBLE: dict[str, Connection] = {
    "connecting": "connecting",
    "asks": "login_required",
    "answer_refused": "login_required",
}
_JOBS = 5  # listed in a sentence


@dataclass(frozen=True, slots=True)
class Silent:
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
    silent: Silent | None = None

    @property
    def connection(self) -> Connection:
        """Whether koalad is connected; else `login_required` if a person must log in."""
        if self.known.connected:
            return "up"
        trouble = self.known.trouble
        return _CONNECTION_BY_TROUBLE.get(trouble.code, "down") if trouble else "down"


def cluster_reports(engine: Engine, now: Instant) -> list[ClusterReport]:
    """Describe each cluster of the grid between two batches of events."""
    taken, known = scavenged(engine.records.jobs.values()), engine.core.information.clusters
    foreign = engine.core.foreign.foreign
    return [
        ClusterReport(
            known[summary.name], summary, _age(now, summary), taken.get(summary.name, 0), foreign.get(summary.name),
            _silent(engine, summary.name),
        )
        for summary in engine.summaries(now)
    ]  # fmt: skip


def cluster_troubles(reports: Iterable[ClusterReport]) -> list[str]:
    """Sentences on clusters that cannot be used, have silent components, or reported on other clusters' attempts."""
    clusters = list(reports)
    unusable = [f"{each.summary.name}: {each.summary.trouble}" for each in clusters if each.summary.trouble]
    silent = [_silence(each.summary.name, each.silent) for each in clusters if each.silent]
    return unusable + silent + [_foreign_reports(each.summary.name, each.foreign) for each in clusters if each.foreign]


def _silent(engine: Engine, cluster: str) -> Silent | None:
    """Return the silent components on a cluster, or None if there are none."""
    found = [attempt for attempt in engine.records.live(cluster) if attempt.is_silent]
    instants = [attempt.silent_since for attempt in found if attempt.silent_since is not None]
    if not instants:
        return None
    owners = (engine.records.jobs[attempt.id.job] for attempt in found)
    jobs = sorted({job.pilot.sweep if job.pilot is not None else job.id for job in owners})
    return Silent(len(found), tuple(jobs), min(instants))


def _age(now: Instant, summary: ClusterSummary) -> int | None:
    return None if summary.state is None else max(0, now - summary.state.measured_at)


def _silence(name: str, silent: Silent) -> str:
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
