"""The terminal of an interactive job's first process, without the rest of its node: one client, and bounded memory."""

import os
import selectors
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from koalapy_adapters.frames import Chunk, Control, encode
from koalapy_adapters.host.event_loop import dispatch_ready
from koalapy_adapters.wrapper.program import terminal as module
from koalapy_adapters.wrapper.program.terminal import LONGEST, REPLAYED, Terminal

from koalapy.cli.attached_terminal import Keys, escape_of
from koalapy.model.errors import RequestError

PATIENCE_S = 30.0


class Held:
    """A terminal, its selector, its output file, and what its program would have as standard descriptors."""

    def __init__(self, file: Any, has_screen: bool) -> None:
        self.selector = selectors.DefaultSelector()
        self.terminal = Terminal(self.selector, has_screen)
        self.file = file
        standard = self.terminal.standard([0, 1, 2])
        self.program = [os.dup(standard[0]), os.dup(standard[1])]
        self.terminal.started(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND))

    def until(self, there: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while not (found := there()):
            assert time.monotonic() < deadline
            dispatch_ready(self.selector, 0.01)
        return found

    def show(self, data: bytes) -> None:
        """Write as the program, which waits for nobody here."""
        os.set_blocking(self.program[1], False)  # the kernel may hand the bytes on later than the write returns
        while data:
            with suppress(BlockingIOError):
                data = data[os.write(self.program[1], data[:2000]) :]
            dispatch_ready(self.selector, 0)
        os.set_blocking(self.program[1], True)

    def read_of(self, client: socket.socket, ends: bytes) -> bytes:
        got = bytearray()

        def read() -> bool:
            try:
                while piece := client.recv(1 << 16):
                    got.extend(piece)
            except BlockingIOError:
                pass
            return got.endswith(ends)

        self.until(read)
        return bytes(got)

    def close(self) -> None:
        for descriptor in self.program:
            os.close(descriptor)
        self.terminal.close()
        assert not self.selector.get_map()
        self.selector.close()


@pytest.fixture(params=[True, False], ids=["terminal", "input"])
def any_kind(tmp_path: Any, request: pytest.FixtureRequest) -> Iterator[Held]:
    made = Held(tmp_path / "out", request.param)
    yield made
    made.close()


@pytest.fixture
def held(tmp_path: Any) -> Iterator[Held]:
    made = Held(tmp_path / "out", True)
    yield made
    made.close()


@pytest.fixture
def piped(tmp_path: Any) -> Iterator[Held]:
    made = Held(tmp_path / "out", False)
    yield made
    made.close()


def typed(client: socket.socket, *frames: Any) -> None:
    client.sendall(b"".join(map(encode, frames)))


def test_keys_reach_the_program_and_what_it_shows_comes_back_and_is_kept(held: Held) -> None:
    client = held.terminal.attach()
    typed(client, Chunk(0, 0, b"a word\n"))
    held.read_of(client, b"a word\r\n")  # the terminal's echo
    assert os.read(held.program[0], 100) == b"a word\n"
    held.show(b"an answer\n")
    held.read_of(client, b"an answer\r\n")
    assert held.file.read_bytes() == b"a word\r\nan answer\r\n"
    client.close()


def test_the_windows_size_is_set_and_a_wrong_one_is_ignored(held: Held) -> None:
    client = held.terminal.attach()
    assert os.get_terminal_size(held.program[0]) == (80, 24)
    wrong: Any
    for wrong in ({"rows": 0, "columns": 7}, {"rows": 1 << 40, "columns": 7}, {"rows": True}, [], "x", None):
        typed(client, Control(wrong))
    typed(client, Control({"rows": 33, "columns": 99}))
    held.until(lambda: os.get_terminal_size(held.program[0]) == (99, 33))
    client.close()


def test_a_client_that_comes_later_sees_the_last_lines_without_questions_to_its_terminal(held: Held) -> None:
    questions = b"\x1b[6n\x1b[c\x1b[>c\x1b]10;?\x07\x1b[?2026$p\x1b[>q\x1b[18t"
    held.show(b"first\n" + questions)
    one = held.terminal.attach()
    assert held.read_of(one, questions) == b"first\r\n" + questions
    held.show(b"%d\n" % 7 * 20_000 + b"\x1b[31mlast" + questions + b"\n")
    two = held.terminal.attach()
    replayed = held.read_of(two, b"\x1b[31mlast\r\n")
    assert replayed.startswith(b"7\r\n")
    assert len(replayed) <= REPLAYED
    held.until(lambda: is_closed(one))
    one.close()
    two.close()


def is_closed(client: socket.socket) -> bool:
    try:
        while client.recv(1 << 16):
            pass
    except BlockingIOError:
        return False
    return True


def test_a_flood_fills_no_memory_with_and_without_a_client(held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST", LONGEST)
    held.show(b"x" * 79 + b"\n" + b"y" * 79 * 1000)
    client = held.terminal.attach()  # takes nothing
    os.set_blocking(held.program[1], False)
    written = 0
    while written < 50_000_000 and (size := os_writes(held.program[1])):
        written += size
        for _ in range(3):
            dispatch_ready(held.selector, 0)
    assert written < 2_000_000  # it waits for its client
    client.close()
    held.until(lambda: os_writes(held.program[1]))  # nobody is there, and it goes on


def os_writes(descriptor: int) -> int:
    """Return how much can be written; 0 if nothing can be now."""
    try:
        return os.write(descriptor, b"z" * 1000)
    except BlockingIOError:
        return 0


def test_the_output_file_has_an_end(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST", 50_000)
    held = Held(tmp_path / "out", True)
    held.show(b"x" * 200_000 + b"\n")
    client = held.terminal.attach()
    held.read_of(client, b"\n")
    kept = held.file.read_bytes()
    assert kept.startswith(b"x" * 50_000)
    assert b"more than is kept here" in kept[50_000:]
    assert len(kept) < 50_200
    client.close()
    held.close()


def test_what_is_shown_last_reaches_the_client_and_its_late_keys_do_no_harm(held: Held) -> None:
    client = held.terminal.attach()
    held.show(b"bye\n")
    held.terminal.ended()
    typed(client, Chunk(0, 0, b"late"))
    assert held.read_of(client, b"bye\r\n")
    held.until(lambda: is_closed(client))
    client.close()
    late = held.terminal.attach()
    assert held.read_of(late, b"bye\r\n")
    held.until(lambda: is_closed(late))
    late.close()


def test_a_client_that_breaks_the_rules_is_left(any_kind: Held) -> None:
    client = any_kind.terminal.attach()
    client.sendall(b"no frame at all")
    any_kind.until(lambda: is_closed(client))
    client.close()


def test_an_input_ends_when_all_of_it_is_with_the_program(piped: Held) -> None:
    client = piped.terminal.attach()
    data = os.urandom(300_000)
    sent = 0
    frames = b"".join(encode(Chunk(0, 0, data[start : start + 60_000])) for start in range(0, len(data), 60_000))
    frames += encode(Chunk(0, 0, b""))
    got = bytearray()
    os.set_blocking(piped.program[0], False)

    def move() -> bool:
        nonlocal sent
        with suppress(BlockingIOError):
            sent += client.send(frames[sent:]) if sent < len(frames) else 0
        try:
            piece = os.read(piped.program[0], 5000)
        except BlockingIOError:
            assert len(got) == len(data) or not is_closed(client)
            return False
        got.extend(piece)
        return not piece

    piped.until(move)
    assert bytes(got) == data
    piped.until(lambda: is_closed(client))
    client.close()


@pytest.mark.parametrize(
    ("typed_here", "passed", "leaves"),
    [
        ([b"abc"], b"abc", False),
        ([b"\x1d", b"d"], b"", True),
        ([b"ab\x1ddcd"], b"ab", True),
        ([b"\x1d\x1d"], b"\x1d", False),
        ([b"\x1d\x1dd"], b"\x1dd", False),
        ([b"\x1dx", b"d"], b"\x1dxd", False),
        ([b"\x1d"], b"", False),
    ],
)
def test_the_escape_key_and_d_leave(typed_here: list[bytes], passed: bytes, leaves: bool) -> None:
    keys = Keys(b"\x1d")
    found = [keys.typed(each) for each in typed_here]
    assert b"".join(data for data, _ in found) == passed
    assert found[-1][1] is leaves


def test_without_an_escape_key_every_key_is_the_programs() -> None:
    assert Keys(escape_of("none")).typed(b"\x1dd") == (b"\x1dd", False)
    assert [escape_of(key) for key in ("^]", "^a", "^_")] == [b"\x1d", b"\x01", b"\x1f"]
    for wrong in ("q", "^1", "", "^]]", "ctrl-a"):
        with pytest.raises(RequestError, match="--escape"):
            escape_of(wrong)
