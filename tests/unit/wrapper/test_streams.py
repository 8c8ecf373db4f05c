"""Byte streams to programs on the wrapper's own node, and on another one, which its agent serves."""

import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters.messages.streams import OpenStream, StreamReset
from koalapy_adapters.streams import FRAMES, StreamEnd, StreamName

HOSTS = "one:1 two:1"
PATIENCE_S = 60.0
PATIENCE_US = 60_000_000


class Near:
    """koalad's end of one stream, over a relay of the test."""

    def __init__(self, relay: Any, tag: str, rank: int, port: int, number: int = 7, command: str = "") -> None:
        opening = OpenStream(tag, number, rank, port, PATIENCE_US, command)
        self._relay, self._tag, self._number = relay, tag, number
        self.end = StreamEnd(self._now(), StreamName(tag, number, PATIENCE_US), opening)
        self._taken = 0  # of what the relay has received
        self.got = b""
        self._send(self.end.open(self._now()))

    def put(self, data: bytes) -> None:
        self._send(self.end.put(data))

    def finish(self) -> None:
        self._send(self.end.end())

    def until(self, there: Callable[[], bool]) -> None:
        """Take frames until this is so."""
        deadline = time.monotonic() + PATIENCE_S
        while not there():
            assert time.monotonic() < deadline, (self.end.reset_by, self.got[:100])
            arrived = self._relay.said.get(self._tag, [])
            for frame in arrived[self._taken :]:
                self._taken += 1
                if isinstance(frame, FRAMES) and frame.stream == self._number:
                    self._send(self.end.received(self._now(), frame))
            if self.end.inbox:
                self.got += self.end.inbox
                self._send(self.end.consume(len(self.end.inbox)))
            elif self.end.has_ended:
                self._send(self.end.consume_end())
            time.sleep(0.005)

    def _now(self) -> int:
        return time.monotonic_ns() // 1000

    def _send(self, frames: list[Any]) -> None:
        for frame in frames:
            self._relay.send_frame(self._tag, frame)


@pytest.fixture
def echo() -> Iterator[socket.socket]:
    """A listening socket of this machine, which is all nodes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(PATIENCE_S)
        yield listening


@pytest.fixture
def running(world: Any, interpreter: list[str], pushed: Path) -> tuple[Any, Any]:
    """A relay, and an attempt on two nodes whose program waits."""
    world.command = [*interpreter, str(pushed)]
    relay = world.relay()
    attempt = world.attempt("sleep 1000", batch="nodes", hosts=HOSTS, processors=2)
    attempt.start(SLURMD_NODENAME="one")
    relay.release(attempt)
    relay.report(attempt, "running")
    return relay, attempt


@pytest.mark.parametrize("rank", [0, 1], ids=["the wrapper's node", "another node"])
def test_bytes_go_both_ways(running: tuple[Any, Any], echo: socket.socket, rank: int) -> None:
    relay, attempt = running
    near = Near(relay, attempt.tag, rank, echo.getsockname()[1])
    plug, _ = echo.accept()
    with plug:
        plug.settimeout(PATIENCE_S)
        near.until(lambda: near.end.is_open)
        data = os.urandom(300_000)
        near.put(data)
        near.finish()
        got = b""
        while piece := plug.recv(1 << 16):
            got += piece
        assert got == data
        plug.sendall(data[::-1])
    near.until(lambda: near.end.is_finished)
    assert near.got == data[::-1]


@pytest.mark.parametrize("rank", [0, 1], ids=["the wrapper's node", "another node"])
def test_a_port_without_a_listener_and_a_broken_connection_reset_the_stream(
    running: tuple[Any, Any], echo: socket.socket, rank: int
) -> None:
    relay, attempt = running
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    refused = Near(relay, attempt.tag, rank, free)
    refused.until(lambda: refused.end.reset_by is not None)
    assert refused.end.reset_by is not None
    assert refused.end.reset_by.code == "refused"
    near = Near(relay, attempt.tag, rank, echo.getsockname()[1], number=8)
    plug, _ = echo.accept()
    near.until(lambda: near.end.is_open)
    relay.send_frame(attempt.tag, near.end.reset("closed", "The client closed the connection.")[0])
    plug.settimeout(PATIENCE_S)
    with plug, pytest.raises(ConnectionResetError):
        plug.recv(1)


def test_a_rank_that_the_component_does_not_have_is_refused(running: tuple[Any, Any]) -> None:
    relay, attempt = running
    near = Near(relay, attempt.tag, 2, 80)
    near.until(lambda: near.end.reset_by is not None)
    assert isinstance(near.end.reset_by, StreamReset)
    assert near.end.reset_by.code == "no_such_rank"


@pytest.mark.parametrize("rank", [0, 1], ids=["the wrapper's node", "another node"])
def test_a_command_reads_and_writes_the_stream_and_its_end_is_reported(running: tuple[Any, Any], rank: int) -> None:
    relay, attempt = running
    near = Near(relay, attempt.tag, rank, 0, command="cat; echo why >&2; exit 7")
    near.until(lambda: near.end.is_open)
    data = os.urandom(700_000)
    near.put(data)
    near.finish()
    near.until(lambda: near.end.reset_by is not None)
    assert near.got == data
    assert near.end.reset_by is not None
    assert (near.end.reset_by.code, near.end.reset_by.message) == ("exit_7", "why")


def test_a_command_ends_with_its_stream(running: tuple[Any, Any], tmp_path: Path) -> None:
    relay, attempt = running
    over = tmp_path / "over"
    near = Near(relay, attempt.tag, 0, 0, command=f"echo began; cat >/dev/null; touch {over}")
    near.until(lambda: near.got == b"began\n")
    relay.send_frame(attempt.tag, near.end.reset("closed", "The client closed the connection.")[0])
    deadline = time.monotonic() + PATIENCE_S
    while not over.exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
