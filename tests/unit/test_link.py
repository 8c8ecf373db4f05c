"""The link to a real KCM over the embedded queue: commands, confirmations, and every way to lose each other."""

import itertools
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import linked
import pytest
from koalapy_adapters.errors import ClusterError as SiteFault
from koalapy_adapters.errors import TransientError as Passing
from koalapy_adapters.messages import Stat

from koalapy.driver import host_slept
from koalapy.model.commands import CancelAttempt, ForgetAttempt, WatchCluster
from koalapy.model.errors import TransientError
from koalapy.model.events import (
    AttemptCleanedUp,
    AttemptForgotten,
    AttemptSubmitted,
    BatchStatusSeen,
    ClusterConnected,
    ClusterLost,
    ClusterMeasured,
    MeasurementFailed,
    SubmissionFailed,
    WrapperReported,
)
from koalapy.model.identity import AttemptId, InstanceId, JobId, tag_of
from koalapy.model.units import MINUTE, SECOND, Duration

Haven = linked.Haven
wait_until = linked.wait_until


@pytest.fixture
def haven(tmp_path: Path) -> Iterator[Any]:
    made = Haven(tmp_path)
    yield made
    made.close()


def stat(haven: Any, attempt: AttemptId, *paths: str) -> Any:
    """The sizes of those that there are."""
    tag = tag_of(linked.INSTANCE, attempt)
    return haven.link.ask(lambda number: Stat(number, tag, list(paths)), linked.PATIENCE_S).details


# ---- commands and what confirms them


def test_a_component_from_submit_to_forget(haven: Any) -> None:
    haven.start()
    command = haven.submit_of("echo out of $KOALA_RANK; echo oops >&2; exit 3")
    number = haven.send(command)
    submitted, delivery = haven.ear.delivery(AttemptSubmitted)
    assert (submitted.attempt, delivery.confirmed) == (command.attempt, (number,))
    assert submitted.batch_id
    barrier = haven.reported(command.attempt, "at_barrier")
    assert [node.processes for node in barrier.nodes] == [1]
    assert haven.release(command.attempt) in haven.ear.confirmed(2).confirmed
    ended = haven.reported(command.attempt, "ended")
    assert (ended.ending, ended.exit_status) == ("exited", 3)
    assert b"".join(haven.link.fetch(command.attempt, "output")) == b"out of 0\n"
    assert b"".join(haven.link.fetch(command.attempt, "errors")) == b"oops\n"
    forgotten = haven.ear.confirmed(haven.send(ForgetAttempt(cluster="here", attempt=command.attempt)))
    assert forgotten.events == (AttemptForgotten(cluster="here", attempt=command.attempt),)
    assert not haven.attempt_directory(command.attempt).exists()


def test_instants_are_of_our_clock_and_in_order(haven: Any) -> None:
    haven.start()
    before = haven.clock.now()
    command = haven.submit_of("sleep 0.2")
    barrier = haven.at_barrier(command)
    seen = haven.ear.event(BatchStatusSeen, lambda event: event.attempt == command.attempt)
    assert before <= seen.at <= haven.clock.now()
    haven.ear.confirmed(haven.release(command.attempt))
    ended = haven.reported(command.attempt, "ended")
    told = [before, ended.at_barrier_at, ended.released_at, ended.started_at, ended.ended_at, haven.clock.now()]
    assert told == sorted(told)
    assert abs(ended.at_barrier_at - barrier.at_barrier_at) < SECOND
    measured = haven.ear.events(ClusterMeasured)[0].state
    assert abs(measured.measured_at - before) < MINUTE
    assert (measured.total, measured.idle) == (2, 2)


def test_events_are_acknowledged_and_not_said_again(haven: Any) -> None:
    haven.start()
    haven.run(haven.submit_of())
    numbers = [each.acknowledge[2] for each in haven.ear.deliveries if each.acknowledge is not None]
    assert numbers == list(range(1, len(numbers) + 1))
    assert {each.acknowledge[:2] for each in haven.ear.deliveries if each.acknowledge} == {("here", 1)}


