"""The link to a real KCM over the embedded queue: commands, confirmations, and every kind of loss."""

import itertools
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import linked
import pytest
import structlog
from koalapy_adapters.errors import ClusterError as WireClusterError
from koalapy_adapters.errors import TransientError as WireTransientError
from koalapy_adapters.messages.files import Stat

from koalapy.driver.driver import host_slept
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

LinkTestbed = linked.LinkTestbed
threads_of, wait_until = linked.threads_of, linked.wait_until


@pytest.fixture
def testbed(tmp_path: Path) -> Iterator[Any]:
    made = LinkTestbed(tmp_path)
    yield made
    made.close()


def stat(testbed: Any, attempt: AttemptId, *paths: str) -> Any:
    """The sizes of the files that exist, by path."""
    tag = tag_of(linked.INSTANCE, attempt)
    return testbed.link.ask(lambda number: Stat(number, tag, list(paths)), linked.PATIENCE_S).details


# ---- commands and their confirmations


def test_a_component_is_submitted_released_and_forgotten(testbed: Any) -> None:
    testbed.start()
    command = testbed.submit_command("echo out of $KOALA_RANK; echo oops >&2; exit 3")
    number = testbed.send(command)
    submitted, delivery = testbed.recorder.delivery(AttemptSubmitted)
    assert (submitted.attempt, delivery.confirmed) == (command.attempt, (number,))
    assert submitted.batch_id
    barrier = testbed.reported(command.attempt, "at_barrier")
    assert [node.processes for node in barrier.nodes] == [1]
    assert testbed.release(command.attempt) in testbed.recorder.confirmed(2).confirmed
    ended = testbed.reported(command.attempt, "ended")
    assert (ended.ending, ended.exit_status) == ("exited", 3)
    assert b"".join(testbed.link.fetch(command.attempt, "output")) == b"out of 0\n"
    assert b"".join(testbed.link.fetch(command.attempt, "errors")) == b"oops\n"
    forgotten = testbed.recorder.confirmed(testbed.send(ForgetAttempt(cluster="here", attempt=command.attempt)))
    assert forgotten.events == (AttemptForgotten(cluster="here", attempt=command.attempt),)
    assert not testbed.attempt_directory(command.attempt).exists()


def test_instants_are_in_koalad_s_clock_and_in_order(testbed: Any) -> None:
    testbed.start()
    before = testbed.clock.now()
    command = testbed.submit_command("sleep 0.2")
    barrier = testbed.at_barrier(command)
    seen = testbed.recorder.event(BatchStatusSeen, lambda event: event.attempt == command.attempt)
    assert before <= seen.at <= testbed.clock.now()
    testbed.recorder.confirmed(testbed.release(command.attempt))
    ended = testbed.reported(command.attempt, "ended")
    instants = [before, ended.at_barrier_at, ended.released_at, ended.started_at, ended.ended_at, testbed.clock.now()]
    assert instants == sorted(instants)
    assert abs(ended.at_barrier_at - barrier.at_barrier_at) < SECOND
    measured = testbed.recorder.events(ClusterMeasured)[0].state
    assert abs(measured.measured_at - before) < MINUTE
    assert (measured.total, measured.idle) == (2, 2)


def test_acknowledged_events_are_not_repeated(testbed: Any) -> None:
    testbed.start()
    testbed.run(testbed.submit_command())
    numbers = [each.acknowledge[2] for each in testbed.recorder.deliveries if each.acknowledge is not None]
    assert numbers == list(range(1, len(numbers) + 1))
    assert {each.acknowledge[:2] for each in testbed.recorder.deliveries if each.acknowledge} == {("here", 1)}


def test_a_cancel_is_confirmed_when_the_attempt_is_cleaned_up(testbed: Any) -> None:
    testbed.start()
    command = testbed.submit_command("sleep 600")
    testbed.at_barrier(command)
    testbed.recorder.confirmed(testbed.release(command.attempt))
    testbed.reported(command.attempt, "running")
    number = testbed.send(CancelAttempt(cluster="here", attempt=command.attempt, batch_id=""))
    cleaned_up, delivery = testbed.recorder.delivery(AttemptCleanedUp)
    assert (cleaned_up.attempt, delivery.confirmed) == (command.attempt, (number,))
    assert delivery.acknowledge is not None
    assert testbed.reported(command.attempt, "ended").ending == "cancelled"


