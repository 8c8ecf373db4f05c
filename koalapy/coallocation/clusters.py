"""Reactions to a cluster that is connected, lost, measured or asked for its accounting."""

from dataclasses import replace

from koalapy.attempts import missing
from koalapy.coallocation import barrier
from koalapy.core.core import Core
from koalapy.model.events import AttemptsAccounted, ClusterConnected, ClusterLost, ClusterMeasured, MeasurementFailed
from koalapy.model.facts import CameToBarrier
from koalapy.model.units import Instant


def on_connected(core: Core, now: Instant, event: ClusterConnected) -> None:
    """Begin a session with a cluster, or note another report of the KCM in the present session."""
    again = core.information.is_connected(event.cluster)
    core.information.connected(event.cluster, event.version)
    core.startup_gate.reached(event.cluster)
    if event.recalled is not None:
        core.recalled.add(event.cluster, event.recalled)
    core.mark_cluster_dirty(event.cluster)
    if not again:
        barrier.end_session(core, event.cluster)
        core.facts += [CameToBarrier(attempt=attempt) for attempt in core.came_before.pop(event.cluster, ())]
        missing.asked_anew(core, now, event.cluster)
    core.sessions.new_session(event.cluster)
    core.poll_urgency.connected(event.cluster)


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


def on_accounted(core: Core, now: Instant, event: AttemptsAccounted) -> None:
    """Replace the estimated usage of attempts by the batch system's accounting."""
    for span in event.spans:
        core.records.account(replace(span, cluster=event.cluster))
