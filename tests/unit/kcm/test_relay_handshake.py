"""The relay's handshake: wrapper and KCM prove to each other who they are; strangers at either end learn nothing."""

import hashlib
import hmac
import json
from typing import Any

import pytest
from kcm_connection import Stranger
from koalapy_adapters import handshake, proofs
from koalapy_adapters.channel import MAX_CLEAR, Channel
from koalapy_adapters.frames import MAX_CONTROL, FrameError
from koalapy_adapters.kcm.relay.authentication import Accounts, Admitted, Authenticator, Challenged
from koalapy_adapters.messages import to_json
from koalapy_adapters.messages.koalad import Release
from koalapy_adapters.messages.relay import RELAY_PROTOCOL, RelayChallenge, RelayHello, RelayProof, RelayWelcome, Stop
from koalapy_adapters.wrapper.relay.handshake import Answer, Handshake, Opening, Welcomed

TAG, OTHER = "kabcde000000001", "kabcde000000002"
TOKENS = {TAG: b"secret", OTHER: b"another"}
SECRET = "5" * 64
KCM_CLOCK = 700


def authenticator(secret: str = SECRET) -> Authenticator:
    nonces = (f"{number:032x}" for number in range(100))
    return Authenticator(Accounts(TOKENS.get), secret, lambda size: next(nonces))


def opened(secret: str = SECRET, token: str = "secret", tag: str = TAG) -> Opening:
    return Handshake(tag, token).open(5, secret, by_files=False)


def challenged(opening: Opening, kcm: Authenticator | None = None) -> Challenged:
    made = (kcm or authenticator()).challenge(KCM_CLOCK, to_json(opening.first[0]))
    assert made is not None
    return made


def answered(opening: Opening, asked: Challenged) -> Answer:
    answer = opening.received(9, asked.challenge)
    assert isinstance(answer, Answer)
    return answer


def admitted(opening: Opening, asked: Challenged, proof: Any = None) -> Admitted | None:
    shown = proof if proof is not None else to_json(answered(opening, asked).proof)
    return authenticator().admit(asked, shown)