def test_a_cancel_confirms_the_attempt_s_earlier_commands(testbed: Any) -> None:
    """The release had not reached a wrapper; after the cancel it never has to."""
    testbed.start()
    filler = testbed.submit_command("true", processors=2)
    testbed.at_barrier(filler)
    command = testbed.submit_command("true")
    testbed.send(command)
    testbed.recorder.event(AttemptSubmitted, lambda event: event.attempt == command.attempt)
    release = testbed.release(command.attempt)
    cancel = testbed.send(CancelAttempt(cluster="here", attempt=command.attempt, batch_id=""))
    _, delivery = testbed.recorder.delivery(AttemptCleanedUp)
    assert set(delivery.confirmed) == {release, cancel}


def test_a_cancel_of_an_attempt_that_was_never_submitted_is_confirmed(testbed: Any) -> None:
    testbed.start()
    attempt = AttemptId(JobId(99), 0, 1)
    number = testbed.send(CancelAttempt(cluster="here", attempt=attempt, batch_id=""))
    assert testbed.recorder.confirmed(number).events == (AttemptCleanedUp(cluster="here", attempt=attempt),)


def test_a_refused_submit_is_a_failure_with_the_batch_systems_reason(testbed: Any) -> None:
    testbed.start()
    command = testbed.submit_command(processors=5)
    number = testbed.send(command)
    failed, delivery = testbed.recorder.delivery(SubmissionFailed)
    assert (failed.attempt, delivery.confirmed) == (command.attempt, (number,))
    assert failed.reason.whose == "request"
    assert "5" in failed.reason.message


def test_the_same_command_twice_is_done_once(testbed: Any) -> None:
    testbed.start()
    command = testbed.submit_command()
    for doubt in (False, True, True):
        testbed.link.send(7, command, doubt)
    testbed.reported(command.attempt, "at_barrier")
    assert len(testbed.recorder.events(AttemptSubmitted)) == 1
    testbed._attempts.add(command.attempt)


def test_a_component_too_large_for_a_message_is_refused(testbed: Any) -> None:
    testbed.start()
    number = testbed.send(testbed.submit_command(environment=(("HUGE", "x" * (1 << 20)),)))
    failed, delivery = testbed.recorder.delivery(SubmissionFailed)
    assert (failed.reason.code, failed.reason.whose, delivery.confirmed) == ("too_large", "request", (number,))


def test_attempts_of_another_store_are_not_reported(testbed: Any, tmp_path: Path) -> None:
    """An attempt of another store in the same queue occupies processors, but is not reported to this one."""
    testbed.start()
    command = testbed.submit_command("true", processors=2)
    testbed.at_barrier(command)
    stranger = LinkTestbed(tmp_path, "there")
    stranger.make(instance=InstanceId("zzzzz"))
    stranger.start()
    measured = stranger.recorder.event(ClusterMeasured, lambda event: event.state.idle == 0)
    assert measured.state.allocated == ()
    assert not stranger.recorder.events(BatchStatusSeen)
    stranger.close()


def test_an_urgently_watched_cluster_is_polled_more_often(tmp_path: Path) -> None:
    testbed = LinkTestbed(tmp_path, poll=600.0)
    testbed.link.hint(WatchCluster(cluster="alpha", urgent=True))  # kept until it is connected
    testbed.start()
    testbed.recorder.event(
        ClusterMeasured, after=1 + testbed.recorder.deliveries.index(testbed.recorder.delivery(ClusterMeasured)[1])
    )
    testbed.close()


# ---- losses


def test_a_kcm_that_dies_is_replaced_and_its_jobs_are_found(testbed: Any) -> None:
    testbed.start()
    command = testbed.submit_command("echo survived")
    batch_id = testbed.at_barrier(command).batch_id
    mark = len(testbed.recorder.deliveries)
    testbed.kill_kcm()
    lost = testbed.recorder.event(ClusterLost, after=mark)
    assert (lost.cluster, lost.reason.whose) == ("here", "transient")
    testbed.recorder.event(ClusterConnected, after=mark)
    again = testbed.send(command, doubt=True)
    submitted, delivery = testbed.recorder.delivery(AttemptSubmitted, after=mark)
    assert (submitted.batch_id, delivery.confirmed) == (batch_id, (again,))
    testbed.recorder.confirmed(testbed.release(command.attempt))
    assert testbed.reported(command.attempt, "ended").exit_status == 0
    epochs = [each.acknowledge[1] for each in testbed.recorder.deliveries if each.acknowledge is not None]
    assert set(epochs) == {1, 2}
    assert epochs == sorted(epochs)


