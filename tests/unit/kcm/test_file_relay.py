"""The file relay between a wrapper and its KCM: every message arrives once and in order, whatever fails."""

import errno
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koalapy_adapters import message_files
from koalapy_adapters.files import Files
from koalapy_adapters.kcm.relay import file_relay
from koalapy_adapters.kcm.relay.authentication import Accounts, Authenticator
from koalapy_adapters.kcm.relay.file_relay import FileRelayServer, RelayDirectory, RelayRemoved
from koalapy_adapters.kcm.state.actions import (
    SECOND,
    WrapperConnected,
    WrapperDisconnected,
    WrapperPut,
    WrapperReported,
)
from koalapy_adapters.messages import from_json
from koalapy_adapters.messages.kcm import PutKey
from koalapy_adapters.messages.koalad import Release
from koalapy_adapters.messages.relay import RELAY_PROTOCOL, Heartbeat, RelayHello, ReportMessage, Stop
from koalapy_adapters.wrapper.relay.file_client import Exchanged, FileRelayClient
from koalapy_adapters.wrapper.relay.handshake import Handshake, Opening, Welcomed

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # for hundreds of examples without a disk
TAG, OTHER = "kabcde000000001", "kabcde000000002"
TOKENS = {TAG: b"secret", OTHER: b"another"}
SECRET = "of this KCM"


class FaultyFiles(Files):
    """Real files whose operations fail on demand, before they have an effect or after it."""

    def __init__(self) -> None:
        self.full = self.unreachable = False
        self.fate: Callable[[], str] = lambda: ""  # when the next change fails: "" (never), "before" or "after"

    def write(self, path: str, data: bytes, mode: int = 0o600, lasting: bool = True) -> None:
        self._fail_if(self.full, errno.ENOSPC)
        self._change(lambda: super(FaultyFiles, self).write(path, data, mode, lasting))

    def rename(self, source: str, target: str) -> None:
        self._change(lambda: super(FaultyFiles, self).rename(source, target))

    def unlink(self, path: str) -> None:
        self._change(lambda: super(FaultyFiles, self).unlink(path))

    def names(self, directory: str) -> list[str]:
        self._fail_if(self.unreachable, errno.ESTALE)
        return super().names(directory)

    def read(self, path: str) -> bytes:
        self._fail_if(self.unreachable, errno.ESTALE)
        return super().read(path)

    def _change(self, act: Callable[[], None]) -> None:
        self._fail_if(self.unreachable, errno.ESTALE)
        fate = self.fate()
        self._fail_if(fate == "before", errno.EIO)
        act()
        self._fail_if(fate == "after", errno.EIO)

    def _fail_if(self, refused: bool, number: int) -> None:
        if refused:
            raise OSError(number, os.strerror(number))


class Scene:
    """One server, and the file clients of two attempts."""

    def __init__(self, directory: Path, epoch: int = 1) -> None:
        self.own = directory
        self.files = FaultyFiles()
        for tag in TOKENS:
            (directory / tag).mkdir(parents=True, exist_ok=True)
        self.server = self.open(epoch)
        self.clients = {tag: FileRelayClient(str(directory / tag), tag, self.files) for tag in TOKENS}
        self.now = 0

    def open(self, epoch: int) -> FileRelayServer:
        path = self.own / file_relay.name("here", epoch, "0")
        authenticator = Authenticator(Accounts(TOKENS.get), SECRET, self.files.unpredictable)
        made = FileRelayServer(
            RelayDirectory(str(path), lambda tag: str(self.own / tag), authenticator, lambda: False), self.files
        )
        made.open()
        return made

    def enter(self, tag: str = TAG) -> None:
        opening = opened(tag, TOKENS[tag].decode())
        assert self.clients[tag].open_session(self.server.path, opening.first)
        assert self.round() == [WrapperConnected(tag, 5)]
        self.round()
        assert [type(opening.received(7, each)) for each in self.messages(tag)] == [Welcomed]

    def round(self, *outgoing: tuple[str, Any], after: int = 0) -> list[Any]:
        self.now += after
        return self.server.round(self.now, outgoing).outcomes

    def exchange(self, *messages: Any, tag: str = TAG) -> Exchanged:
        return self.clients[tag].exchange(list(messages))

    def messages(self, tag: str = TAG) -> list[Any]:
        return [from_json(each) for each in self.exchange(tag=tag).received]

    def names(self) -> list[str]:
        return sorted(name for name in os.listdir(self.server.path) if name != message_files.ALIVE)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def opened(tag: str, token: str, secret: str = SECRET, clock: int = 5) -> Opening:
    return Handshake(tag, token).open(clock, secret, by_files=True)


