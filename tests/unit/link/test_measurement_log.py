"""The lines of koalad's log about measurements of a cluster that fail."""

from typing import Any

import structlog
from koalapy_adapters.batch.classify import unreadable
from koalapy_adapters.errors import Result

from koalapy.link.translate import reason_of_error
from koalapy.model.cluster import ClusterState
from koalapy.model.errors import Reason
from koalapy.model.events import ClusterMeasured, Event, MeasurementFailed
from koalapy.model.units import Instant
from koalapy.runtime.cluster_link.link import MeasurementLog

STATE = ClusterState(measured_at=Instant(5), total=4, idle=4, ours=0, others=0, waiting_local=0)
MEASURED = ClusterMeasured(cluster="delft", state=STATE)
NO_ENVIRONMENT = Result(["qconf", "-sp", "mpi"], 0, "pe_name mpi\nslots", "")
DOWN = Reason("unreachable", "cluster", "The qmaster is down.", "Wait.", "qstat -f", 1, "commlib error")


def failed(reason: Reason) -> MeasurementFailed:
    return MeasurementFailed(cluster="delft", reason=reason)


def logged(*events: Event) -> list[Any]:
    log = MeasurementLog("delft")
    with structlog.testing.capture_logs() as lines:
        for event in events:
            log.log([event])
    return list(lines)


def test_the_begin_and_the_end_of_failed_measurements_are_logged_with_the_commands_output() -> None:
    why = reason_of_error(unreadable(NO_ENVIRONMENT, "printed no parallel environment"))
    began, ended = logged(MEASURED, failed(why), failed(why), MEASURED, MEASURED)
    assert (began["event"], began["log_level"], began["cluster"]) == ("cluster_unmeasured", "warning", "delft")
    assert (began["command"], began["exit_status"], began["output"]) == ("qconf -sp mpi", 0, "pe_name mpi; slots")
    assert "no parallel environment" in began["reason"]
    assert "as a bug" not in began["reason"], "it may pass by itself"
    assert (ended["event"], ended["cluster"], ended["after"]) == ("cluster_measured", "delft", "unreadable_answer")


def test_each_kind_of_failure_is_logged_once_and_its_end_once() -> None:
    why = reason_of_error(unreadable(NO_ENVIRONMENT, "printed no parallel environment"))
    events = [each["event"] for each in logged(*[failed(why)] * 9, *[failed(DOWN)] * 9, MEASURED, failed(DOWN))]
    assert events == ["cluster_unmeasured", "cluster_unmeasured", "cluster_measured", "cluster_unmeasured"]


def test_the_words_of_a_cluster_have_a_bound_in_the_log() -> None:
    huge = Reason("odd", "ours", "x" * 1_000_000, "", "y" * 1_000_000, 1, "z" * 1_000_000)
    (line,) = logged(failed(huge))
    assert len(str(line)) < 4000
