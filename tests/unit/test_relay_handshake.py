"""The relay's handshake: wrapper and KCM prove to each other who they are; strangers at either end learn nothing."""

import json
from typing import Any

import pytest
from kcm_connection import Stranger
from koalapy_adapters import proofs
from koalapy_adapters.kcm.door import Door
from koalapy_adapters.messages import (
    PROTOCOL,
    Enter,
    Knock,
    ProvenEnter,
    ProvenKnock,
    Release,
    Stop,
    to_json,
)
from koalapy_adapters.wrapper.handshake import Handshake

TAG, OTHER = "kabcde000000001", "kabcde000000002"
TOKENS = {TAG: b"secret", OTHER: b"another"}
SECRET = "5" * 64


def door(secret: str = SECRET) -> Door:
    return Door(TOKENS.get, secret)


def knocked(secret: str = SECRET, token: str = "secret") -> Any:
    return Handshake(TAG, token).greeting(5, secret).knock


def test_each_proves_itself_to_the_other_and_neither_shows_what_it_knows() -> None:
    knock, believes = Handshake(TAG, "secret").greeting(5, SECRET)
    admitted = door().admit(knock)
    assert admitted is not None
    assert (admitted.tag, admitted.clock) == (TAG, 5)
    enter = admitted.told(Enter(PROTOCOL, 7))
    assert believes(enter)
    assert admitted.told(Stop()) == Stop()
    said = json.dumps([to_json(knock), to_json(enter)])
    assert "secret" not in said
    assert SECRET not in said


@pytest.mark.parametrize(
    "knock",
    [
        knocked(token="guessed"),
        knocked(secret="6" * 64),
        knocked()._replace(tag=OTHER),
        knocked()._replace(clock=6),
        knocked()._replace(nonce="0" * 32),
        knocked()._replace(proof=""),
        knocked()._replace(proof="\ud800"),
        knocked()._replace(proof=None),
        knocked()._replace(protocol=PROTOCOL + 1),
        knocked()._replace(tag="kabcde000000003"),
        knocked()._replace(tag=["kabcde000000001"]),
        Knock(PROTOCOL, TAG, "\ud800", 5),
        Knock(PROTOCOL, TAG, "", 5),
        Enter(PROTOCOL, 5),
    ],
    ids=[
        "another token", "an older KCM's secret", "another's tag", "another clock", "another nonce", "no proof",
        "half a character", "none", "another protocol", "nobody's tag", "no tag", "half a token",
        "no token", "no knock",
    ],
)  # fmt: skip
def test_who_does_not_know_both_is_not_let_in(knock: Any) -> None:
    assert door().admit(knock) is None


def test_an_attempt_without_a_token_lets_nobody_in() -> None:
    nobody = Door(lambda tag: b"", SECRET)
    assert nobody.admit(Knock(PROTOCOL, TAG, "", 5)) is None
    assert nobody.admit(knocked(token="")) is None


def test_leave_to_enter_is_believed_of_who_knows_both_and_heard_this_knock() -> None:
    greeting = Handshake(TAG, "secret").greeting(5, SECRET)
    nonce, key = greeting.knock.nonce, proofs.relay_key(SECRET, b"secret")
    true = ProvenEnter(PROTOCOL, 7, proofs.of_enter(key, 7, nonce))
    assert greeting.believes(true)
    for strangers in (
        true._replace(clock=8),
        true._replace(proof=greeting.knock.proof),
        true._replace(proof=proofs.of_enter(proofs.relay_key("6" * 64, b"secret"), 7, nonce)),
        true._replace(proof=proofs.of_enter(proofs.relay_key(SECRET, b"guessed"), 7, nonce)),
        true._replace(proof=proofs.of_enter(key, 7, Handshake(TAG, "secret").greeting(5, SECRET).knock.nonce)),
        true._replace(proof=None),
        Enter(PROTOCOL, 7),
        Stop(),
    ):
        assert not greeting.believes(strangers)


def test_an_older_wrapper_is_let_in_by_its_token_and_told_nothing_new() -> None:
    admitted = door().admit(Knock(PROTOCOL, TAG, "secret", 5))
    assert admitted is not None
    assert admitted.told(Enter(PROTOCOL, 7)) == Enter(PROTOCOL, 7)


def test_an_older_kcm_is_shown_the_token() -> None:
    greeting = Handshake(TAG, "secret").greeting(5, "")
    assert greeting.knock == Knock(PROTOCOL, TAG, "secret", 5)
    assert greeting.believes(Enter(PROTOCOL, 7))


def test_the_wire_is_what_wrappers_of_other_releases_expect() -> None:
    """Those that run when koalapy is replaced: they refuse a message that lacks a field or has one more.

    `openssl dgst -sha256 -mac HMAC` gives the same proofs.
    """
    key = proofs.relay_key("00" * 32, b"secret")
    assert [to_json(said) for said in (Knock(1, TAG, "secret", 5), Enter(1, 7))] == [
        {"type": "knock", "protocol": 1, "tag": TAG, "token": "secret", "clock": 5},
        {"type": "enter", "protocol": 1, "clock": 7},
    ]
    assert to_json(ProvenKnock(1, TAG, 5, "ab", proofs.of_knock(key, TAG, 5, "ab"))) == {
        "type": "proven_knock",
        "protocol": 1,
        "tag": TAG,
        "clock": 5,
        "nonce": "ab",
        "proof": "3829ae43b5a29c8b0681ca3e84d4e15674ee3822186f0c1c27e704e7cf5d925a",
    }
    assert to_json(ProvenEnter(1, 7, proofs.of_enter(key, 7, "ab"))) == {
        "type": "proven_enter",
        "protocol": 1,
        "clock": 7,
        "proof": "58a142ee066c7acf9a3251c25e4b324674cdfc844c252e349c57e621d945f690",
    }


# ---- a stranger at the port of a relay that is gone, whose wrapper is real


def test_who_takes_the_port_of_a_relay_learns_no_token_and_is_not_heard(world: Any) -> None:
    first, attempt = world.relay(), world.attempt("exit 0", processors=1)
    attempt.start()
    at_barrier = first.report(attempt, "at_barrier")
    knock = first.knocks.get()
    assert isinstance(knock, ProvenKnock)
    first.close()
    orders = Release(1, attempt.tag, 0, [[0, "127.0.0.1", 1]]), Stop(force=True)
    proof = proofs.of_enter(proofs.relay_key("0" * 64, attempt.token.encode()), 7, knock.nonce)
    with Stranger(first.port) as stranger:
        for leave in (Enter(PROTOCOL, 7), ProvenEnter(PROTOCOL, 7, ""), ProvenEnter(PROTOCOL, 7, proof)):
            again = stranger.answer(*orders, leave, *orders)
            assert again.nonce != knock.nonce
    for known in (attempt.token, first.secret):
        assert known.encode() not in stranger.heard
    second = world.relay()
    assert second.report(attempt, "at_barrier") == at_barrier
    second.release(attempt)
    assert attempt.wait() == 0


def test_a_wrapper_that_comes_to_a_relay_of_an_older_release_shows_its_token(world: Any) -> None:
    relay, attempt = world.relay(older=True), world.attempt("exit 0", processors=1)
    attempt.start()
    relay.release(attempt)
    assert attempt.wait() == 0
    assert relay.knocks.get()[:3] == (PROTOCOL, attempt.tag, attempt.token)
