"""The wrapper as one machine: its attempt, its contact with the relay, the keys of its job, and its heartbeat."""

from typing import Any

import pytest
from koalapy_adapters import messages
from koalapy_adapters.clock import SECOND
from koalapy_adapters.frames import Chunk
from koalapy_adapters.handshake import kcm_proof, relay_key
from koalapy_adapters.messages import kcm, koalad, relay
from koalapy_adapters.messages.relay import RelayChallenge, RelayHello, RelayWelcome
from koalapy_adapters.wrapper import events
from koalapy_adapters.wrapper import session as s
from koalapy_adapters.wrapper.relay import contact
from koalapy_adapters.wrapper.relay.address import RelayAddress
from koalapy_adapters.wrapper.relay.handshake import Opening
from koalapy_adapters.wrapper.session import WrapperSession

TAG, KEY = "kabcde000000001", relay_key("s", b"token")
CHALLENGE = RelayChallenge(500, "of the KCM")
SETTINGS = events.Settings(TAG, "17", 60 * SECOND, 600 * SECOND, 5 * SECOND, 300 * SECOND)
PLACE = RelayAddress(["10.0.0.1"], 7)
HOSTS = [[0, "10.0.0.2", 1]]


def hello(now: int) -> RelayHello:
    return RelayHello(2, TAG, now, "of the wrapper")


def session(for_launcher: bool = False) -> WrapperSession:
    open_with = lambda now, secret, by_files: Opening(KEY, hello(now), by_files)  # noqa: E731
    return WrapperSession(0, SETTINGS, open_with, lambda: 0.5, 10 * SECOND, "n1", for_launcher)


def enter(made: WrapperSession, now: int = 0) -> list[Any]:
    """Let the relay admit the wrapper. Returns the commands of that."""
    assert made.found(now, PLACE) == [contact.Try(["10.0.0.1"], 7)]
    assert made.connected(now, "10.0.0.1", SECOND) == [contact.Begin([hello(now)])]
    proof, secure = made.received(now, messages.to_json(CHALLENGE))
    assert isinstance(proof, contact.Write)
    assert isinstance(secure, contact.Secure)
    return made.received(now, messages.to_json(RelayWelcome(500, kcm_proof(KEY, hello(now), CHALLENGE))))


def at_barrier(made: WrapperSession) -> list[Any]:
    """Bring the attempt to its barrier. Returns the last commands."""
    made.handle(0, events.Claimed([events.Node("n1", 1)]))
    assert made.handle(0, events.EnvironmentCaptured()) == [events.PrepareNodes()]
    return made.handle(0, events.NodeReady("n1", "10.0.0.2"))


def has(commands: list[Any], kind: type) -> bool:
    return any(isinstance(each, kind) for each in commands)


def phases(commands: list[Any]) -> list[str]:
    """Return the phases of the reports that are sent."""
    sent = [each.message for each in commands if isinstance(each, contact.Write)]
    return [each.report["phase"] for each in sent if isinstance(each, relay.ReportMessage)]


def test_a_report_is_sent_while_the_relay_is_connected_and_again_after_each_admission() -> None:
    made = session()
    assert phases(at_barrier(made)) == []
    assert phases(enter(made)) == ["at_barrier"]
    lost = made.broken(SECOND)
    assert isinstance(lost[0], contact.Drop)
    assert phases(made.handle(SECOND, events.Signalled())) == []
    assert phases(enter(made, 2 * SECOND)) == ["at_barrier"]


def test_the_relay_s_release_and_stop_reach_the_machine() -> None:
    made = session()
    at_barrier(made)
    enter(made)
    released = made.received(5, messages.to_json(koalad.Release(1, TAG, 0, HOSTS)))
    assert released[0] == events.ReleaseNodes(0, HOSTS)
    assert phases(released) == ["released"]
    assert events.StopNodes(0) in made.received(6, messages.to_json(relay.Stop(True)))