@pytest.mark.parametrize("relay", ["tcp", "files"])
def test_after_a_new_session_a_wrapper_at_the_barrier_reports_again(tmp_path: Path, relay: str) -> None:
    """The report is repeated although nothing has changed, since koalad counts reports of this session only."""
    testbed = LinkTestbed(tmp_path, relay=relay)
    try:
        command = testbed.start().submit_command("exit 0")
        testbed.at_barrier(command)
        slept, after = host_slept(MINUTE), len(testbed.recorder.deliveries)
        assert testbed.link.end_session(slept) == 1
        assert testbed.recorder.event(ClusterLost).reason == slept
        assert testbed.recorder.delivery(ClusterConnected, after=after)[1].session == ("here", 2)
        again, delivery = testbed.recorder.delivery(WrapperReported, lambda event: event.phase == "at_barrier", after)
        assert (again.attempt, delivery.session) == (command.attempt, ("here", 2))
        testbed.release(command.attempt)
        assert testbed.reported(command.attempt, "ended").exit_status == 0
    finally:
        testbed.close()


def test_an_unconnected_link_has_no_session_to_end(testbed: Any) -> None:
    assert testbed.link.end_session(host_slept(MINUTE)) is None


def test_the_session_of_a_silent_kcm_is_ended(testbed: Any) -> None:
    """A paused head node behaves so: the connection stays open, and no frame comes."""
    testbed.make(linked.SOON_GIVEN_UP)
    testbed.start()
    mark = len(testbed.recorder.deliveries)
    testbed.kill_kcm(signal.SIGSTOP)
    lost = testbed.recorder.event(ClusterLost, after=mark)
    assert lost.reason.code == "silent"
    testbed.recorder.event(ClusterConnected, after=mark)


def test_commands_sent_without_a_connection_are_dropped(testbed: Any) -> None:
    testbed.send(testbed.submit_command())
    testbed.start()
    testbed.link.close()
    testbed.send(testbed.submit_command())
    assert not testbed.recorder.events(AttemptSubmitted)
    testbed._attempts.clear()
    assert (testbed.shared / linked.INSTANCE / "stage").iterdir().__class__ is not None


@pytest.mark.parametrize("fault", [WireTransientError, WireClusterError], ids=["transient", "cluster"])
def test_an_unreachable_cluster_is_reported_once_for_each_reason(testbed: Any, fault: Any) -> None:
    testbed.connection.refusal = fault("refused", "fs0 refuses connections.", "Is it up?")
    testbed.link.start()
    lost = testbed.recorder.event(ClusterLost)
    assert (lost.reason.code, lost.reason.message, lost.reason.advice) == (
        "refused",
        "fs0 refuses connections.",
        "Is it up?",
    )
    wait_until(lambda: testbed.connection.tries >= 4)
    assert len(testbed.recorder.events(ClusterLost)) == 1
    status = testbed.link.status()
    assert (status.state, status.reason) == ("unreachable", lost.reason)
    testbed.connection.refusal = fault("authentication", "fs0 does not let me in.", "Check the key.")
    testbed.recorder.event(ClusterLost, lambda event: event.reason.code == "authentication")
    testbed.connection.refusal = None
    testbed.recorder.event(ClusterConnected)
    assert testbed.link.status().state == "connected"


def test_a_request_to_an_unreachable_cluster_fails_with_the_reason(testbed: Any) -> None:
    attempt = AttemptId(JobId(1), 0, 1)
    with pytest.raises(TransientError, match="here is not connected"):
        testbed.link.ask(lambda number: Stat(number, tag_of(linked.INSTANCE, attempt), ["x"]), 1.0)
    testbed.connection.refusal = WireTransientError("refused", "fs0 refuses connections.", "Is it up?")
    testbed.link.start()
    testbed.recorder.event(ClusterLost)
    with pytest.raises(TransientError, match="fs0 refuses connections"):
        list(testbed.link.fetch(attempt, "output"))