def test_a_cancel_is_confirmed_when_nothing_is_left(haven: Any) -> None:
    haven.start()
    command = haven.submit_of("sleep 600")
    haven.at_barrier(command)
    haven.ear.confirmed(haven.release(command.attempt))
    haven.reported(command.attempt, "running")
    number = haven.send(CancelAttempt(cluster="here", attempt=command.attempt, batch_id=""))
    gone, delivery = haven.ear.delivery(AttemptCleanedUp)
    assert (gone.attempt, delivery.confirmed) == (command.attempt, (number,))
    assert delivery.acknowledge is not None
    assert haven.reported(command.attempt, "ended").ending == "cancelled"


def test_a_cancel_confirms_what_was_asked_before_it(haven: Any) -> None:
    """A release that no wrapper was there to hear has no object any more."""
    haven.start()
    filler = haven.submit_of("true", processors=2)
    haven.at_barrier(filler)
    command = haven.submit_of("true")
    haven.send(command)
    haven.ear.event(AttemptSubmitted, lambda event: event.attempt == command.attempt)
    release = haven.release(command.attempt)
    cancel = haven.send(CancelAttempt(cluster="here", attempt=command.attempt, batch_id=""))
    _, delivery = haven.ear.delivery(AttemptCleanedUp)
    assert set(delivery.confirmed) == {release, cancel}


def test_a_cancel_of_what_was_never_submitted(haven: Any) -> None:
    haven.start()
    attempt = AttemptId(JobId(99), 0, 1)
    number = haven.send(CancelAttempt(cluster="here", attempt=attempt, batch_id=""))
    assert haven.ear.confirmed(number).events == (AttemptCleanedUp(cluster="here", attempt=attempt),)


def test_a_refused_submit_is_a_failure_with_the_batch_systems_reason(haven: Any) -> None:
    haven.start()
    command = haven.submit_of(processors=5)
    number = haven.send(command)
    failed, delivery = haven.ear.delivery(SubmissionFailed)
    assert (failed.attempt, delivery.confirmed) == (command.attempt, (number,))
    assert failed.reason.whose == "request"
    assert "5" in failed.reason.message


def test_the_same_command_twice_is_done_once(haven: Any) -> None:
    haven.start()
    command = haven.submit_of()
    for doubt in (False, True, True):
        haven.link.send(7, command, doubt)
    haven.reported(command.attempt, "at_barrier")
    assert len(haven.ear.events(AttemptSubmitted)) == 1
    haven._attempts.add(command.attempt)


def test_a_component_too_large_for_the_wire(haven: Any) -> None:
    haven.start()
    number = haven.send(haven.submit_of(environment=(("HUGE", "x" * (1 << 20)),)))
    failed, delivery = haven.ear.delivery(SubmissionFailed)
    assert (failed.reason.code, failed.reason.whose, delivery.confirmed) == ("too_large", "request", (number,))


def test_words_of_other_stores_are_not_for_us(haven: Any, tmp_path: Path) -> None:
    """A stranger's attempt in the same queue: its processors are taken, its name is nothing to us."""
    haven.start()
    command = haven.submit_of("true", processors=2)
    haven.at_barrier(command)
    stranger = Haven(tmp_path, "there")
    stranger.make(instance=InstanceId("zzzzz"))
    stranger.start()
    measured = stranger.ear.event(ClusterMeasured, lambda event: event.state.idle == 0)
    assert measured.state.allocated == ()
    assert not stranger.ear.events(BatchStatusSeen)
    stranger.close()


def test_a_watched_cluster_is_asked_more_often(tmp_path: Path) -> None:
    haven = Haven(tmp_path, poll=600.0)
    haven.link.hint(WatchCluster(cluster="alpha", urgent=True))  # before it is connected: remembered
    haven.start()
    haven.ear.event(ClusterMeasured, after=1 + haven.ear.deliveries.index(haven.ear.delivery(ClusterMeasured)[1]))
    haven.close()


# ---- losing each other


