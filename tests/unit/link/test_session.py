"""The session machine: every state and event of its table, the waits between tries, silence and outages."""

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koalapy_adapters import messages as wire
from koalapy_adapters.messages import kcm, koalad

from koalapy.driver.driver import Delivery
from koalapy.link.conversation import Deliver, KcmConversation, Opening, PutKey, StageIn
from koalapy.link.reconnect import Cluster, Reconnect, Timing
from koalapy.link.restore_check import IMPOSSIBLE, REPLACED, Verdict
from koalapy.link.session import (
    BETWEEN_PROBES,
    REVIVAL,
    SILENCE,
    Close,
    Command,
    Decline,
    Dial,
    Lost,
    Probe,
    Report,
    Send,
    SessionMachine,
    State,
)
from koalapy.model.commands import SubmitAttempt, WatchCluster
from koalapy.model.errors import Reason
from koalapy.model.events import ClusterConnected
from koalapy.model.identity import AttemptId, InstanceId, JobId, tag_of
from koalapy.model.request import ComponentRequest
from koalapy.model.units import MINUTE, SECOND, Duration, Instant

INSTANCE = InstanceId("abcde")
ATTEMPT = AttemptId(JobId(7), 0, 1)
TIMING = Timing()
OUT_OF_REACH = Reason("refused", "transient", "fs0 refuses connections.", "Is it up?")
REFUSED = Reason("authentication", "cluster", "fs0 does not let me in.", "Check the key.")
NO_PYTHON = Reason("no_python", "cluster", "No Python.")
GARBLED = Reason("garbled", "ours", "measured.idle: None is not a whole number.")
CUT = Reason("cut", "transient", "The connection was lost.")
C = TypeVar("C")


class Play:
    """A machine, its clock, and its commands at the last event. Each random number is its upper bound."""

    def __init__(self, timing: Timing = TIMING) -> None:
        self.now = Instant(1_000 * SECOND)
        self.verdict = Verdict.FINE
        self.cluster = Cluster(name="vu", instance=INSTANCE, config={"name": "vu", "batch": "slurm"}, timing=timing)
        self.machine: SessionMachine[KcmConversation] = SessionMachine("vu", timing, lambda low, high: high)
        self.commands: list[Command] = []

    def do(self, event: Callable[..., list[Command]], *fields: Any, **named: Any) -> list[Command]:
        self.commands = event(self.now, *fields, **named)
        return self.commands

    def of(self, kind: type[C]) -> list[C]:
        return [each for each in self.commands if isinstance(each, kind)]

    def events(self, kind: type[C]) -> list[C]:
        return [event for each in self.of(Deliver) for event in each.delivery.events if isinstance(event, kind)]

    def start(self) -> "Play":
        assert self.do(self.machine.start) == [Dial()]
        return self

    def conversation(self, epoch: int = 1) -> KcmConversation:
        check = lambda session, welcome: self.verdict  # noqa: E731
        return KcmConversation(self.cluster, Opening(epoch=epoch, version="1", check=check))

    def connect(self, epoch: int = 1, **named: Any) -> "Play":
        self.do(self.machine.connected, self.conversation(epoch), **named)
        return self

    def welcome(self) -> "Play":
        self.do(self.machine.received, kcm.Welcome(wire.PROTOCOL, "1", self.now, "3.6", "fs0", "23.11"))
        return self

    def establish(self) -> "Play":
        return self.start().connect().welcome()

    def wake(self) -> list[Command]:
        """Advance the clock to the next wake-up."""
        wakeup = self.machine.next_wakeup()
        assert wakeup is not None
        self.now = max(self.now, wakeup)
        return self.do(self.machine.wake)

    def waited(self) -> float:
        """Seconds until the machine dials again."""
        began = self.now
        assert self.machine.state is State.WAITING
        assert self.wake() == [Dial()]
        return (self.now - began) / SECOND


# ---- sessions


