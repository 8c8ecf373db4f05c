"""A real node agent: what it starts for others, beside an isolated program, and after the end of its program."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters.host import json_lines
from koalapy_adapters.isolation.options import Isolation
from koalapy_adapters.messages.streams import OpenStream
from koalapy_adapters.streams import frame_to_json

PATIENCE_S = 60.0


class Agent:
    """`agent HOST` with its private directory in `place`."""

    def __init__(self, place: Path, isolation: str) -> None:
        self._place = place
        environment = os.environ | Isolation(isolation).variables() | {"TMPDIR": str(place)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "koalapy_adapters", "agent", os.uname().nodename],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
        )  # fmt: skip
        self._assembler = json_lines.Assembler()

    def send(self, **message: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json_lines.line(message))
        self._process.stdin.flush()

    def next(self) -> dict[str, Any]:
        """Return the next message; the test's time limit bounds the wait."""
        assert self._process.stdout is not None
        while True:
            for piece in self._assembler.feed(self._process.stdout.readline()):
                return piece.message

    def run(self, command: str, stream: int = 1) -> None:
        """Open a stream that leads to a command."""
        frame = OpenStream("kabcde00000001", stream, 0, 0, 10_000_000, command=command)
        self.send(do="stream", to=0, frame=frame_to_json(frame))

    def prepare(self, **more: Any) -> None:
        self.send(
            do="prepare", shares=[[1, 0]], environment={}, elsewhere=False, grace=1, silence=1, relay=[], own=[],
            attempt=str(self._place / "attempt"), executable="/bin/true", arguments=[], **more,
        )  # fmt: skip

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to a program's request over the socket of the rendezvous."""
        [private] = self._place.glob("koala-*")
        [path] = [each for each in private.iterdir() if each.is_socket()]
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE_S)
            connection.connect(str(path))
            connection.sendall(json.dumps(request).encode() + b"\n")
            answer: dict[str, Any] = json.loads(connection.makefile().readline())
            return answer

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)
        self._process.stdout.close()


@pytest.fixture
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    made = Agent(tmp_path_factory.mktemp("a"), "none")
    yield made
    made.end()


@pytest.fixture
def isolating(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    made = Agent(tmp_path_factory.mktemp("a"), "unshare")
    yield made
    made.end()


def test_no_command_is_run_once_the_program_is_over(agent: Agent, tmp_path: Path) -> None:
    """It could outlive the agent, and write where the attempt was removed."""
    mark = tmp_path / "mark"
    agent.run(f"touch {mark}")
    while not mark.exists():
        time.sleep(0.01)
    mark.unlink()
    agent.send(do="stop", grace=0)
    while agent.next()["event"] != "emptied":
        pass
    agent.run(f"touch {mark}", stream=2)
    while (frame := agent.next()["frame"])["stream"] != 2:
        pass
    assert (frame["type"], frame["code"]) == ("stream_reset", "ended")
    agent.end()
    assert not mark.exists()


def test_no_command_is_run_beside_an_isolated_program(isolating: Agent, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    isolating.run(f"touch {mark}")
    answer = isolating.next()
    assert (answer["frame"]["type"], answer["frame"]["code"]) == ("stream_reset", "isolated")
    assert not mark.exists()


def test_an_isolated_program_has_no_terminal(isolating: Agent) -> None:
    isolating.prepare(terminal="terminal")
    answer = isolating.next()
    assert (answer["event"], answer["what"]) == ("failed", "prepare")
    assert "An isolated program can have no terminal" in answer["why"]


def test_nothing_is_started_on_other_nodes_for_an_isolated_program(isolating: Agent) -> None:
    isolating.prepare(mpi=True)
    answer = isolating.next()
    assert answer["event"] == "failed"  # there is no such attempt; the agent knows that the program is an mpirun
    assert "error" in isolating.ask({"start": "other", "command": "true"})
