"""What is told of each cluster to whoever asks: of the engine's own state, between two batches."""

from dataclasses import dataclass

from koalapy.coallocation.speaking import Foreign
from koalapy.engine import Engine
from koalapy.information.kis import Known, View
from koalapy.model.identity import JobId
from koalapy.model.units import Instant
from koalapy.runtime.sweeps import scavenged


@dataclass(frozen=True, slots=True)
class Silent:
    """Running components of which nothing is heard: of these jobs and sweeps, since this instant or later."""

    components: int
    jobs: tuple[JobId, ...]
    since: Instant


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """One cluster for `koala clusters`."""

    known: Known
    view: View
    age: int | None  # microseconds since the measurement
    scavenged: int = 0  # processors that Launchers have
    foreign: Foreign | None = None  # what it has said of what is not its own
    silent: Silent | None = None


def cluster_reports(engine: Engine, now: Instant) -> list[ClusterReport]:
    taken, known = scavenged(engine.records.jobs.values()), engine.known.clusters
    foreign = engine.speaking.foreign
    return [
        ClusterReport(
            known[view.name], view, _age(now, view), taken.get(view.name, 0), foreign.get(view.name),
            _silent(engine, view.name),
        )
        for view in engine.views(now)
    ]  # fmt: skip


def _silent(engine: Engine, cluster: str) -> Silent | None:
    """None where something is heard of all."""
    found = [(job, component) for job, component in engine.records.live(cluster) if component.is_silent]
    instants = [component.silent_since for _, component in found if component.silent_since is not None]
    if not instants:
        return None
    jobs = sorted({job.glide.sweep if job.glide is not None else job.id for job, _ in found})
    return Silent(len(found), tuple(jobs), min(instants))


def _age(now: Instant, view: View) -> int | None:
    return None if view.state is None else max(0, now - view.state.measured_at)
