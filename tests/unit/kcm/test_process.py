"""The KCM as a process behind pipes, with the embedded queue and real jobs, wrappers and files."""

import contextlib
import hashlib
import json
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kcm_connection as far
import pytest
from koalapy_adapters.connections.pack import packed
from koalapy_adapters.frames import Chunk, Control
from koalapy_adapters.kcm.shared_directory.pushed_files import compiled_path, write_compiled
from koalapy_adapters.messages import PROTOCOL
from koalapy_adapters.messages.files import Fetch, Stat, Store
from koalapy_adapters.messages.kcm import CleanedUp, Done, Fetched, Measured, Pong, PutKey, Refused, Submitted, Welcome
from koalapy_adapters.messages.koalad import Cancel, Clean, Examine, Forget, Hello, Ping, Release, Tags
from koalapy_adapters.messages.relay import RelayChallenge, RelayHello, RelayProof, RelayWelcome, ReportMessage, Stop
from koalapy_adapters.wrapper.relay.handshake import Handshake

INSTANCE = far.INSTANCE
TAGS = far.TAGS
Koalad = far.Koalad
await_file = far.await_file


@pytest.fixture(scope="session")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pushed") / "pushed.pyz"
    path.write_bytes(packed().data)
    return path


@pytest.fixture
def connect(tmp_path: Path, pyz: Path) -> Iterator[Callable[[], Any]]:
    """Open connections to the same shared directory. In the end, the jobs that are left in its queue are cancelled."""
    opened: list[Any] = []

    def open_one(shared: Path = tmp_path / "shared") -> Any:
        opened.append(Koalad(shared, pyz))
        return opened[-1]

    yield open_one
    for koalad in opened:
        if koalad.process.poll() is None:
            koalad.hang_up()
    if (tmp_path / "shared" / "local-queue").exists():
        last = open_one()
        last.hello(epoch=99)
        for tag in TAGS:
            last.request(Cancel, tag, force=True)
            last.gone(tag)
        assert last.hang_up() == 0


def test_a_job_starts_from_the_compiled_copy_that_an_earlier_kcm_made(
    connect: Callable[[], Any], tmp_path: Path
) -> None:
    pushed = tmp_path / "shared" / "bin" / f"{packed().digest}.pyz"
    pushed.parent.mkdir(parents=True)
    pushed.write_bytes(packed().data)
    copy = compiled_path(str(pushed))
    assert copy is not None
    write_compiled(str(pushed), copy)
    koalad = connect()
    assert koalad.hello().error is None
    koalad.submit(TAGS[0], "true", processors=2)
    barrier = koalad.report(TAGS[0], "at_barrier")
    koalad.answer(Release, TAGS[0], 0, [[0, barrier.nodes[0][1], 2]])
    assert koalad.report(TAGS[0], "ended").exit_status == 0
    assert copy in (tmp_path / "shared" / INSTANCE / TAGS[0] / "script").read_text()


def test_a_job_from_submit_to_forget(connect: Callable[[], Any]) -> None:
    koalad = connect()
    assert koalad.hello().error is None
    assert isinstance(koalad.submit(TAGS[0], "echo rank $KOALA_RANK; echo oops >&2", processors=2), Submitted)
    barrier = koalad.report(TAGS[0], "at_barrier")
    address = barrier.nodes[0][1]
    assert isinstance(koalad.answer(Release, TAGS[0], 0, [[0, address, 2]]), Done)
    ended = koalad.report(TAGS[0], "ended")
    assert (ended.ending, ended.exit_status) == ("exited", 0)
    assert None not in (ended.released_at, ended.started_at, ended.ended_at)
    output, end = koalad.fetch(TAGS[0], "output")
    assert (output, end.size) == (b"rank 0\nrank 1\n", 14)
    assert koalad.fetch(TAGS[0], "errors")[0] == b"oops\noops\n"
    assert isinstance(koalad.answer(Forget, TAGS[0]), Done)
    assert not (koalad.shared / INSTANCE / TAGS[0]).exists()
    assert isinstance(koalad.answer(Forget, TAGS[0]), Done)
    pong = koalad.answer(Ping, 0)
    assert isinstance(pong, Pong)
    assert pong.cost > 0
    assert koalad.hang_up() == 0