def put(number: int) -> PutKey:
    return PutKey(TAG, str(number), "")


def test_a_file_session_from_its_hello_to_its_end(scene: Scene) -> None:
    scene.enter()
    scene.exchange(ReportMessage({"phase": "started"}), put(1))
    scene.exchange(put(2))
    assert scene.round() == [
        WrapperReported(TAG, {"phase": "started"}),
        WrapperPut(TAG, "1", ""),
        WrapperPut(TAG, "2", ""),
    ]
    scene.round((TAG, Release(1, TAG, 0, [])), (TAG, Stop()), (OTHER, Stop()))
    assert scene.messages() == [Release(1, TAG, 0, []), Stop()]
    assert scene.messages() == []
    scene.clients[TAG].leave([ReportMessage({"phase": "ended"})])
    assert scene.round() + scene.round() == [
        WrapperReported(TAG, {"phase": "ended"}),
        WrapperDisconnected(TAG, closed=True),
    ]
    assert scene.names() == []
    assert list((scene.own / TAG / "post").iterdir()) == []


@pytest.mark.parametrize(
    "hello",
    [
        opened(TAG, "guessed").first,
        [RelayHello(RELAY_PROTOCOL + 1, TAG, 5, "0"), opened(TAG, "secret").first[1]],
        opened(OTHER, "another").first,
        opened(TAG, "secret", "of another KCM").first,
        opened(TAG, "secret").first[:1],
        [opened(TAG, "secret").first[0]._replace(clock=6), opened(TAG, "secret").first[1]],
        [Heartbeat()],
        [{"type": "relay_hello"}],
        [{"type": ["relay_hello"]}, 5],
    ],
    ids=[
        "another token", "another protocol", "of another attempt", "for another KCM", "no proof", "another proof",
        "no hello", "no message", "no type",
    ],
)  # fmt: skip
def test_a_refused_hello_leaves_no_files(scene: Scene, hello: list[Any]) -> None:
    session = message_files.FileSession(TAG, "0" * 16)
    path = os.path.join(scene.server.path, message_files.hello_name(session, 0))
    texts = [json.dumps(each) if isinstance(each, dict | int) else message_files.as_text(each) for each in hello]
    message_files.write(path, texts, scene.files)
    assert scene.round() == []
    assert scene.names() == []
    assert not (scene.own / TAG / "post").exists()


@pytest.mark.parametrize("data", [b"", b"[", b"{}", b"\xff", b"[5]", b'[{"type": "stop", "force": 1}]'])
def test_an_invalid_message_file_ends_the_session(scene: Scene, data: bytes) -> None:
    scene.enter()
    session = message_files.FileSession(TAG, scene.names()[0].split(".")[1])
    Path(scene.server.path, message_files.message_name(session, 0)).write_bytes(data)
    assert scene.round() == [WrapperDisconnected(TAG)]
    assert scene.exchange(Heartbeat()).ended
    scene.round()
    assert scene.names() == []


def test_a_client_with_a_heartbeat_stays_and_a_silent_one_has_to_open_a_new_session(scene: Scene) -> None:
    scene.enter()
    for _ in range(10):
        scene.exchange(Heartbeat())
        assert scene.round(after=10 * SECOND) == []
    assert scene.round(after=file_relay.SILENCE) == [WrapperDisconnected(TAG)]
    assert scene.exchange(Heartbeat()).ended
    scene.enter()


def test_a_wrapper_sees_the_beat_of_its_kcm_and_the_removal_of_the_relay(scene: Scene) -> None:
    scene.enter()
    assert not scene.exchange().sign
    scene.round(after=file_relay.BEAT)
    assert scene.exchange().sign
    assert not scene.exchange().sign
    scene.server.close()
    assert scene.exchange().ended


def test_a_second_session_of_an_attempt_ends_the_first(scene: Scene) -> None:
    scene.enter()
    again = FileRelayClient(str(scene.own / TAG), TAG, scene.files)
    again.open_session(scene.server.path, opened(TAG, "secret", clock=6).first)
    assert scene.round() == [WrapperConnected(TAG, 6)]
    scene.round()
    assert len(scene.names()) == 1
    assert scene.exchange(Heartbeat()).ended
    assert not again.exchange([Heartbeat()]).ended


def test_on_a_full_disk_heartbeats_go_on_and_messages_wait_for_room(scene: Scene) -> None:
    scene.enter()
    scene.files.full = True
    for number in range(3):
        assert not scene.exchange(put(number), Heartbeat()).ended
        assert scene.round((TAG, Stop()), after=10 * SECOND) == []
    scene.files.full = False
    assert [from_json(each) for each in scene.exchange().received] == []
    assert scene.round() == [WrapperPut(TAG, str(number), "") for number in range(3)]
    assert scene.messages() == [Stop()] * 3


