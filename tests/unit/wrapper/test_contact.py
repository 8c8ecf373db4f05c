"""A wrapper's contact with its relay: it tries addresses until a relay accepts it, and drops a silent relay."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from koalapy_adapters.clock import SECOND
from koalapy_adapters.handshake import kcm_proof, relay_key, session_keys, wrapper_proof
from koalapy_adapters.messages.koalad import Release
from koalapy_adapters.messages.relay import Heartbeat, RelayChallenge, RelayHello, RelayProof, RelayWelcome, Stop
from koalapy_adapters.wrapper.relay import contact as c
from koalapy_adapters.wrapper.relay.address import RelayAddress
from koalapy_adapters.wrapper.relay.handshake import Opening

TAG = "k00000000000001"
KEY = relay_key("s", b"token")
CHALLENGE = RelayChallenge(500, "of the KCM")
RELEASE = Release(1, TAG, 0, [])


def hello(now: int) -> RelayHello:
    return RelayHello(2, TAG, now, "of the wrapper")


def welcome(now: int) -> RelayWelcome:
    """Return the welcome for a wrapper whose hello had this instant."""
    return RelayWelcome(500, kcm_proof(KEY, hello(now), CHALLENGE))


def open_with(now: int, secret: str, by_files: bool) -> Opening:
    return Opening(KEY, hello(now), by_files)


def open_at_once(now: int, secret: str, by_files: bool) -> Opening:
    """Return an opening whose welcome is the same at every instant."""
    return Opening(KEY, hello(0), by_files)


def made() -> c.Contact:
    return c.Contact(open_with, lambda: 0.5)


def entered() -> c.Contact:
    contact = made()
    contact.found(0, RelayAddress(["a", "b"], 1))
    contact.connected(0, "a")
    contact.arrived(0)
    contact.received(0, CHALLENGE)
    contact.received(0, welcome(0))
    return contact


def test_the_first_address_that_accepts_a_connection_may_accept_the_wrapper() -> None:
    contact = made()
    assert contact.found(0, RelayAddress(["a", "b"], 7)) == [c.Try(["a", "b"], 7)]
    assert contact.found(1, RelayAddress(["c"], 7)) == []
    assert contact.connected(100, "b") == [c.Begin([hello(100)])]
    proof, keys = RelayProof(wrapper_proof(KEY, hello(100), CHALLENGE)), session_keys(KEY, hello(100), CHALLENGE)
    assert contact.received(300, CHALLENGE) == [c.Write(proof), c.Secure(keys)]
    assert contact.received(350, welcome(100)) == [c.Entered("b", 500 - 200)]
    assert contact.is_in
    assert contact.received(400, Heartbeat()) == []
    assert contact.received(400, RELEASE) == [c.Received(RELEASE)]


def test_an_address_that_refuses_the_wrapper_is_tried_last() -> None:
    contact = made()
    contact.found(0, RelayAddress(["a", "b"], 1))
    contact.connected(0, "a")
    assert contact.tick(5 * SECOND) == [c.Drop()]
    assert contact.tick(5 * SECOND + c.FIRST_RETRY) == [c.Seek()]
    assert contact.found(6 * SECOND, RelayAddress(["a", "b"], 1)) == [c.Try(["b"], 1)]
    contact.connected(6 * SECOND, "b")
    contact.broken(6 * SECOND)
    assert contact.found(7 * SECOND, RelayAddress(["a", "b"], 1)) == [c.Try(["a", "b"], 1)]


@pytest.mark.parametrize(
    "said",
    [
        [RELEASE],
        [Stop()],
        [welcome(0)],
        [CHALLENGE, RELEASE],
        [CHALLENGE, CHALLENGE],
        [CHALLENGE, RelayWelcome(500, "")],
        [CHALLENGE, welcome(0)._replace(clock=7)],
        [CHALLENGE, welcome(1)],
        [CHALLENGE._replace(nonce="another"), welcome(0)],
    ],
    ids=[
        "a release at once", "a stop at once", "a welcome at once", "a release for a proof", "a second challenge",
        "no proof", "another clock", "to another hello", "another challenge's",
    ],
)  # fmt: skip
def test_an_address_without_a_valid_proof_is_tried_last_and_its_messages_ignored(said: list[Any]) -> None:
    contact = made()
    contact.found(0, RelayAddress(["a", "b"], 1, secret="s"))
    contact.connected(0, "a")
    for message in said[:-1]:
        contact.received(0, message)
    assert contact.received(0, said[-1]) == [c.Drop()]
    assert contact.received(0, RELEASE) == contact.received(0, welcome(0)) == []
    assert not contact.is_in
    assert contact.tick(c.FIRST_RETRY) == [c.Seek()]
    assert contact.found(SECOND, RelayAddress(["a", "b"], 1, secret="s")) == [c.Try(["b"], 1)]


def test_bridges_of_the_head_node_are_tried_if_no_other_address_answers() -> None:
    contact, place = made(), RelayAddress(["a", "b"], 1, secret="s", last=["bridge"])
    assert contact.found(0, place) == [c.Try(["a", "b"], 1)]
    contact.unreachable(0)
    assert contact.found(1, place) == [c.Try(["bridge"], 1)]
    contact.unreachable(1)
    assert contact.found(2, place) == [c.Try(["a", "b"], 1)]
    contact.broken(5 * SECOND)  # no address answered in time
    assert contact.found(6 * SECOND, place) == [c.Try(["bridge"], 1)]
    contact.connected(6 * SECOND, "bridge")
    contact.broken(6 * SECOND)
    assert contact.found(7 * SECOND, place) == [c.Try(["a", "b"], 1)]


def test_waits_grow_to_a_limit_and_start_again_after_a_session() -> None:
    contact, now, waits = made(), 0, []
    for _ in range(12):
        assert contact.found(now, RelayAddress([], 0)) == []
        due = contact.next_wakeup()
        assert due is not None
        waits.append(due - now)
        now = due
        assert contact.tick(now) == [c.Seek()]
    assert waits == sorted(waits)
    assert (waits[0], waits[-1]) == (c.FIRST_RETRY, c.LAST_RETRY)
    again = entered()
    assert again.broken(9) == [c.Drop(), c.Lost(0)]
    assert again.next_wakeup() == 9 + c.FIRST_RETRY


def test_a_silent_relay_is_dropped_and_one_with_a_heartbeat_is_not() -> None:
    contact, now = entered(), 0
    while now < 100 * SECOND:
        now += 10 * SECOND
        contact.arrived(now)
        assert contact.tick(now) == [c.Write(Heartbeat())]
    assert contact.tick(now + c.SILENCE) == [c.Drop(), c.Lost(now)]


happenings = st.lists(
    st.tuples(
        st.sampled_from(
            ("found", "nothing", "connected", "unreachable", "challenge", "welcome", "release", "broken", "tick")
        ),
        st.integers(0, 40 * SECOND),
    ),
    max_size=60,
)


@given(happenings)
def test_in_any_order_only_a_welcome_begins_a_session_and_the_search_never_ends(steps: list[tuple[str, int]]) -> None:
    contact, now = c.Contact(open_at_once, lambda: 0.5), 0
    connected = let_in = False
    sought = True  # the relay's file is about to be read
    for what, pause in steps:
        now += pause
        actions = _happen(contact, what, now, connected)
        kinds = [type(action) for action in actions]
        connected = (connected or c.Begin in kinds) and c.Drop not in kinds
        let_in = (let_in or c.Entered in kinds) and c.Drop not in kinds
        sought = (sought or c.Seek in kinds) and what not in ("found", "nothing")
        assert contact.is_in == let_in
        assert connected or not let_in
        assert sought or contact.next_wakeup() is not None


def _happen(contact: c.Contact, what: str, now: int, connected: bool) -> list[Any]:
    if what == "found":
        return contact.found(now, RelayAddress(["a", "b"], 1))
    if what == "nothing":
        return contact.found(now, RelayAddress([], 0))
    if what == "connected":
        return contact.connected(now, "a") if contact.is_trying else []
    if what == "unreachable":
        return contact.unreachable(now)
    if what in ("challenge", "welcome", "release"):
        said = {"challenge": CHALLENGE, "welcome": welcome(0), "release": RELEASE}[what]
        return contact.received(now, said) if connected else []
    return contact.broken(now) if what == "broken" else contact.tick(now)


def tried_in_vain(contact: c.Contact, seconds: int, touched: bool) -> list[Any]:
    """Return all warnings within `seconds` while the relay's address file names a port without an answer."""
    now, said = 0, list(contact.found(0, RelayAddress(["a"], 1, "", 1.0)))
    while now < seconds * SECOND:
        due = contact.next_wakeup()
        assert due is not None
        now = due
        for action in contact.tick(now):
            said.append(action)
            if isinstance(action, c.Seek):
                said += contact.found(now, RelayAddress(["a"], 1, "", 1.0 + now if touched else 1.0))
    return [action for action in said if isinstance(action, c.ShutOut)]