def test_files_of_the_shared_directory_have_their_modes(connect: Callable[[], Any]) -> None:
    koalad = connect()
    koalad.hello()
    koalad.submit(TAGS[0], "true")
    attempt = koalad.shared / INSTANCE / TAGS[0]
    paths = [
        attempt,
        *(attempt / name for name in ("token", "component.json", "script")),
    ]  # other files are made and removed meanwhile
    modes = {path.name: path.stat().st_mode & 0o777 for path in paths}
    assert (modes[TAGS[0]], modes["token"], modes["component.json"], modes["script"]) == (0o700, 0o600, 0o600, 0o700)
    token = (attempt / "token").read_text()
    assert token not in (attempt / "script").read_text() + (attempt / "component.json").read_text()


def test_a_queued_job_that_is_cancelled_never_runs(connect: Callable[[], Any]) -> None:
    koalad = connect()
    koalad.hello()
    koalad.submit(TAGS[0], "sleep 600", processors=2)
    koalad.report(TAGS[0], "at_barrier")
    assert isinstance(koalad.submit(TAGS[1], "touch ran"), Submitted)
    koalad.request(Cancel, TAGS[1])
    koalad.gone(TAGS[1])
    claim = json.loads((koalad.shared / INSTANCE / TAGS[1] / "start-lock").read_text())
    assert claim["kind"] == "void"
    koalad.request(Cancel, TAGS[0])
    koalad.gone(TAGS[0])
    assert not (koalad.shared / INSTANCE / TAGS[1] / "work" / "ran").exists()
    assert json.loads((koalad.shared / INSTANCE / TAGS[0] / "record.json").read_text())["ending"] == "cancelled"


def test_a_running_program_is_ended_by_cancel(connect: Callable[[], Any]) -> None:
    koalad = connect()
    koalad.hello()
    koalad.submit(TAGS[0], "trap '' TERM; echo $$ > pid; while :; do sleep 1; done")
    release(koalad, TAGS[0])
    koalad.report(TAGS[0], "running")
    pid = koalad.shared / INSTANCE / TAGS[0] / "work" / "pid"
    koalad.request(Cancel, TAGS[0])
    assert koalad.report(TAGS[0], "ended").ending == "cancelled"
    koalad.wait(CleanedUp)
    assert not Path("/proc", pid.read_text().strip() if pid.exists() else "none").exists()


def test_the_wrapper_connects_to_the_next_kcm(connect: Callable[[], Any]) -> None:
    first = connect()
    first.hello(epoch=1)
    submitted = first.submit(TAGS[0], "echo done")
    first.report(TAGS[0], "at_barrier")
    assert first.hang_up() == 0
    second = connect()
    second.hello(epoch=2, known=[[TAGS[0], submitted.batch_id]])
    assert second.submit(TAGS[0], "echo done", doubt=True).batch_id == submitted.batch_id
    second.send(PutKey(TAGS[0], "port", "1"))
    second.report(TAGS[0], "at_barrier")
    release(second, TAGS[0])
    assert second.report(TAGS[0], "ended").exit_status == 0


def test_an_end_while_no_kcm_runs_is_read_from_the_exit_record(connect: Callable[[], Any]) -> None:
    first = connect()
    first.hello(epoch=1)
    submitted = first.submit(TAGS[0], "while [ ! -e go ]; do sleep 0.05; done; exit 3")
    release(first, TAGS[0])
    first.report(TAGS[0], "running")
    assert first.hang_up() == 0
    attempt = first.shared / INSTANCE / TAGS[0]
    (attempt / "work" / "go").touch()
    await_file(attempt / "record.json")
    second = connect()
    second.hello(epoch=2, known=[[TAGS[0], submitted.batch_id]])
    ended = second.report(TAGS[0], "ended")
    assert (ended.ending, ended.exit_status) == ("exited", 3)


def test_a_killed_kcm_loses_no_attempt(connect: Callable[[], Any]) -> None:
    first = connect()
    first.hello(epoch=1)
    first.submit(TAGS[0], "echo once >> count")
    first.process.send_signal(signal.SIGKILL)
    first.ended()
    second = connect()
    second.hello(epoch=2)
    assert isinstance(second.submit(TAGS[0], "echo once >> count", doubt=True), Submitted)
    release(second, TAGS[0])
    second.report(TAGS[0], "ended")
    assert second.fetch(TAGS[0], "work", "count")[0] == b"once\n"