def test_a_session_begins_with_hello_and_takes_commands_after_welcome() -> None:
    play = Play().start().connect()
    hello, ping = (each.message for each in play.of(Send))
    assert (hello.epoch, hello.instance, type(ping)) == (1, INSTANCE, koalad.Ping)
    assert play.do(play.machine.send, lambda establish: establish.acknowledge(1, 1)) == []
    play.welcome()
    assert play.machine.state is State.OPEN
    assert [each.status.state for each in play.of(Report)] == ["connected"]
    assert play.events(ClusterConnected) == [ClusterConnected(cluster="vu", version="23.11", recalled=None)]
    assert play.machine.status.host == "fs0"
    assert play.do(play.machine.send, lambda establish: establish.acknowledge(1, 1)) == [Send(koalad.Acknowledge(1))]


def test_a_loss_is_delivered_once_for_each_reason() -> None:
    play = Play().start()
    play.do(play.machine.failed, OUT_OF_REACH)
    assert play.of(Lost) == [Lost(OUT_OF_REACH)]
    play.wake()
    play.do(play.machine.failed, OUT_OF_REACH)
    assert (play.of(Lost), len(play.of(Report))) == ([], 1)
    play.wake()
    play.do(play.machine.failed, NO_PYTHON)
    assert len(play.of(Lost)) == 1
    play.wake()
    play.connect().welcome()
    play.do(play.machine.cut, NO_PYTHON)
    assert len(play.of(Lost)) == 1


def test_a_message_for_one_session_is_not_sent_in_the_next() -> None:
    play = Play().establish()
    put_key = lambda establish: establish.put_key(ATTEMPT, "port", "1")  # noqa: E731
    assert play.do(play.machine.send, put_key, 1)
    play.do(play.machine.cut, CUT)
    assert play.do(play.machine.send, put_key, 1) == []
    play.wake()
    play.connect(2).welcome()
    assert play.do(play.machine.send, put_key, 1) == []
    assert play.do(play.machine.send, put_key, 2)
    assert play.machine.conversation_of(1) is None


def test_the_last_standing_hint_is_sent_after_each_welcome() -> None:
    play = Play().start()

    def watch(urgent: bool) -> Callable[[Any], Any]:
        return lambda establish: establish.hint(WatchCluster(cluster="vu", urgent=urgent))

    play.do(play.machine.send, watch(False), standing=True)
    play.do(play.machine.send, watch(True), standing=True)
    assert play.commands == []
    for epoch in (1, 2):
        play.connect(epoch).welcome()
        assert koalad.WatchCluster(True) in [each.message for each in play.of(Send)]
        assert koalad.WatchCluster(False) not in [each.message for each in play.of(Send)]
        play.do(play.machine.cut, CUT)
        play.wake()


def test_files_are_staged_before_their_submit_is_sent() -> None:
    play = Play().establish()
    command = SubmitAttempt(
        cluster="vu", attempt=ATTEMPT, components=1, request=ComponentRequest(processors=1, executable="x"),
        walltime=Duration(MINUTE), barrier_timeout=Duration(MINUTE), stage_in=("data",), directory="/",
    )  # fmt: skip
    assert play.do(play.machine.send, lambda establish: establish.send(3, command, True)) == [StageIn(3, command, True)]


def test_a_key_of_a_program_is_passed_on() -> None:
    play = Play().establish()
    play.do(play.machine.received, kcm.PutKey(str(tag_of(INSTANCE, ATTEMPT)), "port", "1"))
    assert play.commands == [PutKey(ATTEMPT, "port", "1")]


