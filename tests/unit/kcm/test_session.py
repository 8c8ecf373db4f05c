"""A KCM's session with koalad, without clock or files: its begin, early messages, second tries, pings and silence."""

import pytest
from koalapy_adapters.clock import SECOND
from koalapy_adapters.errors import ClusterError
from koalapy_adapters.kcm.session import SILENCE, KcmSession, Open, SeekAgain, Serve
from koalapy_adapters.kcm.state.actions import Prepare, Quit, Send
from koalapy_adapters.messages.files import Stat
from koalapy_adapters.messages.kcm import Pong, Welcome
from koalapy_adapters.messages.koalad import ClusterConfig, Hello, Ping, Submit

T0 = 1_000 * SECOND
POLL = 7
TAG = "kabcde000000001"
CONFIG = ClusterConfig("here", "local", poll=POLL)
HELLO = Hello(1, "0", 7, "abcde", T0, {})
WELCOME = Welcome(1, "0", T0, "3.11", "head", "1.0", [], None)
SUBMIT = Submit(1, TAG, {"processors": 2}, {"grace": 2.0})
STALE = ClusterError("stale", "A newer KCM is here.")


@pytest.fixture
def session() -> KcmSession:
    return KcmSession(T0, lambda: 1.5)


def opened(session: KcmSession, ready: bool = True) -> list[object]:
    assert session.received(T0, HELLO) == [Open(HELLO)]
    return session.opened(T0, CONFIG, False, WELCOME, ready)


def test_a_second_hello_opens_nothing(session: KcmSession) -> None:
    opened(session)
    assert session.received(T0, HELLO) == []


def test_a_ping_is_answered_even_before_hello(session: KcmSession) -> None:
    assert session.received(T0 + 3, Ping(4, T0)) == [Send(Pong(4, T0 + 3, 1.5))]


def test_early_messages_are_handled_after_the_welcome_and_once(session: KcmSession) -> None:
    stat = Stat(9, TAG, ["a"])
    for message in (SUBMIT, stat):
        assert session.received(T0, message) == []
    actions = opened(session)
    assert actions[0] == Send(WELCOME)
    assert [type(each) for each in actions].count(Prepare) == 1
    assert actions[-1] == Serve(stat)
    assert session.received(T0, stat) == [Serve(stat)]


def test_outcomes_before_the_session_is_open_are_ignored(session: KcmSession) -> None:
    assert session.happened(T0, SUBMIT) == []
    assert session.has_ended(TAG)
    assert not session.is_suspended(TAG)


def test_what_cannot_be_used_is_tried_again_at_each_poll_until_it_can(session: KcmSession) -> None:
    opened(session, ready=False)
    early = session.tick(T0 + POLL * SECOND - 1)
    assert SeekAgain() not in early
    assert SeekAgain() in session.tick(T0 + POLL * SECOND)
    later = T0 + 2 * POLL * SECOND
    assert SeekAgain() not in session.tick(later)  # the first try is still under way
    assert session.sought(later, WELCOME, ready=False) == []
    assert SeekAgain() in session.tick(later + POLL * SECOND)
    assert session.sought(later + POLL * SECOND, WELCOME, ready=True) == [Send(WELCOME)]
    assert SeekAgain() not in session.tick(later + 3 * POLL * SECOND)


def test_a_hello_that_cannot_be_used_is_refused_in_a_welcome(session: KcmSession) -> None:
    session.received(T0, HELLO)
    reported, end = session.failed(T0, STALE)
    assert isinstance(reported, Send)
    assert reported.message.error["code"] == "stale"
    assert end == Quit("A newer KCM is here.")


def test_a_kcm_replaced_later_ends_without_a_further_welcome(session: KcmSession) -> None:
    opened(session, ready=False)
    assert session.failed(T0, STALE) == [Quit("A newer KCM is here.")]


def test_a_silent_koalad_ends_the_session_a_minute_after_its_last_frame(session: KcmSession) -> None:
    last = T0 + 40 * SECOND
    session.alive(last)
    assert session.next_wakeup() == T0 + SILENCE * SECOND
    assert session.tick(T0 + SILENCE * SECOND) == []
    assert session.next_wakeup() == last + SILENCE * SECOND
    assert session.tick(last + SILENCE * SECOND - 1) == []
    assert session.tick(last + SILENCE * SECOND) == [Quit("koalad has sent nothing for 60 s")]
