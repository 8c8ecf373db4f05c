"""The driver's knowledge of clusters without a store: the events for a new engine, and sessions that have ended."""

from koalapy.driver.last_known import LastKnown
from koalapy.model.cluster import ClusterState
from koalapy.model.errors import Reason
from koalapy.model.events import (
    CancelRequested,
    ClusterConnected,
    ClusterLeft,
    ClusterLost,
    ClusterMeasured,
    Event,
    MeasurementFailed,
)
from koalapy.model.identity import AttemptId, JobId, origin_of_site
from koalapy.model.units import Instant

WHY = Reason("gone", "transient", "It is gone.", "Wait.")
CONNECTED = ClusterConnected(cluster="a", version="1")
RECALLED = ClusterConnected(cluster="a", version="1", recalled=(AttemptId(JobId(1), 0, 1),))
STATE = ClusterState(measured_at=Instant(1000), total=8, idle=8, ours=0, others=0, waiting_local=0)
MEASURED = ClusterMeasured(cluster="a", state=STATE)
FAILED = MeasurementFailed(cluster="a", reason=WHY)
LOST = ClusterLost(cluster="a", reason=WHY)


def after(*events: Event, left: tuple[str, ...] = ()) -> LastKnown:
    known = LastKnown()
    known.learn(events, None, left)
    return known


def test_the_newest_measurement_of_a_connected_cluster_is_kept() -> None:
    assert after(CONNECTED, MEASURED, CancelRequested(JobId(1)), FAILED).of("a") == (CONNECTED, FAILED)


def test_a_new_connection_ends_what_was_measured_and_keeps_what_was_recalled() -> None:
    assert after(RECALLED, MEASURED, CONNECTED).of("a") == (RECALLED, CONNECTED)
    assert after(RECALLED, RECALLED, CONNECTED).of("a") == (RECALLED, CONNECTED)


def test_nothing_else_is_known_of_a_lost_cluster() -> None:
    known = after(CONNECTED, MEASURED, LOST)
    assert known.of("a") == (LOST,)
    assert known.is_lost("a")
    assert not known.is_lost("b")


def test_nothing_is_known_of_a_cluster_that_has_left() -> None:
    assert after(CONNECTED, ClusterLeft(name="a")).clusters == []
    assert after(ClusterLeft(name="a"), MEASURED, left=("a",)).of("a") == ()


def test_all_sessions_up_to_the_one_that_ended_are_over() -> None:
    known = LastKnown()
    assert not known.has_ended(("a", 0))
    known.learn((CONNECTED,), ("a", 3), ())
    known.end_newest("a")
    assert known.has_ended(("a", 2))
    assert known.has_ended(("a", 3))
    assert not known.has_ended(("a", 4))
    assert not known.has_ended(("b", 1))
    known.end({"b": 5})
    assert known.has_ended(("b", 5))


def test_a_quarantined_cluster_counts_as_lost_with_sessions_that_brought_nothing_yet() -> None:
    known = after(CONNECTED, MEASURED)
    known.quarantine("a", WHY, [7])
    assert known.of("a") == (LOST,)
    assert known.has_ended(("a", 7))


def test_a_quarantined_site_is_no_cluster() -> None:
    known, site = LastKnown(), origin_of_site("delft")
    known.learn((), (site, 2), ())
    known.quarantine(site, WHY, [])
    assert known.clusters == []
    assert known.has_ended((site, 2))