def test_each_proves_itself_to_the_other_and_neither_shows_what_it_knows() -> None:
    opening = opened()
    asked = challenged(opening)
    answer = answered(opening, asked)
    let_in = authenticator().admit(asked, to_json(answer.proof))
    assert let_in is not None
    assert (let_in.tag, let_in.clock) == (TAG, 5)
    assert let_in.keys == answer.keys
    assert let_in.keys.wrapper != let_in.keys.kcm
    assert opening.received(11, let_in.welcome) == Welcomed(KCM_CLOCK - (5 + 9) // 2)
    said = json.dumps([to_json(each) for each in (*opening.first, asked.challenge, answer.proof, let_in.welcome)])
    for known in ("secret", SECRET, *(key.hex() for key in let_in.keys)):
        assert known not in said


@pytest.mark.parametrize(
    "opening",
    [opened(token="guessed"), opened(secret="6" * 64), opened(tag=OTHER), opened(tag="kabcde000000003")],
    ids=["another token", "an older KCM's secret", "another's tag", "nobody's tag"],
)
def test_who_does_not_know_both_is_not_let_in(opening: Opening) -> None:
    assert admitted(opening, challenged(opening)) is None


@pytest.mark.parametrize(
    "change",
    [{"tag": OTHER}, {"clock": 6}, {"nonce": "0" * 32}],
    ids=["another's tag", "another clock", "another nonce"],
)
def test_a_proof_is_of_the_hello_that_it_follows(change: dict[str, Any]) -> None:
    opening = opened()
    asked = challenged(opening)
    proof = to_json(answered(opening, asked).proof)
    assert admitted(opening, asked._replace(hello=asked.hello._replace(**change)), proof) is None


@pytest.mark.parametrize("change", [{"clock": 6}, {"nonce": "f" * 32}], ids=["another clock", "another nonce"])
def test_a_proof_is_of_the_challenge_that_it_answers(change: dict[str, Any]) -> None:
    """Recorded, it is of no use against another."""
    opening = opened()
    asked = challenged(opening)
    proof = to_json(answered(opening, asked).proof)
    assert admitted(opening, asked._replace(challenge=asked.challenge._replace(**change)), proof) is None


def test_two_hellos_have_two_challenges() -> None:
    kcm, opening = authenticator(), opened()
    assert challenged(opening, kcm).challenge != challenged(opening, kcm).challenge


@pytest.mark.parametrize(
    "proof",
    [None, "", 5, "\ud800", ["0"], "0" * 64],
    ids=["none", "empty", "a number", "half a character", "a list", "guessed"],
)
def test_what_is_no_proof_lets_nobody_in(proof: Any) -> None:
    opening = opened()
    assert admitted(opening, challenged(opening), {"type": "relay_proof", "proof": proof}) is None


@pytest.mark.parametrize(
    "data",
    [
        None, [], 5, {}, {"type": None}, {"type": []}, {"type": "relay_hello"}, to_json(Stop()),
        to_json(RelayProof("")), to_json(RelayHello(RELAY_PROTOCOL, TAG, 5, "0"))["type"],
        to_json(RelayHello(RELAY_PROTOCOL + 1, TAG, 5, "0")), to_json(RelayHello(RELAY_PROTOCOL, [TAG], 5, "0")),  # type: ignore[arg-type]
        to_json(RelayHello(RELAY_PROTOCOL, TAG, "5", "0")), to_json(RelayHello(RELAY_PROTOCOL, TAG, 5, {})),  # type: ignore[arg-type]
        to_json(RelayHello(RELAY_PROTOCOL, TAG * 100, 5, "0")),
    ],
)  # fmt: skip
def test_what_is_no_hello_of_this_protocol_is_not_answered(data: Any) -> None:
    assert authenticator().challenge(0, data) is None


def test_an_attempt_without_a_token_lets_nobody_in() -> None:
    nobody = Authenticator(Accounts(lambda tag: b""), SECRET, lambda size: "0")
    opening = opened(token="")
    asked = challenged(opening, nobody)
    assert nobody.admit(asked, to_json(answered(opening, asked).proof)) is None


def test_a_welcome_is_accepted_with_both_secrets_and_for_this_hello() -> None:
    opening = opened()
    asked = challenged(opening)
    answered(opening, asked)
    let_in = admitted(opened(), asked)
    assert let_in is None
    hello, key = opening.first[0], handshake.relay_key(SECRET, b"secret")
    true = RelayWelcome(KCM_CLOCK, handshake.kcm_proof(key, hello, asked.challenge))
    for strangers in (
        true._replace(clock=8),
        true._replace(proof=handshake.wrapper_proof(key, hello, asked.challenge)),
        true._replace(proof=handshake.kcm_proof(handshake.relay_key("6" * 64, b"secret"), hello, asked.challenge)),
        true._replace(proof=handshake.kcm_proof(handshake.relay_key(SECRET, b"guessed"), hello, asked.challenge)),
        true._replace(proof=handshake.kcm_proof(key, hello, asked.challenge._replace(nonce="1"))),
        true._replace(proof=handshake.kcm_proof(key, opened().first[0], asked.challenge)),
        true._replace(proof=None),  # type: ignore[arg-type]
        true._replace(clock=None),  # type: ignore[arg-type]
        asked.challenge,
        Stop(),
    ):
        assert opening.received(11, strangers) is None
    assert opening.received(11, true) is not None


def test_keys_are_derived_as_rfc_5869_has_it() -> None:
    """Its third test case has neither salt nor purpose; openssl kdf HKDF gives the same."""
    keyed = proofs.derive_key(b"\x0b" * 22, b"", b"")
    assert keyed.hex() == "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d"


def test_the_wire_is_as_it_is_written_down() -> None:
    """The messages of a wrapper of this protocol must stay as they are, or RELAY_PROTOCOL must change."""
    hello, challenge = RelayHello(2, TAG, 5, "ab"), RelayChallenge(7, "cd")
    key = hmac.new(b"00", b"secret", hashlib.sha256).digest()
    assert handshake.relay_key("00", b"secret") == key
    said = b"7:wrapper,1:2,15:kabcde000000001,1:5,2:ab,1:7,2:cd,"
    assert handshake.wrapper_proof(key, hello, challenge) == hmac.new(key, said, hashlib.sha256).hexdigest()
    channel = Channel()
    channel.secure(b"w" * 32, b"k" * 32)
    header, body = b"S\x00\x00\x00\x1f", b'{"type":"beat"}'
    for number in range(2):
        counted = number.to_bytes(8, "big") + header + body
        seal = hmac.new(b"w" * 32, counted, hashlib.sha256).digest()[:16]
        assert channel.encode({"type": "beat"}) == header + body + seal


# ---- frames after the proof


def ends() -> tuple[Channel, Channel]:
    one, other = Channel(), Channel()
    one.secure(b"a" * 32, b"b" * 32)
    other.secure(b"b" * 32, b"a" * 32)
    return one, other


def arrived(channel: Channel, *frames: bytes) -> list[Any]:
    """Return what this end accepts of these frames, until it ends the connection."""
    said: list[Any] = []
    for frame in frames:
        channel.feed(frame)
        try:
            while (data := channel.take()) is not None:
                said.append(data)
        except FrameError:
            return [*said, "ended"]
    return said


def test_sealed_frames_arrive_in_order_however_they_are_cut() -> None:
    one, other = ends()
    data = b"".join(one.encode({"number": number}) for number in range(3))
    pieces = [data[at : at + 7] for at in range(0, len(data), 7)]
    assert arrived(other, *pieces) == [{"number": 0}, {"number": 1}, {"number": 2}]


def test_a_frame_that_was_injected_changed_repeated_left_out_or_moved_ends_the_connection() -> None:
    one, _ = ends()
    first, second, third = (one.encode({"number": number}) for number in range(3))
    clear = Channel().encode({"number": 0})
    own = ends()[1].encode({"number": 0})  # of the direction back
    for frames, accepted in (
        ([clear], 0),
        ([own], 0),
        ([first[:-1] + b"\0"], 0),
        ([first.replace(b"0", b"1")], 0),
        ([b"S" + first[1:5] + first[5:-16] + b"\0" * 16], 0),
        ([b"S\0\0\0\0"], 0),
        ([first, first], 1),
        ([first, third], 1),
        ([second, first], 0),
        ([first, second, clear], 2),
    ):
        said = arrived(ends()[1], *frames)
        assert said == [{"number": number} for number in range(accepted)] + ["ended"], frames


def test_what_follows_the_proof_must_be_sealed_though_it_came_with_it() -> None:
    one, other = Channel(), Channel()
    other.feed(one.encode({"last": "clear"}) + one.encode({"not": "sealed"}))
    assert other.take() == {"last": "clear"}
    other.secure(b"b" * 32, b"a" * 32)
    with pytest.raises(FrameError):
        other.take()


def test_before_the_proof_a_frame_is_short_and_nothing_of_a_longer_one_is_waited_for() -> None:
    channel = Channel()
    channel.feed(b"J" + (MAX_CLEAR + 1).to_bytes(4, "big"))
    with pytest.raises(FrameError):
        channel.take()
    sealed = ends()[0]
    sealed.feed(b"S" + (MAX_CONTROL + 17).to_bytes(4, "big"))
    with pytest.raises(FrameError):
        sealed.take()


# ---- a stranger at the port of a relay that is gone, whose wrapper is real


def test_a_process_on_the_port_of_a_relay_learns_no_token_and_is_not_accepted(world: Any) -> None:
    first, attempt = world.relay(), world.attempt("exit 0", processors=1)
    attempt.start()
    at_barrier = first.report(attempt, "at_barrier")
    hello = first.hellos.get()
    first.close()
    orders = Release(1, attempt.tag, 0, [[0, "127.0.0.1", 1]]), Stop(force=True)
    challenge = RelayChallenge(7, "0" * 32)
    forged = handshake.kcm_proof(handshake.relay_key("0" * 64, attempt.token.encode()), hello, challenge)
    with Stranger(first.port) as stranger:
        for said in (orders, (RelayWelcome(7, ""), *orders), (challenge, RelayWelcome(7, forged), *orders)):
            again, *_ = stranger.answer(*said)
            assert again.nonce != hello.nonce
    for known in (attempt.token, first.secret):
        assert known.encode() not in stranger.arrived
    second = world.relay()
    assert second.report(attempt, "at_barrier") == at_barrier
    second.release(attempt)
    assert attempt.wait() == 0