def test_a_kcm_that_dies_is_replaced_and_its_jobs_are_found(haven: Any) -> None:
    haven.start()
    command = haven.submit_of("echo survived")
    batch_id = haven.at_barrier(command).batch_id
    mark = len(haven.ear.deliveries)
    haven.kill_kcm()
    lost = haven.ear.event(ClusterLost, after=mark)
    assert (lost.cluster, lost.reason.whose) == ("here", "transient")
    haven.ear.event(ClusterConnected, after=mark)
    again = haven.send(command, doubt=True)
    submitted, delivery = haven.ear.delivery(AttemptSubmitted, after=mark)
    assert (submitted.batch_id, delivery.confirmed) == (batch_id, (again,))
    haven.ear.confirmed(haven.release(command.attempt))
    assert haven.reported(command.attempt, "ended").exit_status == 0
    epochs = [each.acknowledge[1] for each in haven.ear.deliveries if each.acknowledge is not None]
    assert set(epochs) == {1, 2}
    assert epochs == sorted(epochs)


@pytest.mark.parametrize("relay", ["tcp", "files"])
def test_a_session_that_is_ended_is_begun_anew_and_who_is_at_its_barrier_says_so_again(
    tmp_path: Path, relay: str
) -> None:
    """Though nothing has changed: koalad believes nobody of whom it has not heard since."""
    haven = Haven(tmp_path, relay=relay)
    try:
        command = haven.start().submit_of("exit 0")
        haven.at_barrier(command)
        slept, after = host_slept(MINUTE), len(haven.ear.deliveries)
        assert haven.link.end_session(slept) == 1
        assert haven.ear.event(ClusterLost).reason == slept
        assert haven.ear.delivery(ClusterConnected, after=after)[1].session == ("here", 2)
        again, delivery = haven.ear.delivery(WrapperReported, lambda event: event.phase == "at_barrier", after)
        assert (again.attempt, delivery.session) == (command.attempt, ("here", 2))
        haven.release(command.attempt)
        assert haven.reported(command.attempt, "ended").exit_status == 0
    finally:
        haven.close()


def test_what_is_not_connected_has_no_session_to_end(haven: Any) -> None:
    assert haven.link.end_session(host_slept(MINUTE)) is None


def test_a_kcm_that_falls_silent_is_given_up(haven: Any) -> None:
    """As when its head node is paused: nothing is closed, and nothing is said."""
    haven.make(linked.SOON_GIVEN_UP)
    haven.start()
    mark = len(haven.ear.deliveries)
    haven.kill_kcm(signal.SIGSTOP)
    lost = haven.ear.event(ClusterLost, after=mark)
    assert lost.reason.code == "silent"
    haven.ear.event(ClusterConnected, after=mark)


def test_what_is_sent_while_unconnected_is_dropped(haven: Any) -> None:
    haven.send(haven.submit_of())
    haven.start()
    haven.link.close()
    haven.send(haven.submit_of())
    assert not haven.ear.events(AttemptSubmitted)
    haven._attempts.clear()
    assert (haven.shared / linked.INSTANCE / "stage").iterdir().__class__ is not None


@pytest.mark.parametrize("fault", [Passing, SiteFault], ids=["transient", "cluster"])
def test_a_cluster_out_of_reach_says_why_once(haven: Any, fault: Any) -> None:
    haven.connection.refusal = fault("refused", "fs0 refuses connections.", "Is it up?")
    haven.link.start()
    lost = haven.ear.event(ClusterLost)
    assert (lost.reason.code, lost.reason.message, lost.reason.advice) == (
        "refused",
        "fs0 refuses connections.",
        "Is it up?",
    )
    wait_until(lambda: haven.connection.tries >= 4)
    assert len(haven.ear.events(ClusterLost)) == 1
    status = haven.link.status()
    assert (status.state, status.reason) == ("unreachable", lost.reason)
    haven.connection.refusal = fault("authentication", "fs0 does not let me in.", "Check the key.")
    haven.ear.event(ClusterLost, lambda event: event.reason.code == "authentication")
    haven.connection.refusal = None
    haven.ear.event(ClusterConnected)
    assert haven.link.status().state == "connected"