@pytest.mark.parametrize(
    ("verdict", "reason", "state"),
    [
        (Verdict.REPLACED, REPLACED.code, State.ENDED),
        (Verdict.IMPOSSIBLE, IMPOSSIBLE.code, State.WAITING),
        (Verdict.AGAIN, "store_restored", State.WAITING),
    ],
)
def test_a_refused_welcome_ends_its_session(verdict: Verdict, reason: str, state: State) -> None:
    play = Play().start().connect()
    play.verdict = verdict
    play.welcome()
    assert isinstance(play.commands[0], Close)
    assert [each.reason.code for each in play.of(Lost)] == [reason]
    assert play.events(ClusterConnected) == []
    assert play.machine.state is state
    if state is State.ENDED:
        assert play.machine.next_wakeup() is None
        assert play.do(play.machine.retry) == []


def test_events_after_the_end_of_a_session_change_nothing() -> None:
    play = Play().establish()
    play.do(play.machine.end, CUT)
    assert play.commands[0] == Close(CUT)
    assert play.do(play.machine.received, kcm.Pong(1, play.now)) == []
    assert play.do(play.machine.cut, OUT_OF_REACH) == []
    assert play.do(play.machine.end, OUT_OF_REACH) == []
    assert play.do(play.machine.probed, True) == []


@pytest.mark.parametrize("state", [State.IDLE, State.DIALING, State.GREETING, State.OPEN, State.WAITING])
def test_a_link_can_be_closed_in_every_state(state: State) -> None:
    play = Play()
    if state is not State.IDLE:
        play.start()
    if state in (State.GREETING, State.OPEN):
        play.connect()
    if state is State.OPEN:
        play.welcome()
    if state is State.WAITING:
        play.do(play.machine.failed, OUT_OF_REACH)
    assert play.machine.state is state
    assert play.do(play.machine.close) == ([Close()] if state.has_session else [])
    assert (play.machine.state, play.machine.next_wakeup()) == (State.ENDED, None)
    assert play.do(play.machine.failed, OUT_OF_REACH) == []
    late = play.conversation(9)
    assert play.do(play.machine.connected, late) == [Decline(late)]


# ---- silence


def silent_until_lost(play: Play) -> float:
    began = play.now
    while play.machine.state.has_session:
        play.wake()
    assert [each.reason.code for each in play.of(Lost)] == ["silent"]
    return (play.now - began) / SECOND


def test_a_silent_session_ends_after_the_silence_time_out() -> None:
    assert silent_until_lost(Play().establish()) == 15.0


def test_a_session_may_be_silent_for_longer_before_its_welcome() -> None:
    assert silent_until_lost(Play().start().connect()) == 60.0


def test_a_session_with_an_answered_login_may_be_silent_for_longer() -> None:
    assert silent_until_lost(Play().start().connect(probes=True, attended=True).welcome()) == 55.0


def test_any_received_bytes_end_a_silence() -> None:
    play = Play().establish()
    for _ in range(20):
        play.wake()
        play.machine.alive(play.now)
    assert play.machine.state is State.OPEN


# ---- outages


def probing() -> Play:
    """A session that has been silent so long that its network is probed."""
    play = Play().start().connect(probes=True).welcome()
    silent_from = play.now
    while not play.of(Probe):
        play.wake()
    assert play.now == silent_from + SILENCE
    return play


def test_a_network_that_is_back_ends_a_session_that_stays_silent() -> None:
    play = probing()
    for _ in range(3):
        before = play.now
        play.do(play.machine.probed, False)
        assert play.wake() == [Probe()]
        assert play.now == before + BETWEEN_PROBES
    play.do(play.machine.probed, True)
    back = play.now
    play.wake()
    assert (play.now, [each.reason.code for each in play.of(Lost)]) == (back + REVIVAL, ["network_cut"])


@pytest.mark.parametrize("answer", [True, None], ids=["open", "unknown"])
def test_a_silence_with_a_working_network_is_probed_once(answer: bool | None) -> None:
    """A head node that hangs gets one probe only."""
    play = probing()
    play.do(play.machine.probed, answer)
    while play.machine.state.has_session:
        assert not play.of(Probe)
        play.wake()
    assert [each.reason.code for each in play.of(Lost)] == ["silent"]