def test_a_kcm_of_a_lower_epoch_ends(connect: Callable[[], Any]) -> None:
    newer, older = connect(), connect()
    newer.hello(epoch=5)
    welcome = older.hello(epoch=4)
    assert welcome.error is not None
    assert welcome.error["code"] == "stale"
    assert older.ended() == 0
    replaced = connect()
    replaced.hello(epoch=6)
    if newer.submit(TAGS[0], "true") is not None:  # it may end before it has answered
        assert newer.wait(object, lambda message: message is None) is None
    assert newer.ended() == 0
    assert "newer KCM is at work on this cluster" in newer.said


def test_files_in_and_out_keep_bytes_and_mode(connect: Callable[[], Any]) -> None:
    koalad = connect()
    koalad.hello()
    data = bytes(range(256)) * 9_000  # more chunks than the first credit
    script = b"#!/bin/sh\ncp data.bin copy.bin && chmod 640 copy.bin && cp data.bin ../output/slot-0.out\n"
    assert koalad.store(data) == Done(1)
    assert koalad.store(script) == Done(2)
    assert koalad.answer(Store, hashlib.sha256(data).hexdigest(), len(data)) == Done(3, have=True)
    digests = [hashlib.sha256(content).hexdigest() for content in (data, script)]
    staged = [["data.bin", digests[0], 0o600], ["sub/run", digests[1], 0o750]]
    koalad.submit(TAGS[0], "./sub/run", staged=staged)
    release(koalad, TAGS[0])
    assert koalad.report(TAGS[0], "ended").exit_status == 0
    copied, end = koalad.fetch(TAGS[0], "work", "copy.bin")
    assert (copied == data, end.mode) == (True, 0o640)
    assert koalad.fetch(TAGS[0], "work", "copy.bin", offset=len(data) - 10)[0] == data[-10:]
    assert koalad.fetch(TAGS[0], "slot", "slot-0.out", offset=3, size=5)[0] == data[3:8]
    assert koalad.fetch(TAGS[0], "work", "copy.bin", offset=len(data) - 2, size=5)[0] == data[-2:]
    sizes = koalad.answer(Stat, TAGS[0], ["copy.bin", "absent", "../token", "sub"]).details
    assert sizes == {"copy.bin": len(data)}
    assert koalad.fetch(TAGS[0], "work", "../token")[1].error["code"] == "bad_fetch"
    assert koalad.fetch(TAGS[0], "work", "absent")[1].error["code"] == "no_such_file"


def test_a_damaged_file_is_refused_and_leaves_nothing(connect: Callable[[], Any]) -> None:
    koalad = connect()
    koalad.hello()
    number = koalad.request(Store, "0" * 64, 3)
    koalad.write(Chunk(number, 0, b"abc"))
    koalad.write(Chunk(number, 1, b""))
    refused = koalad.wait(Refused)
    assert (refused.id, refused.error["code"]) == (number, "stage_damaged")
    assert list((koalad.shared / INSTANCE / "stage").iterdir()) == []


def test_output_is_followed_to_its_end(connect: Callable[[], Any]) -> None:
    koalad = connect()
    koalad.hello()
    koalad.submit(TAGS[0], "echo first; while [ ! -e go ]; do sleep 0.05; done; printf last")
    release(koalad, TAGS[0])
    number = koalad.request(Fetch, TAGS[0], "output", follow=True, positions=[[0, 2]])
    assert koalad.wait(Chunk).data == b"[0,4]\nrst\n"
    (koalad.shared / INSTANCE / TAGS[0] / "work" / "go").touch()
    assert koalad.wait(Chunk).data == b"[0,4]\nlast"
    assert koalad.wait(Fetched) == Fetched(number, 20)
    koalad.request(Fetch, TAGS[0], "output", follow=True)
    assert koalad.wait(Refused).error["code"] == "bad_fetch"


def test_a_fetch_that_is_no_longer_read_ends(connect: Callable[[], Any]) -> None:
    koalad = connect()
    koalad.hello()
    koalad.submit(TAGS[0], "echo first; while [ ! -e go ]; do sleep 0.05; done; echo last")
    release(koalad, TAGS[0])
    number = koalad.request(Fetch, TAGS[0], "output", follow=True, positions=[])
    koalad.wait(Chunk)
    koalad.write(Chunk(number, 0, b""))
    (koalad.shared / INSTANCE / TAGS[0] / "work" / "go").touch()
    koalad.report(TAGS[0], "ended")
    assert (
        koalad.fetch(TAGS[0], "output")[0] == b"first\nlast\n"
    )  # this later request is answered, while the fetch sends nothing
    koalad.request(Ping, 0)
    assert isinstance(
        koalad.wait(
            object,
            lambda said: isinstance(said, Pong) or number in (getattr(said, "id", 0), getattr(said, "stream", 0)),
        ),
        Pong,
    )