def test_own_keys_are_sent_again_after_each_admission_and_others_are_not() -> None:
    made = session()
    assert made.put("port", "1") == [s.BroadcastKey("port", "1")]
    assert made.put("port", "2") == []
    put = contact.Write(kcm.PutKey(TAG, "port", "1"))
    assert put in enter(made)
    assert made.received(1, messages.to_json(kcm.PutKey(TAG, "host", "a"))) == [s.BroadcastKey("host", "a")]
    assert made.received(1, messages.to_json(kcm.PutKey(TAG, "host", "b"))) == []
    made.broken(SECOND)
    commands = enter(made, 2 * SECOND)
    assert [each for each in commands if isinstance(each, contact.Write)] == [put]


def test_a_launcher_learns_when_the_relay_comes_and_goes() -> None:
    made = session(for_launcher=True)
    assert isinstance(enter(made)[-1], s.OpenBridge)
    body = {"type": "stop"}
    assert made.received(1, messages.to_json(relay.ToLauncher(body))) == [s.ToLauncher(body)]
    assert has(made.broken(2), s.CloseBridge)
    assert made.send(relay.FromLauncher({})) == []


def test_a_wrapper_of_a_program_has_no_bridge() -> None:
    made = session()
    assert not has(enter(made), s.OpenBridge)
    assert made.received(1, messages.to_json(relay.ToLauncher({}))) == []
    assert not has(made.broken(2), s.CloseBridge)


def test_files_are_looked_at_less_often_while_only_the_program_runs() -> None:
    made = session()
    at_barrier(made)
    enter(made)
    made.received(5, messages.to_json(koalad.Release(1, TAG, 0, HOSTS)))
    assert s.Expect(False) in made.handle(6, events.NodeStarted("n1", 6))
    assert made.asking("n1", True) == [s.Expect(True)]
    assert made.asking("n1", True) == []
    assert made.asking("n1", False) == [s.Expect(False)]


def test_the_heartbeat_follows_the_end_of_the_one_before() -> None:
    made = session()
    assert made.next_wakeup() == 0
    assert has(made.tick(0), s.Touch)
    assert made.tick(60 * SECOND - 1) == []
    made.touched(3 * SECOND, None)
    assert made.next_wakeup() == 13 * SECOND
    assert has(made.tick(13 * SECOND), s.Touch)


def test_a_wrapper_that_reaches_the_shared_directory_is_no_orphan() -> None:
    made = session()
    at_barrier(made)
    enter(made)
    made.received(5, messages.to_json(koalad.Release(1, TAG, 0, HOSTS)))
    made.broken(5)
    made.touched(299 * SECOND, events.SharedReached())
    assert events.StopNodes(5 * SECOND) not in made.tick(301 * SECOND)
    assert has([command for at in range(302, 600) for command in made.tick(at * SECOND)], events.StopNodes)


@pytest.mark.parametrize("connected", [False, True])
def test_the_exit_record_has_both_clocks(connected: bool) -> None:
    made = session()
    at_barrier(made)
    if connected:
        enter(made)
    made.handle(8, events.Signalled())
    commands = made.handle(9, events.NodeEmptied("n1"))
    (kept,) = [each for each in commands if isinstance(each, s.KeepRecord)]
    assert (kept.record["clock"], kept.record["offset"]) == (9, 500 if connected else None)


def test_nothing_follows_after_the_end() -> None:
    made = session()
    assert made.handle(0, events.AttemptRevoked()) == [events.Leave(0)]
    assert made.next_wakeup() is None
    assert made.tick(10**12) == []
    assert made.found(1, PLACE) == []


def test_frames_of_byte_streams_are_passed_on_and_streams_resumed_after_each_further_admission() -> None:
    made = session()
    assert not has(enter(made), s.ResumeStreams)
    frame = Chunk(1 << 41, 0, b"data")
    (passed,) = made.received(1, frame)
    assert isinstance(passed, s.PassFrame)
    assert passed.frame is frame
    made.broken(SECOND)
    assert has(enter(made, 2 * SECOND), s.ResumeStreams)


def test_an_unknown_message_is_ignored() -> None:
    made = session()
    enter(made)
    assert made.received(1, {"type": "of_a_newer_release"}) == []
