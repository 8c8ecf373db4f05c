"""Letters between a wrapper and its KCM: in order, each once, whatever is interleaved, fails or crashes on the way."""

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
from koalapy_adapters.messages import (
    RELAY_PROTOCOL,
    Heartbeat,
    PutKey,
    RelayHello,
    Release,
    ReportMessage,
    Stop,
    from_json,
)
from koalapy_adapters.wrapper.relay.file_client import Exchanged, FileRelayClient
from koalapy_adapters.wrapper.relay.handshake import Handshake, Opening, Welcomed

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # where hundreds of examples wait for no disk
TAG, OTHER = "kabcde000000001", "kabcde000000002"
TOKENS = {TAG: b"secret", OTHER: b"another"}
SECRET = "of this KCM"


class Broken(Files):
    """This machine's files, which fail when told to: before an operation has any effect, or after it."""

    def __init__(self) -> None:
        self.full = self.gone = False
        self.fate: Callable[[], str] = lambda: ""  # of the next change: "", "before" or "after"

    def write(self, path: str, data: bytes, mode: int = 0o600, lasting: bool = True) -> None:
        self._refuse(self.full, errno.ENOSPC)
        self._fated(lambda: super(Broken, self).write(path, data, mode, lasting))

    def rename(self, source: str, target: str) -> None:
        self._fated(lambda: super(Broken, self).rename(source, target))

    def unlink(self, path: str) -> None:
        self._fated(lambda: super(Broken, self).unlink(path))

    def names(self, directory: str) -> list[str]:
        self._refuse(self.gone, errno.ESTALE)
        return super().names(directory)

    def read(self, path: str) -> bytes:
        self._refuse(self.gone, errno.ESTALE)
        return super().read(path)

    def _fated(self, act: Callable[[], None]) -> None:
        self._refuse(self.gone, errno.ESTALE)
        fate = self.fate()
        self._refuse(fate == "before", errno.EIO)
        act()
        self._refuse(fate == "after", errno.EIO)

    def _refuse(self, refused: bool, number: int) -> None:
        if refused:
            raise OSError(number, os.strerror(number))


class Scene:
    """One server, and the file clients of two attempts."""

    def __init__(self, directory: Path, epoch: int = 1) -> None:
        self.own = directory
        self.files = Broken()
        for tag in TOKENS:
            (directory / tag).mkdir(parents=True, exist_ok=True)
        self.server = self.open(epoch)
        self.boxes = {tag: FileRelayClient(str(directory / tag), tag, self.files) for tag in TOKENS}
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
        assert self.boxes[tag].open_session(self.server.path, opening.first)
        assert self.round() == [WrapperConnected(tag, 5)]
        self.round()
        assert [type(opening.received(7, said)) for said in self.heard(tag)] == [Welcomed]

    def round(self, *told: tuple[str, Any], after: int = 0) -> list[Any]:
        self.now += after
        return self.server.round(self.now, told).outcomes

    def exchange(self, *messages: Any, tag: str = TAG) -> Exchanged:
        return self.boxes[tag].exchange(list(messages))

    def heard(self, tag: str = TAG) -> list[Any]:
        return [from_json(each) for each in self.exchange(tag=tag).heard]

    def names(self) -> list[str]:
        return sorted(name for name in os.listdir(self.server.path) if name != message_files.ALIVE)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def opened(tag: str, token: str, secret: str = SECRET, clock: int = 5) -> Opening:
    return Handshake(tag, token).open(clock, secret, by_files=True)


def put(number: int) -> PutKey:
    return PutKey(TAG, str(number), "")


