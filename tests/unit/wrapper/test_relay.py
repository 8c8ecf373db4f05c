"""The wrapper and its relay: it is found at any address, and no message is lost when the relay changes."""

import contextlib
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from koalapy_adapters.messages.kcm import PutKey

Await = Callable[..., Any]


def test_all_reports_are_repeated_to_a_relay_that_restarted_on_another_port(world: Any) -> None:
    first, attempt = world.relay(), world.attempt("sleep 600", processors=2)
    attempt.start()
    at_barrier = first.report(attempt, "at_barrier")
    first.close()
    second = world.relay()
    assert second.report(attempt, "at_barrier") == at_barrier
    second.release(attempt)
    second.report(attempt, "running")
    second.close()
    third = world.relay()
    assert third.report(attempt, "running")["at_barrier_at"] == at_barrier["at_barrier_at"]
    third.stop(attempt)
    assert third.report(attempt, "ended")["ending"] == "cancelled"
    attempt.wait()


def test_a_repeated_release_is_answered_and_does_nothing(world: Any, await_that: Await) -> None:
    relay, attempt = world.relay(), world.attempt("echo once; echo >began; sleep 600", processors=1)
    attempt.start()
    relay.release(attempt)
    await_that((attempt.path / "work/began").exists)
    running = relay.report(attempt, "running")
    before = len(relay.reports(attempt))
    relay.release(attempt)
    relay.await_message(attempt.tag, lambda _: len(relay.reports(attempt)) > before)
    assert relay.reports(attempt)[-1] == running
    relay.stop(attempt, force=True)
    attempt.wait()
    assert attempt.output(0) == "once\n"


def test_an_end_without_a_relay_is_in_the_exit_record(world: Any) -> None:
    relay, attempt = world.relay(), world.attempt("sleep 0.3; exit 3", processors=1)
    attempt.start()
    relay.release(attempt)
    relay.report(attempt, "running")
    relay.close()
    assert attempt.wait() == 3
    assert (attempt.record()["phase"], attempt.record()["exit_status"]) == ("ended", 3)


def test_a_relay_that_comes_late_is_found(world: Any, await_that: Await) -> None:
    attempt = world.attempt("exit 0", processors=1)
    attempt.start()
    await_that((attempt.path / "start-lock").exists)
    relay = world.relay()
    relay.release(attempt)
    assert attempt.wait() == 0


def test_one_working_address_of_several_is_enough(world: Any) -> None:
    relay, attempt = world.relay(), world.attempt("exit 0", processors=1)
    world.publish(relay.port, ("203.0.113.1", "no-address", "127.0.0.7", "127.0.0.1", "::1"))
    attempt.start()
    relay.release(attempt)
    assert attempt.wait() == 0


def test_a_first_address_that_answers_spares_the_others(world: Any) -> None:
    relay, attempt = world.relay(), world.attempt("exit 0", processors=1)
    with socket.create_server(("127.0.0.2", relay.port)) as other:
        world.publish(relay.port, ("127.0.0.1", "127.0.0.2"))
        attempt.start()
        relay.release(attempt)
        assert attempt.wait() == 0
        other.setblocking(False)
        with pytest.raises(BlockingIOError):
            other.accept()


def test_an_address_that_accepts_the_hello_and_hangs_up_does_not_hide_the_others(world: Any) -> None:
    """The same port on another address may belong to another program."""
    relay, attempt = world.relay(), world.attempt("exit 0", processors=1)
    with socket.create_server(("127.0.0.2", relay.port)) as foreign:
        world.publish(relay.port, ("127.0.0.2",))
        attempt.start()
        foreign.accept()[0].close()
        world.publish(relay.port, ("127.0.0.2", "127.0.0.1"))
        relay.release(attempt)
    assert attempt.wait() == 0


def test_an_invalid_message_ends_the_connection_and_not_the_wrapper(world: Any) -> None:
    relay, attempt = world.relay(), world.attempt("exit 0", processors=1)
    attempt.start()
    relay.report(attempt, "at_barrier")
    relay.hellos.get()
    relay.send_bytes(attempt.tag, b"HTTP/1.1 400 Bad Request\r\n\r\n")
    relay.hellos.get(timeout=60)
    relay.release(attempt)
    assert attempt.wait() == 0


def test_a_message_of_a_newer_version_is_ignored(world: Any) -> None:
    relay, attempt = world.relay(), world.attempt("exit 0", processors=1)
    attempt.start()
    relay.report(attempt, "at_barrier")
    relay.send_json(attempt.tag, {"type": "dream_on"})
    relay.send(attempt.tag, PutKey("x", "key", "value"))
    relay.release(attempt)
    assert attempt.wait() == 0
    assert relay.hellos.qsize() == 1


def test_keys_are_repeated_to_the_next_relay(world: Any) -> None:
    first, attempt = world.relay(), world.attempt("$KOALA_RENDEZVOUS put port 4711; sleep 600", processors=1)
    attempt.start()
    first.release(attempt)
    first.await_message(attempt.tag, lambda said: said == PutKey(attempt.tag, "port", "4711"))
    first.send(attempt.tag, PutKey("other", "theirs", "1"))
    first.close()
    second = world.relay()
    second.await_message(attempt.tag, lambda said: said == PutKey(attempt.tag, "port", "4711"))
    second.stop(attempt, force=True)
    attempt.wait()
    assert second.keys(attempt) == [("port", "4711")]


@contextlib.contextmanager
def nobody_listens() -> Iterator[int]:
    """Return a port that refuses connections, and that no other program can take meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_a_wrapper_that_cannot_reach_a_running_kcm_reports_which_setting_helps(world: Any, await_that: Await) -> None:
    """The KCM touches its address file again and again, which shows that it runs."""
    attempt = world.attempt("exit 0", processors=1, barrier_timeout=8.0)
    with nobody_listens() as port:
        world.publish(port, ("240.0.0.1", "127.0.0.1"))  # the first fails at once
        file = attempt.path.parent / "relay.here.json"
        attempt.start()
        await_that(lambda: file.touch() or (attempt.path / "record.json").exists())
    error = attempt.record()["error"]
    assert (error["code"], error["whose"]) == ("shut_out", "cluster")
    assert f"port {port}" in error["message"]
    assert "relay: files" in error["advice"]
    attempt.wait()


def test_a_wrapper_that_cannot_reach_a_kcm_that_may_have_ended_waits(world: Any) -> None:
    attempt = world.attempt("exit 0", processors=1, barrier_timeout=2.0)
    with nobody_listens() as port:
        world.publish(port)
        attempt.start()
        attempt.wait()
    assert attempt.record()["error"]["code"] == "barrier_timeout"
