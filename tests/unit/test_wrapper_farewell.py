"""The wrapper's farewell: the record first, then the word, then it leaves; and for how long it waits for each."""

from koalapy_adapters.clock import SECOND
from koalapy_adapters.messages import Report
from koalapy_adapters.wrapper import events as e
from koalapy_adapters.wrapper.shutdown import Farewell

ENDED = Report("k00000000000001", "17", "ended", [], ending="exited", exit_status=3)
BEGAN = 1000 * SECOND


def begun(second: bool = False) -> Farewell:
    farewell = Farewell(ENDED, BEGAN, second)
    assert farewell.write() == [e.WriteRecord(ENDED, only_if_none=second)]
    return farewell


def test_it_is_said_when_it_is_recorded_and_left_at_once() -> None:
    farewell = begun()
    assert farewell.leave(BEGAN, relay=True) == []
    assert farewell.written(relay=True) == [e.SayReport(ENDED)]
    assert farewell.leave(BEGAN, relay=True) == [e.Leave(3)]


def test_a_relay_that_is_not_there_is_waited_for_but_not_for_long() -> None:
    for second, patience in ((False, SECOND), (True, 5 * SECOND)):
        farewell = begun(second)
        assert farewell.written(relay=False) == []
        assert farewell.next_wakeup() == BEGAN + patience
        assert farewell.leave(BEGAN + patience - 1, relay=False) == []
        assert farewell.leave(BEGAN + patience, relay=False) == [e.Leave(1 if second else 3)]


def test_a_second_start_says_it_only_as_it_leaves() -> None:
    farewell = begun(second=True)
    assert farewell.written(relay=True) == []
    assert farewell.leave(BEGAN, relay=True) == [e.SayReport(ENDED), e.Leave(1)]


def test_what_cannot_be_recorded_is_said_all_the_same_and_tried_again() -> None:
    farewell = begun()
    assert farewell.not_written(BEGAN, relay=True) == [e.SayReport(ENDED)]
    assert farewell.next_wakeup() == BEGAN + SECOND
    assert farewell.overdue(BEGAN + SECOND, relay=True) == [e.WriteRecord(ENDED, only_if_none=False)]
    assert farewell.leave(BEGAN + 60 * SECOND - 1, relay=True) == []
    assert farewell.leave(BEGAN + 60 * SECOND, relay=True) == [e.Leave(3)]


def test_a_disk_that_hangs_delays_what_is_said_by_seconds() -> None:
    farewell = begun()
    assert farewell.next_wakeup() == BEGAN + 5 * SECOND
    assert farewell.overdue(BEGAN + 5 * SECOND, relay=True) == [e.SayReport(ENDED)]
    assert farewell.is_settled
    assert farewell.leave(BEGAN + 5 * SECOND, relay=True) == []
    assert farewell.next_wakeup() == BEGAN + 60 * SECOND


def test_a_program_that_was_killed_is_no_success_of_the_batch_job() -> None:
    farewell = Farewell(ENDED._replace(ending="killed", exit_status=0), BEGAN, second=False, recorded=True)
    assert farewell.is_settled
    assert farewell.leave(BEGAN, relay=True) == [e.Leave(1)]