@pytest.mark.parametrize("when", ["during the probe", "after it"])
def test_a_connection_that_answers_again_is_kept(when: str) -> None:
    play = probing()
    play.do(play.machine.probed, False)
    play.wake()
    if when == "during the probe":
        play.machine.alive(play.now)
    play.do(play.machine.probed, True)
    play.machine.alive(Instant(play.now + 1))
    for _ in range(3):
        play.wake()
        play.machine.alive(play.now)
    assert play.machine.state is State.OPEN


# ---- waits between tries


def waits(play: Play, *reasons: Reason) -> list[float]:
    found = []
    for reason in reasons:
        play.do(play.machine.failed, reason)
        found.append(play.waited())
    return found


def test_each_failure_doubles_the_wait_up_to_a_bound() -> None:
    assert waits(Play().start(), *[OUT_OF_REACH] * 6) == [0.3, 0.6, 1.2, 1.5, 1.5, 1.5]


@pytest.mark.parametrize(("failing_s", "longest"), [(0, 1.5), (10, 1.5), (40, 5.0), (3600, 30.0)])
def test_the_longest_wait_grows_with_the_length_of_the_outage(failing_s: int, longest: float) -> None:
    reconnect = Reconnect(TIMING, lambda low, high: high)
    reconnect.tried(Instant(0))
    for _ in range(20):
        reconnect.failed(OUT_OF_REACH)
    assert reconnect.delay(Instant(failing_s * SECOND), OUT_OF_REACH) == Duration(round(longest * SECOND))


def test_a_failure_that_a_person_must_repair_waits_longer() -> None:
    assert waits(Play().start(), *[NO_PYTHON] * 12)[-1] == 120.0


def test_after_a_long_session_the_first_try_comes_at_once() -> None:
    """The number of failed tries before it has no effect."""
    play = Play().start()
    waits(play, *[OUT_OF_REACH] * 30)
    play.connect().welcome()
    for _ in range(10):
        play.wake()
        play.machine.alive(play.now)
    play.do(play.machine.cut, CUT)
    assert play.waited() == 0.0
    assert waits(play, *[OUT_OF_REACH] * 2) == [0.3, 0.6]


def test_short_sessions_are_followed_by_growing_waits() -> None:
    play = Play().start()
    found = []
    for epoch in range(1, 8):
        play.connect(epoch).welcome()
        play.do(play.machine.cut, CUT)
        found.append(play.waited())
    assert found == [0.3, 0.6, 1.2, 1.5, 1.5, 1.5, 1.5]


def test_a_refused_login_is_tried_three_times_and_then_waits_for_a_person() -> None:
    play, advice = Play().start(), []
    for wait in (0.3, 1.2, None):
        play.do(play.machine.failed, REFUSED)
        advice.append(play.machine.status.reason.advice if play.machine.status.reason else "")
        if wait is not None:
            assert play.waited() == wait
            assert waits(play, OUT_OF_REACH)  # a refused connection between them changes nothing
    assert play.machine.next_wakeup() is None
    assert advice[:2] == ["Check the key."] * 2
    assert "`koala login` or `koala up`" in advice[2]
    assert play.do(play.machine.retry) == [Dial()]
    play.do(play.machine.failed, REFUSED)
    assert play.machine.next_wakeup() is not None


def test_further_refusals_wait_up_to_ten_minutes() -> None:
    reconnect = Reconnect(TIMING, lambda low, high: high)
    for _ in range(20):
        reconnect.failed(OUT_OF_REACH)
    found = []
    for _ in range(3):
        reconnect.failed(REFUSED)
        found.append(reconnect.delay(Instant(0), REFUSED))
    assert found == [Duration(120 * SECOND), Duration(600 * SECOND), None]


@pytest.mark.parametrize("code", ["asks", "answer_refused"])
def test_a_login_with_a_question_waits_for_a_person(code: str) -> None:
    play = Play().start()
    play.do(play.machine.failed, Reason(code, "cluster", "?"))
    assert play.machine.next_wakeup() is None
    assert play.do(play.machine.retry) == [Dial()]
    assert play.machine.wanted == 1