def test_a_visit_from_knock_to_leave(scene: Scene) -> None:
    scene.enter()
    scene.exchange(ReportMessage({"phase": "started"}), put(1))
    scene.exchange(put(2))
    assert scene.round() == [
        WrapperReported(TAG, {"phase": "started"}),
        WrapperPut(TAG, "1", ""),
        WrapperPut(TAG, "2", ""),
    ]
    scene.round((TAG, Release(1, TAG, 0, [])), (TAG, Stop()), (OTHER, Stop()))
    assert scene.heard() == [Release(1, TAG, 0, []), Stop()]
    assert scene.heard() == []
    scene.boxes[TAG].leave([ReportMessage({"phase": "ended"})])
    assert scene.round() + scene.round() == [
        WrapperReported(TAG, {"phase": "ended"}),
        WrapperDisconnected(TAG, closed=True),
    ]
    assert scene.names() == []
    assert list((scene.own / TAG / "post").iterdir()) == []


@pytest.mark.parametrize(
    "said",
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
        "another token", "another protocol", "another's", "to another KCM", "no proof", "another's proof", "no hello",
        "no message", "no type",
    ],
)  # fmt: skip
def test_who_is_not_let_in_learns_only_that(scene: Scene, said: list[Any]) -> None:
    session = message_files.FileSession(TAG, "0" * 16)
    path = os.path.join(scene.server.path, message_files.hello_name(session, 0))
    texts = [json.dumps(each) if isinstance(each, dict | int) else message_files.as_text(each) for each in said]
    message_files.write(path, texts, scene.files)
    assert scene.round() == []
    assert scene.names() == []
    assert not (scene.own / TAG / "post").exists()


@pytest.mark.parametrize("data", [b"", b"[", b"{}", b"\xff", b"[5]", b'[{"type": "stop", "force": 1}]'])
def test_what_is_no_letter_ends_the_visit(scene: Scene, data: bytes) -> None:
    scene.enter()
    session = message_files.FileSession(TAG, scene.names()[0].split(".")[1])
    Path(scene.server.path, message_files.message_name(session, 0)).write_bytes(data)
    assert scene.round() == [WrapperDisconnected(TAG)]
    assert scene.exchange(Heartbeat()).over
    scene.round()
    assert scene.names() == []


def test_one_that_beats_stays_and_one_that_is_silent_is_hung_up_on_and_comes_again(scene: Scene) -> None:
    scene.enter()
    for _ in range(10):
        scene.exchange(Heartbeat())
        assert scene.round(after=10 * SECOND) == []
    assert scene.round(after=file_relay.SILENCE) == [WrapperDisconnected(TAG)]
    assert scene.exchange(Heartbeat()).over
    scene.enter()


def test_a_wrapper_sees_that_its_kcm_lives_and_that_it_is_gone(scene: Scene) -> None:
    scene.enter()
    assert not scene.exchange().sign
    scene.round(after=file_relay.BEAT)
    assert scene.exchange().sign
    assert not scene.exchange().sign
    scene.server.close()
    assert scene.exchange().over


def test_a_second_knock_of_an_attempt_throws_the_first_out(scene: Scene) -> None:
    scene.enter()
    again = FileRelayClient(str(scene.own / TAG), TAG, scene.files)
    again.open_session(scene.server.path, opened(TAG, "secret", clock=6).first)
    assert scene.round() == [WrapperConnected(TAG, 6)]
    scene.round()
    assert len(scene.names()) == 1
    assert scene.exchange(Heartbeat()).over
    assert not again.exchange([Heartbeat()]).over


def test_on_a_full_disk_beats_go_on_and_what_was_to_be_said_is_said_when_there_is_room(scene: Scene) -> None:
    scene.enter()
    scene.files.full = True
    for number in range(3):
        assert not scene.exchange(put(number), Heartbeat()).over
        assert scene.round((TAG, Stop()), after=10 * SECOND) == []
    scene.files.full = False
    assert [from_json(each) for each in scene.exchange().heard] == []
    assert scene.round() == [WrapperPut(TAG, str(number), "") for number in range(3)]
    assert scene.heard() == [Stop()] * 3