def test_no_client_is_silent_while_the_shared_directory_is_unreachable(scene: Scene) -> None:
    scene.enter()
    scene.files.unreachable = True
    assert scene.round(after=10 * file_relay.SILENCE) == []
    assert scene.exchange(put(1)) == Exchanged()
    scene.files.unreachable = False
    assert scene.round(after=SECOND) == []
    scene.exchange()
    assert scene.round() == [WrapperPut(TAG, "1", "")]


def test_a_newer_kcms_relay_replaces_the_older_ones_of_its_cluster_only(scene: Scene) -> None:
    scene.enter()
    other = scene.own / file_relay.name("there", 1, "0")
    other.mkdir()
    newer = scene.open(2)
    file_relay.clear(str(scene.own), "here", 2, scene.files)
    assert scene.exchange(put(1)).ended
    with pytest.raises(RelayRemoved):
        scene.round()
    file_relay.clear(str(scene.own), "here", 1, scene.files)
    assert os.path.isdir(newer.path)
    assert other.is_dir()


def test_the_removed_directory_of_an_attempt_is_not_made_again(scene: Scene) -> None:
    scene.enter()
    scene.files.remove(str(scene.own / TAG))
    scene.round((TAG, Stop()))
    assert not (scene.own / TAG).exists()
    assert scene.round(after=file_relay.SILENCE) == [WrapperDisconnected(TAG)]


def test_an_incomplete_message_file_is_ignored(scene: Scene) -> None:
    scene.enter()
    session = message_files.FileSession(TAG, scene.names()[0].split(".")[1])
    Path(scene.server.path, message_files.message_name(session, 0) + ".node.17").write_bytes(b"[")
    Path(scene.server.path, message_files.message_name(session, 1)).write_bytes(b"[]")
    scene.exchange(put(1))
    assert scene.round() == [WrapperPut(TAG, "1", "")]


def test_a_round_lists_the_directory_once_for_all_wrappers(scene: Scene) -> None:
    scene.enter(TAG)
    scene.enter(OTHER)
    calls: list[str] = []

    class Counting(FaultyFiles):
        def __getattribute__(self, name: str) -> Any:
            if name in ("read", "write", "rename", "link", "unlink", "names", "modified", "exists", "use", "touch"):
                calls.append(name)
            return super().__getattribute__(name)

    scene.server._files = Counting()
    scene.exchange(Heartbeat(), tag=TAG)
    scene.exchange(Heartbeat(), tag=OTHER)
    scene.round()
    assert calls == ["names"]


steps = st.lists(
    st.sampled_from(["put", "send", "exchange", "round", "before", "after", "full", "room", "beat"]), max_size=60
)


@settings(max_examples=200)
@given(steps)
def test_after_any_failures_all_messages_arrive_once_and_in_order(
    steps: list[str],
) -> None:
    """Replies may be lost: a change that failed for its caller may have been made."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        _check_all_arrive(Scene(Path(directory)), steps)


def _check_all_arrive(scene: Scene, steps: list[str]) -> None:
    scene.enter()
    written: list[Any] = []
    sent: list[Any] = []
    at_server: list[Any] = []
    at_client: list[Any] = []
    over = False
    fates: list[str] = []
    scene.files.fate = lambda: fates.pop() if fates else ""

    def exchange(*messages: Any) -> bool:
        done = scene.exchange(*messages)
        at_client.extend(from_json(each) for each in done.received)
        return done.ended

    for number, step in enumerate([*steps, "mend", "exchange", "round", "exchange", "round", "exchange"]):
        if step == "put":
            written.append(put(number))
            over = exchange(put(number)) or over
        elif step == "send":
            sent.append(PutKey(TAG, str(number), "sent"))
            at_server += scene.round((TAG, sent[-1]))
        elif step == "exchange":
            over = exchange() or over
        elif step == "beat":
            over = exchange(Heartbeat()) or over
        elif step == "round":
            at_server += scene.round(after=SECOND)
        elif step in ("before", "after"):
            fates.append(step)
        else:
            scene.files.full = step == "full"
            fates = [] if step == "mend" else fates
        if over:
            return  # the reply to a heartbeat was lost: the next session repeats everything
    assert at_server == [WrapperPut(TAG, each.key, "") for each in written]
    assert at_client == sent


def test_only_their_owner_can_read_the_files(scene: Scene) -> None:
    scene.enter()
    scene.exchange(put(1))
    for path in (Path(scene.server.path), scene.own / TAG / "post"):
        assert path.stat().st_mode & 0o777 == 0o700
        assert all(each.stat().st_mode & 0o077 == 0 for each in path.iterdir())
