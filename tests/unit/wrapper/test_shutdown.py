"""The wrapper's shutdown: it writes its exit record, reports its end, then leaves, and waits for each for a while."""

from koalapy_adapters.clock import SECOND
from koalapy_adapters.messages.kcm import Report
from koalapy_adapters.wrapper import events as e
from koalapy_adapters.wrapper.shutdown import Shutdown

ENDED = Report("k00000000000001", "17", "ended", [], ending="exited", exit_status=3)
BEGAN = 1000 * SECOND


def begun(second: bool = False) -> Shutdown:
    shutdown = Shutdown(ENDED, BEGAN, second)
    assert shutdown.write() == [e.WriteRecord(ENDED, only_if_none=second)]
    return shutdown


def test_an_end_is_reported_once_it_is_recorded_and_the_wrapper_leaves_at_once() -> None:
    shutdown = begun()
    assert shutdown.leave(BEGAN, relay=True) == []
    assert shutdown.written(relay=True) == [e.SendReport(ENDED)]
    assert shutdown.leave(BEGAN, relay=True) == [e.Leave(3)]


def test_a_missing_relay_is_waited_for_but_not_for_long() -> None:
    for second, patience in ((False, SECOND), (True, 5 * SECOND)):
        shutdown = begun(second)
        assert shutdown.written(relay=False) == []
        assert shutdown.next_wakeup() == BEGAN + patience
        assert shutdown.leave(BEGAN + patience - 1, relay=False) == []
        assert shutdown.leave(BEGAN + patience, relay=False) == [e.Leave(1 if second else 3)]


def test_a_second_start_reports_only_as_it_leaves() -> None:
    shutdown = begun(second=True)
    assert shutdown.written(relay=True) == []
    assert shutdown.leave(BEGAN, relay=True) == [e.SendReport(ENDED), e.Leave(1)]


def test_an_end_that_cannot_be_recorded_is_reported_and_its_record_tried_again() -> None:
    shutdown = begun()
    assert shutdown.not_written(BEGAN, relay=True) == [e.SendReport(ENDED)]
    assert shutdown.next_wakeup() == BEGAN + SECOND
    assert shutdown.overdue(BEGAN + SECOND, relay=True) == [e.WriteRecord(ENDED, only_if_none=False)]
    assert shutdown.leave(BEGAN + 60 * SECOND - 1, relay=True) == []
    assert shutdown.leave(BEGAN + 60 * SECOND, relay=True) == [e.Leave(3)]


def test_a_disk_that_hangs_delays_the_report_by_seconds() -> None:
    shutdown = begun()
    assert shutdown.next_wakeup() == BEGAN + 5 * SECOND
    assert shutdown.overdue(BEGAN + 5 * SECOND, relay=True) == [e.SendReport(ENDED)]
    assert shutdown.is_settled
    assert shutdown.leave(BEGAN + 5 * SECOND, relay=True) == []
    assert shutdown.next_wakeup() == BEGAN + 60 * SECOND


def test_the_batch_job_of_a_killed_program_fails() -> None:
    shutdown = Shutdown(ENDED._replace(ending="killed", exit_status=0), BEGAN, second=False, recorded=True)
    assert shutdown.is_settled
    assert shutdown.leave(BEGAN, relay=True) == [e.Leave(1)]