def test_a_retry_asked_for_during_a_try_follows_it_at_once() -> None:
    play = Play().start()
    assert play.do(play.machine.retry) == []
    play.do(play.machine.failed, Reason("asks", "cluster", "?"))
    assert [each.number for each in play.of(Report)] == [0]
    assert play.waited() == 0.0
    play.do(play.machine.failed, Reason("asks", "cluster", "?"))
    assert [each.number for each in play.of(Report)] == [1]
    assert play.machine.next_wakeup() is None


def test_the_wait_doubles_for_a_cluster_that_sends_invalid_messages() -> None:
    """This holds even if each of its sessions was valid for long."""
    play, found = Play(Timing(retry_first=1.0, retry_max=30.0, retry_cluster=120.0)).start(), []
    for epoch in range(1, 10):
        play.connect(epoch).welcome()
        for _ in range(10):
            play.wake()
            play.machine.alive(play.now)
        play.do(play.machine.end, GARBLED)
        found.append(play.waited())
    assert found[:4] == [2.0, 4.0, 8.0, 16.0]
    assert found[-1] == 120.0


# ---- any order of events

EVENTS = ("start", "connected", "failed", "refused", "welcome", "pong", "cut", "end", "retry", "wake", "probed", "send")


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 20_000)), max_size=60), st.sampled_from(Verdict))
def test_after_any_events_the_machine_s_invariants_hold(events: list[tuple[str, int]], verdict: Verdict) -> None:
    """At most one try and one session exist at a time; each session is closed once; only a person's wait is endless."""
    play = Play()
    play.verdict = verdict
    dialing, open_, epoch = False, False, 0
    for name, later_ms in events:
        play.now = Instant(play.now + later_ms * 1000)
        before, machine = play.machine.state, play.machine
        match name:
            case "start":
                play.do(machine.start)
            case "connected":
                epoch += 1
                play.connect(epoch, probes=bool(later_ms % 2))
                open_ = open_ or before is State.DIALING
                dialing = dialing and before is not State.DIALING
            case "failed" | "refused":
                play.do(machine.failed, OUT_OF_REACH if name == "failed" else REFUSED)
                dialing = dialing and before is not State.DIALING
            case "welcome":
                play.welcome()
            case "pong":
                play.do(machine.received, kcm.Pong(1, play.now))
            case "cut" | "end":
                play.do(getattr(machine, name), CUT)
            case "retry" | "wake":
                play.do(getattr(machine, name))
            case "probed":
                play.do(machine.probed, bool(later_ms % 3))
            case "send":
                play.do(machine.send, lambda establish: establish.put_key(ATTEMPT, "a", "b"))
        for command in play.commands:
            if isinstance(command, Dial):
                assert not dialing
                assert not open_
                dialing = True
            elif isinstance(command, Close) and before is not State.DIALING:
                assert open_
                open_ = False
            elif isinstance(command, Send | Probe | StageIn):
                assert open_
        assert (machine.state is State.DIALING) == dialing
        assert machine.state.has_session == open_
        lost = machine.status.reason
        if machine.state is State.WAITING and machine.next_wakeup() is None:
            assert lost is not None
            assert "koala login" in lost.advice
        if machine.state.has_session:
            wakeup = machine.next_wakeup()
            assert wakeup is not None
        assert (machine.state is State.ENDED) <= (lost is not None and lost.code == REPLACED.code)
        assert machine.send(
            play.now, lambda establish: establish.hint(WatchCluster(cluster="vu", urgent=True))
        ) == [] or (machine.state is State.OPEN)


def test_a_delivery_names_its_session() -> None:
    play = Play().establish()
    assert [each.delivery.session for each in play.of(Deliver)] == [("vu", 1)]
    assert isinstance(play.of(Deliver)[0].delivery, Delivery)