def test_a_kcm_that_ends_at_once_is_not_started_in_a_tight_loop(testbed: Any) -> None:
    """No KCM understands the description; each one reports this and exits."""
    testbed.make(replace(linked.QUICK, retry_first=3600.0, retry_max=3600.0, retry_soon=3600.0))
    testbed.link.cluster.config["batch"] = "no-such-batch-system"
    with structlog.testing.capture_logs() as lines:
        testbed.link.start()
        failed = testbed.recorder.event(MeasurementFailed)
    assert "no-such-batch-system" in failed.reason.message
    assert [line["reason"] for line in lines if line["event"] == "cluster_unmeasured"] == [str(failed.reason)]
    lost = testbed.recorder.event(ClusterLost)
    assert "no-such-batch-system" in lost.reason.message
    assert testbed.link._machine.next_wakeup() - testbed.clock.now() > MINUTE
    assert testbed.connection.tries == 1


def test_a_newer_koalad_replaces_an_older_one(tmp_path: Path) -> None:
    """The KCM of the older one exits by itself."""
    older, newer = LinkTestbed(tmp_path), LinkTestbed(tmp_path)
    newer._epochs = itertools.count(100)
    older.start()
    mark = len(older.recorder.deliveries)
    newer.start()
    lost = older.recorder.event(ClusterLost, after=mark)
    assert "newer KCM is at work on this cluster" in lost.reason.message
    older.close()
    newer.close()


def test_closing_leaves_jobs_running(testbed: Any) -> None:
    testbed.start()
    command = testbed.submit_command("touch started; while [ ! -e go ]; do sleep 0.02; done; touch done")
    testbed.at_barrier(command)
    testbed.recorder.confirmed(testbed.release(command.attempt))
    work = testbed.attempt_directory(command.attempt) / "work"
    wait_until((work / "started").exists)
    testbed.link.close()
    assert not threads_of(testbed)
    mark = len(testbed.recorder.deliveries)
    (work / "go").touch()
    wait_until((work / "done").exists)
    assert not testbed.recorder.events(ClusterLost), "a closed link was reported as lost"
    assert len(testbed.recorder.deliveries) == mark


def test_a_link_has_one_thread(testbed: Any) -> None:
    """It reads. What is written at once needs no other one, and all links share one for their timers."""
    testbed.start()
    wait_until(lambda: threads_of(testbed) == ["link-here"])
    assert [each.name for each in threading.enumerate()].count("timers") == 1


def test_a_login_that_hangs_leaves_nothing_once_its_link_was_closed(testbed: Any) -> None:
    """The link is closed without it. When it ends at last, so does the KCM that it has started."""
    testbed.connection.goes_on.clear()
    testbed.link.start()
    wait_until(lambda: testbed.connection.tries == 1)
    testbed.link.close(within_s=0.01)
    assert threads_of(testbed) == ["link-here"]
    testbed.connection.goes_on.set()
    wait_until(lambda: not threads_of(testbed))
    assert testbed.connection.opened[0]._process.poll() is not None
    assert testbed.recorder.deliveries == []


def test_a_link_can_be_closed_while_it_connects(tmp_path: Path) -> None:
    testbed = LinkTestbed(tmp_path)
    testbed.link.start()
    testbed.link.close()
    wait_until(lambda: not threads_of(testbed))  # a login under way ends by itself
    testbed.link.close()


def test_a_link_that_never_started_can_be_closed(tmp_path: Path) -> None:
    LinkTestbed(tmp_path).link.close()


def test_an_unexpected_exception_of_a_connection_is_retried(testbed: Any) -> None:
    testbed.connection.refusal = ZeroDivisionError("an unexpected exception")
    testbed.link.start()
    wait_until(lambda: testbed.connection.tries >= 2)
    testbed.connection.refusal = None
    testbed.recorder.event(ClusterConnected)


# ---- output


def test_following_output_ends_with_the_attempt(testbed: Any) -> None:
    testbed.start()
    command = testbed.submit_command("echo first; while [ ! -e go ]; do sleep 0.02; done; echo last")
    testbed.at_barrier(command)
    pieces = filter(None, testbed.link.read(command.attempt, "output", {}, True))
    testbed.recorder.confirmed(testbed.release(command.attempt))
    assert next(pieces) == b"[0,6]\nfirst\n"
    (testbed.attempt_directory(command.attempt) / "work" / "go").touch()
    assert b"".join(pieces) == b"[0,5]\nlast\n"
    assert b"".join(testbed.link.read(command.attempt, "output", {0: 3}, False)) == b"[0,8]\nst\nlast\n"