def test_the_relay_refuses_a_wrapper_without_the_token(connect: Callable[[], Any]) -> None:
    koalad = connect()
    koalad.hello()
    koalad.submit(TAGS[0], "sleep 600", processors=2)
    koalad.report(TAGS[0], "at_barrier")
    relay = relay_of(koalad)
    token = (koalad.shared / INSTANCE / TAGS[0] / "token").read_text()
    strangers = [(TAGS[0], "0" * 64, relay["secret"]), (TAGS[0], token, "0"), ("../" + TAGS[0], token, relay["secret"])]
    for tag, known, secret in strangers:
        assert not far.lets_in(relay["port"], tag, known, secret)
    assert far.lets_in(relay["port"], TAGS[0], token, relay["secret"])


def test_a_recorded_session_of_a_wrapper_cannot_be_replayed_while_its_kcm_runs(connect: Callable[[], Any]) -> None:
    koalad = connect()
    koalad.hello()
    koalad.submit(TAGS[0], "exit 3")
    koalad.report(TAGS[0], "at_barrier")
    relay, token = relay_of(koalad), (koalad.shared / INSTANCE / TAGS[0] / "token").read_text()
    ended = {"tag": TAGS[0], "batch_id": "", "phase": "ended", "nodes": [], "ending": "exited", "exit_status": 0}
    with far.Line(relay["port"]) as recorded:  # as the wrapper, which connects again and replaces this connection
        assert recorded.enter(Handshake(TAGS[0], token).open(0, relay["secret"], by_files=False))
        recorded.channel.encode({})  # this frame is lost, so that the next one is refused
        recorded.send(ReportMessage(ended))
        assert recorded.receive() is None
    with far.Line(relay["port"]) as replayed:
        replayed.send_bytes(recorded.sent)
        assert isinstance(replayed.receive(), RelayChallenge)
        assert replayed.receive() is None
    release(koalad, TAGS[0])
    assert koalad.report(TAGS[0], "ended").exit_status == 3


def test_strangers_that_send_much_take_little_memory_and_keep_no_wrapper_out(
    connect: Callable[[], Any],
) -> None:
    """255 strangers send a frame of 1 MiB each, without its last bytes."""
    koalad = connect()
    koalad.hello()
    koalad.submit(TAGS[0], "exit 0")
    koalad.report(TAGS[0], "at_barrier")
    relay, token = relay_of(koalad), (koalad.shared / INSTANCE / TAGS[0] / "token").read_text()
    before = resident_bytes(koalad)
    with contextlib.ExitStack() as stack:
        for number in range(255):
            source = (f"127.0.0.{2 + number // 32}", 0)
            stranger = stack.enter_context(socket.create_connection(("127.0.0.1", relay["port"]), 60, source))
            with contextlib.suppress(OSError):
                stranger.sendall(b"J" + (1 << 20).to_bytes(4, "big") + b" " * ((1 << 20) - 10))
        assert resident_bytes(koalad) - before < 8 << 20
        assert far.lets_in(relay["port"], TAGS[0], token, relay["secret"])
    release(koalad, TAGS[0])
    assert koalad.report(TAGS[0], "ended").exit_status == 0


def resident_bytes(koalad: Any) -> int:
    (line,) = (each for each in Path(f"/proc/{koalad.process.pid}/status").read_text().splitlines() if "VmRSS" in each)
    return int(line.split()[1]) * 1024