def test_what_needs_the_cluster_says_that_it_is_out_of_reach(haven: Any) -> None:
    attempt = AttemptId(JobId(1), 0, 1)
    with pytest.raises(TransientError, match="here is not connected"):
        haven.link.ask(lambda number: Stat(number, tag_of(linked.INSTANCE, attempt), ["x"]), 1.0)
    haven.connection.refusal = Passing("refused", "fs0 refuses connections.", "Is it up?")
    haven.link.start()
    haven.ear.event(ClusterLost)
    with pytest.raises(TransientError, match="fs0 refuses connections"):
        list(haven.link.fetch(attempt, "output"))


def test_a_kcm_that_ends_at_once_is_not_started_in_a_tight_loop(haven: Any) -> None:
    """A description that no KCM understands: each one says so and leaves."""
    haven.make(replace(linked.QUICK, retry_first=3600.0, retry_max=3600.0, retry_soon=3600.0))
    haven.link.cluster.config["batch"] = "no-such-batch-system"
    haven.link.start()
    failed = haven.ear.event(MeasurementFailed)
    assert "no-such-batch-system" in failed.reason.message
    lost = haven.ear.event(ClusterLost)
    assert "no-such-batch-system" in lost.reason.message
    assert haven.link._machine.next_wakeup() - haven.clock.now() > MINUTE
    assert haven.connection.tries == 1


def test_a_newer_koalad_takes_over(tmp_path: Path) -> None:
    """The older one's KCM leaves by itself; both stay of one mind about what there is."""
    older, newer = Haven(tmp_path), Haven(tmp_path)
    newer._epochs = itertools.count(100)
    older.start()
    mark = len(older.ear.deliveries)
    newer.start()
    lost = older.ear.event(ClusterLost, after=mark)
    assert "epoch 100" in lost.reason.message
    older.close()
    newer.close()


def test_closing_leaves_jobs_running(haven: Any) -> None:
    haven.start()
    command = haven.submit_of("touch started; while [ ! -e go ]; do sleep 0.02; done; touch done")
    haven.at_barrier(command)
    haven.ear.confirmed(haven.release(command.attempt))
    work = haven.attempt_directory(command.attempt) / "work"
    wait_until((work / "started").exists)
    haven.link.close()
    assert not haven.link._thread.is_alive()
    mark = len(haven.ear.deliveries)
    (work / "go").touch()
    wait_until((work / "done").exists)
    assert not haven.ear.events(ClusterLost), "who leaves is not lost"
    assert len(haven.ear.deliveries) == mark


def test_closing_while_it_connects(tmp_path: Path) -> None:
    haven = Haven(tmp_path)
    haven.link.start()
    haven.link.close()
    haven.link._thread.join(linked.PATIENCE_S)  # a login that takes long goes to its end by itself
    assert not haven.link._thread.is_alive()
    haven.link.close()


def test_closing_a_link_that_never_started(tmp_path: Path) -> None:
    Haven(tmp_path).link.close()


def test_a_mistake_of_ours_is_logged_and_tried_again(haven: Any) -> None:
    haven.connection.refusal = ZeroDivisionError("a mistake")
    haven.link.start()
    wait_until(lambda: haven.connection.tries >= 2)
    haven.connection.refusal = None
    haven.ear.event(ClusterConnected)


# ---- output


def test_following_output_ends_with_the_attempt(haven: Any) -> None:
    haven.start()
    command = haven.submit_of("echo first; while [ ! -e go ]; do sleep 0.02; done; echo last")
    haven.at_barrier(command)
    pieces = filter(None, haven.link.read(command.attempt, "output", {}, True))
    haven.ear.confirmed(haven.release(command.attempt))
    assert next(pieces) == b"[0,6]\nfirst\n"
    (haven.attempt_directory(command.attempt) / "work" / "go").touch()
    assert b"".join(pieces) == b"[0,5]\nlast\n"
    assert b"".join(haven.link.read(command.attempt, "output", {0: 3}, False)) == b"[0,8]\nst\nlast\n"