def test_while_the_shared_directory_is_out_of_reach_nobody_is_silent(scene: Scene) -> None:
    scene.enter()
    scene.files.gone = True
    assert scene.round(after=10 * file_relay.SILENCE) == []
    assert scene.exchange(put(1)) == Exchanged()
    scene.files.gone = False
    assert scene.round(after=SECOND) == []
    scene.exchange()
    assert scene.round() == [WrapperPut(TAG, "1", "")]


def test_a_newer_kcms_office_replaces_the_older_ones_of_its_cluster_alone(scene: Scene) -> None:
    scene.enter()
    other = scene.own / file_relay.name("there", 1, "0")
    other.mkdir()
    newer = scene.open(2)
    file_relay.clear(str(scene.own), "here", 2, scene.files)
    assert scene.exchange(put(1)).over
    with pytest.raises(RelayRemoved):
        scene.round()
    file_relay.clear(str(scene.own), "here", 1, scene.files)
    assert os.path.isdir(newer.path)
    assert other.is_dir()


def test_an_attempt_whose_directory_has_gone_is_not_made_again(scene: Scene) -> None:
    scene.enter()
    scene.files.remove(str(scene.own / TAG))
    scene.round((TAG, Stop()))
    assert not (scene.own / TAG).exists()
    assert scene.round(after=file_relay.SILENCE) == [WrapperDisconnected(TAG)]


def test_what_was_left_half_written_is_passed_over(scene: Scene) -> None:
    scene.enter()
    session = message_files.FileSession(TAG, scene.names()[0].split(".")[1])
    Path(scene.server.path, message_files.message_name(session, 0) + ".node.17").write_bytes(b"[")
    Path(scene.server.path, message_files.message_name(session, 1)).write_bytes(b"[]")
    scene.exchange(put(1))
    assert scene.round() == [WrapperPut(TAG, "1", "")]


def test_many_wrappers_cost_one_list_a_round(scene: Scene) -> None:
    scene.enter(TAG)
    scene.enter(OTHER)
    calls: list[str] = []

    class Counting(Broken):
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
    st.sampled_from(["put", "tell", "exchange", "round", "before", "after", "full", "room", "beat"]), max_size=60
)


@settings(max_examples=200)
@given(steps)
def test_whatever_fails_in_between_all_arrives_once_and_in_order(
    steps: list[str],
) -> None:
    """Lost replies included: a change that is told to have failed may have been made."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
        _all_arrives(Scene(Path(directory)), steps)


def _all_arrives(scene: Scene, steps: list[str]) -> None:
    scene.enter()
    written: list[Any] = []
    told: list[Any] = []
    heard_here: list[Any] = []
    heard_there: list[Any] = []
    over = False
    fates: list[str] = []
    scene.files.fate = lambda: fates.pop() if fates else ""

    def exchange(*messages: Any) -> bool:
        done = scene.exchange(*messages)
        heard_there.extend(from_json(each) for each in done.heard)
        return done.over

    for number, step in enumerate([*steps, "mend", "exchange", "round", "exchange", "round", "exchange"]):
        if step == "put":
            written.append(put(number))
            over = exchange(put(number)) or over
        elif step == "tell":
            told.append(PutKey(TAG, str(number), "told"))
            heard_here += scene.round((TAG, told[-1]))
        elif step == "exchange":
            over = exchange() or over
        elif step == "beat":
            over = exchange(Heartbeat()) or over
        elif step == "round":
            heard_here += scene.round(after=SECOND)
        elif step in ("before", "after"):
            fates.append(step)
        else:
            scene.files.full = step == "full"
            fates = [] if step == "mend" else fates
        if over:
            return  # a beat whose reply was lost: the contact begins anew, and says all again
    assert heard_here == [WrapperPut(TAG, each.key, "") for each in written]
    assert heard_there == told


def test_the_files_are_for_their_owner_alone(scene: Scene) -> None:
    scene.enter()
    scene.exchange(put(1))
    for path in (Path(scene.server.path), scene.own / TAG / "post"):
        assert path.stat().st_mode & 0o777 == 0o700
        assert all(each.stat().st_mode & 0o077 == 0 for each in path.iterdir())