def test_a_program_that_takes_the_port_of_a_dead_kcm_learns_no_secret(connect: Callable[[], Any]) -> None:
    first = connect()
    first.hello()
    first.submit(TAGS[0], "exit 0")
    batch_id = first.report(TAGS[0], "at_barrier").batch_id
    first.process.kill()
    first.ended()
    with far.Stranger() as stranger:
        of_first = relay_of(first)
        file = first.shared / INSTANCE / "relay.here.json"
        file.write_text(
            json.dumps({**of_first, "port": stranger.port})
        )  # the KCM's own port is in TIME_WAIT for a minute
        (hello,) = stranger.answer(Stop(force=True), RelayWelcome(0, ""), Stop(force=True))
        assert isinstance(hello, RelayHello)
        _, proof = stranger.answer(RelayChallenge(0, "0" * 32), RelayWelcome(0, ""), Stop(force=True))
        assert isinstance(proof, RelayProof)
    token = (first.shared / INSTANCE / TAGS[0] / "token").read_text()
    assert len(token) == 64
    assert token.encode() not in stranger.arrived
    assert of_first["secret"].encode() not in stranger.arrived
    second = connect()
    second.hello(epoch=2, known=[[TAGS[0], batch_id]])
    second.report(TAGS[0], "at_barrier")
    release(second, TAGS[0])
    assert second.report(TAGS[0], "ended").exit_status == 0


def relay_of(koalad: Any) -> Any:
    """Return the contents of the relay's address file."""
    return json.loads((koalad.shared / INSTANCE / "relay.here.json").read_text())


@pytest.mark.parametrize("kind", ["a file in its way", "no directory may be made there"])
def test_an_unreachable_shared_directory_is_an_error_with_its_code(
    kind: str, connect: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    koalad = connect(tmp_path / "file" / "shared" if kind.startswith("a file") else Path("/proc/koala"))
    welcome = koalad.hello()
    assert welcome.error is not None
    assert (welcome.error["code"], welcome.error["whose"]) == ("shared_gone", "cluster")
    refused = koalad.submit(TAGS[0], "true")
    assert isinstance(refused, Refused)
    assert refused.error["code"] == "shared_gone"
    assert koalad.hang_up() == 0


def test_a_shared_directory_that_is_reachable_again_is_used(connect: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "shared").touch()
    koalad = connect()
    assert koalad.hello().error is not None
    (tmp_path / "shared").unlink()
    assert koalad.wait(Welcome).error is None
    assert isinstance(koalad.submit(TAGS[0], "true"), Submitted)


def test_refusals_of_the_batch_system_contain_its_own_words(connect: Callable[[], Any]) -> None:
    koalad = connect()
    koalad.hello()
    refused = koalad.submit(TAGS[0], "true", processors=50)
    assert isinstance(refused, Refused)
    assert refused.error["whose"] in ("request", "cluster")
    assert refused.error["message"]


def test_foreign_tags_are_listed(connect: Callable[[], Any]) -> None:
    first = connect()
    first.hello(epoch=1)
    first.submit(TAGS[0], "sleep 600")
    assert first.hang_up() == 0
    second = connect()
    second.hello(epoch=2)
    details = second.answer(Tags).details
    assert details["directories"] == [TAGS[0]]
    assert details["more"] is False
    assert [job[0] for job in details["queue"]] == [TAGS[0]]
    assert second.answer(Tags, TAGS[0]).details == {"queue": [], "directories": [], "more": False}
    examined = second.answer(Examine, [TAGS[0], TAGS[1]]).details
    assert set(examined) == {TAGS[0]}
    assert second.answer(Clean, TAGS[0], details["queue"][0][1])
    assert second.answer(Tags).details == {"queue": [], "directories": [], "more": False}


def test_an_invalid_message_is_refused_and_does_not_end_the_session(connect: Callable[[], Any]) -> None:
    koalad = connect()
    koalad.hello()
    koalad.write(Control({"type": "submit", "id": 77}))
    refused = koalad.wait(Refused)
    assert (refused.id, refused.error["code"]) == (77, "not_understood")
    koalad.write(Control("nonsense"))
    assert isinstance(koalad.answer(Ping, 0), Pong)
    assert isinstance(koalad.wait(Measured), Measured)


def test_another_protocol_is_refused(connect: Callable[[], Any]) -> None:
    koalad = connect()
    koalad.send(Hello(PROTOCOL + 1, "9", 1, INSTANCE, 0, {"name": "here", "batch": "local"}))
    welcome = koalad.wait(Welcome)
    assert (welcome.protocol, welcome.error["code"]) == (PROTOCOL, "protocol")
    assert koalad.ended() == 0


def release(koalad: Any, tag: str) -> None:
    assert isinstance(koalad.answer(Release, tag, 0, [[0, "127.0.0.1", 1]]), Done)