def test_following_ends_cleanly_when_the_link_is_lost(testbed: Any) -> None:
    testbed.start()
    command = testbed.submit_command("echo first; sleep 600")
    testbed.at_barrier(command)
    testbed.recorder.confirmed(testbed.release(command.attempt))
    pieces = filter(None, testbed.link.read(command.attempt, "output", {}, True))
    assert next(pieces) == b"[0,6]\nfirst\n"
    testbed.kill_kcm()
    with pytest.raises(TransientError):
        list(pieces)


def test_output_beyond_the_credit_arrives_whole_and_delays_no_request(testbed: Any) -> None:
    testbed.start()
    size = 5 << 20
    command = testbed.submit_command(f"head -c {size} /dev/zero | tr '\\0' x")
    testbed.run(command)
    pieces = testbed.link.fetch(command.attempt, "output")
    first = next(pieces)
    assert stat(testbed, command.attempt) == {}, "a request was delayed by output"
    assert len(first) + sum(map(len, pieces)) == size


def test_a_reader_that_stops_early_blocks_no_other_reader(testbed: Any) -> None:
    testbed.start()
    command = testbed.submit_command("head -c 3000000 /dev/zero; sleep 600")
    testbed.at_barrier(command)
    testbed.recorder.confirmed(testbed.release(command.attempt))
    pieces = testbed.link.read(command.attempt, "output", {}, True)
    while not next(pieces):
        pass
    pieces.close()
    assert stat(testbed, command.attempt, "none") == {}
    readers = [threading.Thread(target=lambda: next(testbed.link.fetch(command.attempt, "output"))) for _ in range(8)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join(linked.PATIENCE_S)
        assert not reader.is_alive()


def test_fetching_a_missing_file_is_refused(testbed: Any) -> None:
    testbed.start()
    command = testbed.submit_command()
    testbed.run(command)
    with pytest.raises(Exception, match="left no file") as caught:
        list(testbed.link.fetch(command.attempt, "work", "none"))
    assert caught.value.reason.code == "no_such_file"  # type: ignore[attr-defined]


# ---- keys, clock and status


def test_keys_pass_from_and_to_the_program(testbed: Any) -> None:
    testbed.start()
    command = testbed.submit_command('"$KOALA_RENDEZVOUS" put mine 1; "$KOALA_RENDEZVOUS" get theirs')
    testbed.at_barrier(command)
    testbed.link.put(command.attempt, "theirs", "ünï 2")
    testbed.recorder.confirmed(testbed.release(command.attempt))
    assert testbed.reported(command.attempt, "ended").exit_status == 0
    assert b"".join(testbed.link.fetch(command.attempt, "output")).strip() == "ünï 2".encode()
    assert testbed.put == [(command.attempt, "mine", "1")]


def test_the_status_names_host_and_version_of_the_cluster(testbed: Any) -> None:
    assert testbed.link.status().state == "connecting"
    testbed.start()
    status = testbed.link.status()
    assert (status.name, status.state, status.reason) == ("here", "connected", None)
    assert status.host
    assert status.version
    wait_until(lambda: testbed.link.status().cost > 0)


def test_instants_of_a_kcm_with_a_wrong_clock_are_corrected(testbed: Any) -> None:
    """koalad's clock may be the wrong one; the round trips show the hour between the two."""
    hour = Duration(3600 * SECOND)
    real = testbed.clock.now
    testbed.clock.now = lambda: real() - hour
    testbed.make()
    before = testbed.clock.now()
    testbed.start()
    ended = testbed.run(testbed.submit_command())
    assert before < ended.at_barrier_at < ended.ended_at < testbed.clock.now()


def test_attempts_that_koalad_knows_are_watched_from_the_start_of_a_session(testbed: Any) -> None:
    testbed.start()
    command = testbed.submit_command("exit 5")
    testbed.at_barrier(command)
    testbed.recorder.confirmed(testbed.release(command.attempt))
    testbed.link.close()
    record = testbed.attempt_directory(command.attempt) / "record.json"
    wait_until(record.exists)
    mark = len(testbed.recorder.deliveries)
    testbed.make().start()
    testbed.recorder.event(ClusterConnected, after=mark)
    assert testbed.reported(command.attempt, "ended").exit_status == 5
    assert tag_of(linked.INSTANCE, command.attempt) in str(record)