def test_following_ends_cleanly_when_the_link_is_lost(haven: Any) -> None:
    haven.start()
    command = haven.submit_of("echo first; sleep 600")
    haven.at_barrier(command)
    haven.ear.confirmed(haven.release(command.attempt))
    pieces = filter(None, haven.link.read(command.attempt, "output", {}, True))
    assert next(pieces) == b"[0,6]\nfirst\n"
    haven.kill_kcm()
    with pytest.raises(TransientError):
        list(pieces)


def test_more_output_than_the_credit_lets_pass_at_once(haven: Any) -> None:
    haven.start()
    size = 5 << 20
    command = haven.submit_of(f"head -c {size} /dev/zero | tr '\\0' x")
    haven.run(command)
    pieces = haven.link.fetch(command.attempt, "output")
    first = next(pieces)
    assert stat(haven, command.attempt) == {}, "control passes while a flood waits"
    assert len(first) + sum(map(len, pieces)) == size


def test_a_reader_that_stops_early_blocks_nobody(haven: Any) -> None:
    haven.start()
    command = haven.submit_of("head -c 3000000 /dev/zero; sleep 600")
    haven.at_barrier(command)
    haven.ear.confirmed(haven.release(command.attempt))
    pieces = haven.link.read(command.attempt, "output", {}, True)
    while not next(pieces):
        pass
    pieces.close()
    assert stat(haven, command.attempt, "none") == {}
    readers = [threading.Thread(target=lambda: next(haven.link.fetch(command.attempt, "output"))) for _ in range(8)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(linked.PATIENCE_S)
        assert not reader.is_alive()


def test_a_file_that_is_not_there(haven: Any) -> None:
    haven.start()
    command = haven.submit_of()
    haven.run(command)
    with pytest.raises(Exception, match="left no file") as caught:
        list(haven.link.fetch(command.attempt, "work", "none"))
    assert caught.value.reason.code == "no_such_file"  # type: ignore[attr-defined]


# ---- keys, clock and status


def test_keys_come_from_the_program_and_go_to_it(haven: Any) -> None:
    haven.start()
    command = haven.submit_of('"$KOALA_RENDEZVOUS" put mine 1; "$KOALA_RENDEZVOUS" get theirs')
    haven.at_barrier(command)
    haven.link.put(command.attempt, "theirs", "ünï 2")
    haven.ear.confirmed(haven.release(command.attempt))
    assert haven.reported(command.attempt, "ended").exit_status == 0
    assert b"".join(haven.link.fetch(command.attempt, "output")).strip() == "ünï 2".encode()
    assert haven.put == [(command.attempt, "mine", "1")]


def test_the_status_names_what_is_at_the_other_end(haven: Any) -> None:
    assert haven.link.status().state == "connecting"
    haven.start()
    status = haven.link.status()
    assert (status.cluster, status.state, status.reason) == ("here", "connected", None)
    assert status.host
    assert status.version
    wait_until(lambda: haven.link.status().cost > 0)


def test_a_kcm_whose_clock_is_wrong(haven: Any) -> None:
    """Ours may be: an hour between the two clocks is told apart by the round trips."""
    hour = Duration(3600 * SECOND)
    real = haven.clock.now
    haven.clock.now = lambda: real() - hour
    haven.make()
    before = haven.clock.now()
    haven.start()
    ended = haven.run(haven.submit_of())
    assert before < ended.at_barrier_at < ended.ended_at < haven.clock.now()


def test_the_attempts_that_koalad_knows_are_watched_from_the_start(haven: Any) -> None:
    haven.start()
    command = haven.submit_of("exit 5")
    haven.at_barrier(command)
    haven.ear.confirmed(haven.release(command.attempt))
    haven.link.close()
    record = haven.attempt_directory(command.attempt) / "record.json"
    wait_until(record.exists)
    mark = len(haven.ear.deliveries)
    haven.make().start()
    haven.ear.event(ClusterConnected, after=mark)
    assert haven.reported(command.attempt, "ended").exit_status == 5
    assert tag_of(linked.INSTANCE, command.attempt) in str(record)