def test_an_unreachable_relay_of_a_running_kcm_is_reported_once_after_a_while() -> None:
    def sought() -> c.Contact:
        return c.Contact(open_with, lambda: 0.5, 30 * SECOND)

    assert tried_in_vain(sought(), 29, touched=True) == []
    assert tried_in_vain(sought(), 300, touched=True) == [c.ShutOut(["a"], 1)]
    assert tried_in_vain(sought(), 300, touched=False) == []


def test_a_relay_that_accepts_connections_and_refuses_wrappers_is_reported_too() -> None:
    """A relay that does not serve this network does so."""
    contact, now, said = c.Contact(open_with, lambda: 0.5, 30 * SECOND), 0, []
    while now < 60 * SECOND:
        contact.found(now, RelayAddress(["a"], 1, "", 1.0 + now))
        contact.connected(now, "a")
        said += contact.broken(now)
        now += SECOND
    assert [action for action in said if isinstance(action, c.ShutOut)] == [c.ShutOut(["a"], 1)]


def test_a_wrapper_that_had_a_session_never_reports_an_unreachable_relay() -> None:
    contact = c.Contact(open_with, lambda: 0.5, 30 * SECOND)
    contact.found(0, RelayAddress(["a"], 1))
    contact.connected(0, "a")
    contact.received(0, CHALLENGE)
    contact.received(0, welcome(0))
    contact.broken(0)
    contact.tick(SECOND)
    assert tried_in_vain(contact, 300, touched=True) == []


def test_a_relay_by_files_has_longer_time_outs() -> None:
    contact = made()
    assert contact.found(0, RelayAddress([], 0, "/directory")) == [c.Try([], 0, "/directory")]
    proof = RelayProof(wrapper_proof(KEY, hello(0), RelayChallenge(0, "")))
    assert contact.connected(0, "/directory", 75 * SECOND) == [c.Begin([hello(0), proof])]
    assert contact.tick(74 * SECOND) == []
    assert contact.tick(75 * SECOND) == [c.Drop()]
