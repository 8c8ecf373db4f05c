"""Reactions to a cluster that joins, leaves, is connected, lost, measured or asked for its accounting."""

from dataclasses import replace

from koalapy.attempts import missing
from koalapy.attempts.attempt_end import end_attempt
from koalapy.attempts.cancel import clean_up
from koalapy.attempts.directories import remove_directory
from koalapy.coallocation import barrier
from koalapy.core.core import Core
from koalapy.core.due import LEASES
from koalapy.model.attempt import Attempt
from koalapy.model.errors import Reason
from koalapy.model.events import (
    AdsCompared,
    AttemptsAccounted,
    ClusterChanged,
    ClusterConnected,
    ClusterJoined,
    ClusterLeft,
    ClusterLost,
    ClusterMeasured,
    MeasurementFailed,
)
from koalapy.model.facts import CameToBarrier
from koalapy.model.history import HistoryKind
from koalapy.model.units import Instant


def on_joined(core: Core, now: Instant, event: ClusterJoined) -> None:
    """Add the cluster, on which jobs are placed once it is connected and measured.

    Attempts that a former grid file's cluster of this name had are known again.
    """
    if event.settings.name in core.information.clusters:
        return
    core.mark_dirty()
    core.departed.pop(event.settings.name, None)
    core.settings = replace(core.settings, clusters=(*core.settings.clusters, event.settings))
    core.information.join(event.settings)
    core.recalled.join(event.settings.name)
    core.due.wake(LEASES)  # that of the cluster may be over meanwhile
    _enter_attempts(core, event.settings.name)


def on_changed(core: Core, now: Instant, event: ClusterChanged) -> None:
    """Replace the settings of the cluster. One that has left meanwhile stays away."""
    if event.settings.name not in core.information.clusters:
        return
    core.mark_dirty()
    name = event.settings.name
    kept = (event.settings if each.name == name else each for each in core.settings.clusters)
    core.settings = replace(core.settings, clusters=tuple(kept))
    core.information.change(event.settings)
    _enter_attempts(core, name)
    core.mark_nodes_changed()


def on_left(core: Core, now: Instant, event: ClusterLeft) -> None:
    """Drop the cluster. Its attempts are lost at once, and its pending cancels are given up."""
    name = event.name
    if name not in core.information.clusters:
        return
    core.mark_dirty()
    barrier.end_session(core, name)
    reason = Reason("cluster_left", "transient", "It was lost: its cluster has left the grid.", "")
    for attempt in core.records.live(name):
        if not attempt.state.ended:
            end_attempt(core, now, attempt, {"ended_at": now}, reason)
        clean_up(core, now, attempt)
    superseded: list[Attempt] = []
    for attempt in [each for each in core.records.pending_cancels.values() if each.cluster == name]:
        if attempt.id not in core.records.jobless:
            core.records.note_attempt(now, attempt.id, name, HistoryKind.CANCEL_GIVEN_UP, batch_id=attempt.batch_id)
        core.records.clean_up(attempt, now)
        superseded += [attempt] if attempt.superseded else []
    core.settings = replace(core.settings, clusters=tuple(each for each in core.settings.clusters if each.name != name))
    core.forget_cluster(name)
    for attempt in superseded:
        remove_directory(core, attempt)


def on_connected(core: Core, now: Instant, event: ClusterConnected) -> None:
    """Begin a session with a cluster, or note another report of the KCM in the present session."""
    core.mark_dirty()  # jobs that waited for its answer, and those that others now pass, may be placed
    again = core.information.is_connected(event.cluster)
    core.information.connected(event.cluster, event.version, event.machine)
    core.startup_gate.reached(event.cluster)
    if event.recalled is not None:
        core.recalled.add(event.cluster, event.recalled)
    core.mark_cluster_dirty(event.cluster)
    if not again:
        barrier.end_session(core, event.cluster)
        came = [core.records.attempt(each) for each in core.came_before.pop(event.cluster, ())]
        for each in filter(None, came):
            core.derive(CameToBarrier(attempt=each.id, owner=each.owner_kind))
        missing.asked_anew(core, now, event.cluster)
    core.sessions.new_session(event.cluster)
    core.poll_urgency.forget(event.cluster)


def on_lost(core: Core, now: Instant, event: ClusterLost) -> None:
    """End the session: released attempts there are unknown until the cluster answers again."""
    core.mark_dirty()
    core.information.lost(event.cluster, event.reason)
    core.startup_gate.reached(event.cluster)
    barrier.end_session(core, event.cluster)
    core.came_before.pop(event.cluster, None)
    missing.out_of_reach(core, now, event.cluster)


def on_measured(core: Core, now: Instant, event: ClusterMeasured) -> None:
    """Take over the measurement: idle processors may have changed."""
    core.mark_dirty()
    core.information.measured(event.cluster, event.state)


def on_measurement_failed(core: Core, now: Instant, event: MeasurementFailed) -> None:
    """Mark the cluster as not usable: other jobs may pass those that wait for it."""
    core.mark_dirty()
    core.information.measurement_failed(event.cluster, event.reason)


def on_ads_compared(core: Core, now: Instant, event: AdsCompared) -> None:
    """Enter the answers: other clusters may suit the waiting jobs."""
    core.matching.take(now, event.answers)
    core.mark_dirty()


def on_accounted(core: Core, now: Instant, event: AttemptsAccounted) -> None:
    """Replace the estimated usage of attempts by the batch system's accounting."""
    for span in event.spans:
        core.records.account(replace(span, cluster=event.cluster))


def _enter_attempts(core: Core, cluster: str) -> None:
    """Enter the attempts that live on the cluster into its commitments, by its present settings."""
    for attempt in core.records.live(cluster):
        core.information.commitments.began(core.records.jobs.get(attempt.id.job), attempt)
