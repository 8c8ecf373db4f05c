"""`relay: files` between real processes: a KCM, its successor, and wrappers that know neither head node nor port."""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kcm_connection as far
import pytest
from koalapy_adapters.connections.pack import packed
from koalapy_adapters.contract.dialogue import program
from koalapy_adapters.messages import to_json
from koalapy_adapters.messages.kcm import Done, ParametersEnded, PutKey, Submitted
from koalapy_adapters.messages.koalad import Cancel, FeedSweep, Forget, Release, Submit
from koalapy_adapters.messages.relay import RELAY_PROTOCOL, RelayHello, RelayProof

from koalapy.model.identity import FIRST_LAUNCHER, AttemptId, InstanceId, JobId, tag_of

INSTANCE, TAGS = far.INSTANCE, far.TAGS
LAUNCHER = str(tag_of(InstanceId(INSTANCE), AttemptId(JobId(FIRST_LAUNCHER), 0, 1)))
SWEEP = 7
SPACE = {"axes": [{"count": 9, "sources": [{"names": ["x"], "loop": ["1", "9", "1"]}]}]}


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pushed") / "pushed.pyz"
    path.write_bytes(packed().data)
    return path


@pytest.fixture
def connect(tmp_path: Path, pyz: Path) -> Iterator[Callable[..., Any]]:
    """Opens connections with growing epochs; whatever is left in the queue at the end is cancelled."""
    opened: list[Any] = []

    def open_one(known: list[list[str]] | None = None) -> Any:
        opened.append(far.Koalad(tmp_path / "shared", pyz))
        welcome = opened[-1].hello(epoch=len(opened), known=known or [], relay="files")
        assert welcome.error is None
        return opened[-1]

    yield open_one
    last = open_one()
    for tag in (*TAGS, LAUNCHER):
        last.request(Cancel, tag, force=True)
        last.gone(tag)
    last.hang_up()
    for koalad in opened:
        if not koalad.process.stdin.closed:
            koalad.ended()  # by itself, since it was replaced


def release(koalad: Any, tag: str) -> None:
    address = koalad.report(tag, "at_barrier").nodes[0][1]
    assert isinstance(koalad.answer(Release, tag, 0, [[0, address, 1]]), Done)


def directory(koalad: Any) -> Path:
    relay = json.loads((koalad.shared / INSTANCE / "relay.here.json").read_text())
    assert relay["port"] == 0
    return Path(koalad.shared / INSTANCE / relay["post"])


def test_a_job_from_submit_to_forget_leaves_no_letter(connect: Callable[..., Any]) -> None:
    koalad = connect()
    assert isinstance(koalad.submit(TAGS[0], "$KOALA_RENDEZVOUS get word"), Submitted)
    release(koalad, TAGS[0])
    koalad.report(TAGS[0], "running")
    koalad.send(PutKey(TAGS[0], "word", "said"))
    ended = koalad.report(TAGS[0], "ended")
    assert (ended.ending, ended.exit_status) == ("exited", 0)
    assert koalad.fetch(TAGS[0], "output")[0] == b"said\n"
    assert isinstance(koalad.answer(Forget, TAGS[0]), Done)
    assert not (koalad.shared / INSTANCE / TAGS[0]).exists()
    far.await_file(directory(koalad) / "alive")
    assert koalad.hang_up() == 0


def test_the_next_kcm_has_an_office_of_its_own_and_finds_the_wrapper_again(connect: Callable[..., Any]) -> None:
    first = connect()
    first.submit(TAGS[0], "until [ -e go ]; do sleep 0.05; done")
    at_barrier = first.report(TAGS[0], "at_barrier")
    before = directory(first)
    first.process.kill()
    first.ended()
    second = connect([[TAGS[0], at_barrier.batch_id]])
    assert not before.exists()
    assert second.report(TAGS[0], "at_barrier").nodes == at_barrier.nodes
    second.answer(Release, TAGS[0], 0, [[0, at_barrier.nodes[0][1], 1]])
    second.report(TAGS[0], "running")
    (second.shared / INSTANCE / TAGS[0] / "work" / "go").touch()
    assert second.report(TAGS[0], "ended").exit_status == 0


def test_a_kcm_that_was_replaced_ends_by_itself(connect: Callable[..., Any]) -> None:
    older = connect()
    connect()
    assert older.ended() == 0
    assert "A newer KCM is at work on this cluster" in older.said


def test_a_client_without_a_token_is_disconnected_and_sent_nothing(
    connect: Callable[..., Any], await_that: Callable[..., Any]
) -> None:
    koalad = connect()
    koalad.submit(TAGS[0], "sleep 600")
    koalad.report(TAGS[0], "at_barrier")
    attempt, hello = koalad.shared / INSTANCE / TAGS[0], f"{TAGS[0]}.{'0' * 16}.hello.0"
    answers = set(os.listdir(attempt / "post"))
    new = koalad.shared / INSTANCE / "new"
    said = RelayHello(RELAY_PROTOCOL, TAGS[0], 0, "0" * 32), RelayProof("0" * 64)
    new.write_text(json.dumps([to_json(each) for each in said]))
    new.rename(directory(koalad) / hello)
    await_that(lambda: not (directory(koalad) / hello).exists())
    assert not {name for name in os.listdir(attempt / "post") if name.startswith("0" * 16)} - answers
    koalad.request(Cancel, TAGS[0])
    assert koalad.report(TAGS[0], "ended").ending == "cancelled"


def test_what_a_launcher_sends_goes_by_files_and_on_to_the_next_kcm(
    connect: Callable[..., Any], tmp_path: Path
) -> None:
    """Parameter 3 runs when its KCM is killed; nothing is run a second time."""
    first = connect()
    ran, gate = tmp_path / "ran", tmp_path / "gate"
    held = f"[ $0 != 3 ] || until [ -e {gate} ]; do sleep 0.05; done; echo $0 >>{ran}"
    sweep = {"sweep": SWEEP, "space": SPACE, "slots": 2}
    component = program(held, 2, arguments=["-c", held, "{#}"], launch="once", sweep=sweep)
    submitted = first.answer(Submit, LAUNCHER, {"processors": 2, "walltime_s": 120}, component)
    assert isinstance(submitted, Submitted)
    release(first, LAUNCHER)
    first.send(FeedSweep(SWEEP, [[1, 6]], True, [LAUNCHER]))
    first.wait(ParametersEnded, lambda _: done(first) == {1, 2, 4, 5, 6})
    first.process.kill()
    first.ended()
    second = connect([[LAUNCHER, submitted.batch_id]])
    second.send(FeedSweep(SWEEP, [[3, 3], [7, 9]], True, [LAUNCHER]))
    second.wait(ParametersEnded, lambda _: done(second) >= {7, 8, 9})
    assert 3 not in done(second)
    gate.touch()
    second.wait(ParametersEnded, lambda _: 3 in done(second))
    assert sorted(ran.read_text().split()) == [str(number) for number in range(1, 10)]
    second.request(Cancel, LAUNCHER)
    assert second.report(LAUNCHER, "ended").ending == "cancelled"


def done(koalad: Any) -> set[int]:
    """Stop as ordered; messages that koalad had not acknowledged to the KCM before are sent again."""
    return {row[0] for message in koalad.log if isinstance(message, ParametersEnded) for row in message.results}
