"""koalad's end of a connection to a KCM that runs as a process of its own on this machine, for tests."""

import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from koalapy_adapters.channel import Channel
from koalapy_adapters.contract.dialogue import PATIENCE_S as PATIENCE
from koalapy_adapters.contract.dialogue import Dialogue
from koalapy_adapters.messages import PROTOCOL, from_json, to_json
from koalapy_adapters.messages.kcm import Welcome
from koalapy_adapters.messages.koalad import Hello
from koalapy_adapters.wrapper.relay.handshake import Answer, Handshake, Opening, Welcomed

INSTANCE = "abcde"
TAGS = [f"k{INSTANCE}00000000{number}" for number in range(1, 5)]
PYTHON = os.environ.get("KOALA_TEST_PYTHON", sys.executable)  # the cluster's own may be as old as 3.6


class Koalad(Dialogue):
    """koalad's end of one connection: sends, acknowledges, and waits for what a test expects."""

    def __init__(self, shared: Path, pyz: Path) -> None:
        argv = [PYTHON, "-W", "error", "-I", "-S", str(pyz), "kcm"]
        self.shared = shared
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.said = ""
        self._errors = threading.Thread(target=self._read_errors)
        self._errors.start()
        stdout, stdin = self.process.stdout, self.process.stdin
        assert stdout is not None
        assert stdin is not None

        def write(data: bytes) -> None:
            stdin.write(data)
            stdin.flush()

        super().__init__(lambda size: os.read(stdout.fileno(), size), write)

    def hello(self, epoch: int = 1, known: list[list[str]] | None = None, **cluster: Any) -> Welcome:
        fields = {"name": "here", "batch": "local", "slots": 2, "poll": 1.0, "python": PYTHON, "grace": 1.0}
        fields.update({"shared": str(self.shared), **cluster})
        self.send(Hello(PROTOCOL, "0", epoch, INSTANCE, 0, fields, known or []))
        welcome = self.wait(Welcome)
        assert isinstance(welcome, Welcome)
        return welcome

    def hang_up(self) -> int:
        """Close the connection; the KCM's exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.ended()

    def ended(self) -> int:
        status = self.process.wait(PATIENCE)
        for thread in (self.listener, self._errors):
            thread.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        return status

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.said = self.process.stderr.read().decode()


def await_file(path: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.02)  # a file of another process cannot be awaited otherwise


class Line:
    """A raw connection to a relay: sends any bytes, and receives one message after the other."""

    def __init__(self, port: int) -> None:
        self.connection = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE)
        self.channel = Channel()
        self.sent = b""

    def send(self, *messages: Any) -> None:
        self.send_bytes(b"".join(self.channel.encode(to_json(message)) for message in messages))

    def send_bytes(self, data: bytes) -> None:
        self.sent += data
        self.connection.sendall(data)

    def receive(self) -> Any:
        """The next message; None once the relay has closed the connection."""
        while (data := self.channel.take()) is None:
            try:
                read = self.connection.recv(1 << 16)
            except ConnectionError:
                return None
            if not read:
                return None
            self.channel.feed(read)
        return from_json(data)

    def enter(self, opening: Opening) -> bool:
        """Return whether the relay lets in who begins so, and proves itself to him."""
        self.send(*opening.first)
        challenge = self.receive()
        answer = opening.received(0, challenge)
        if not isinstance(answer, Answer):
            return False
        self.send(answer.proof)
        self.channel.secure(answer.keys.wrapper, answer.keys.kcm)
        return isinstance(opening.received(0, self.receive()), Welcomed)

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, *error: object) -> None:
        self.connection.close()


def lets_in(port: int, tag: str, token: str, secret: str) -> bool:
    """Return whether the relay at this port lets in who knows these, and proves itself to him."""
    with Line(port) as line:
        return line.enter(Handshake(tag, token).open(0, secret, by_files=False))


class Stranger:
    """Another user's process, at a port that was a relay's; `arrived`: all that came."""

    def __init__(self, port: int = 0) -> None:
        self._listener = socket.create_server(("", port))
        self._listener.settimeout(PATIENCE)
        self.port = self._listener.getsockname()[1]
        self.arrived = b""

    def answer(self, *said: Any) -> list[Any]:
        """Return the next wrapper's answer to this message, after that wrapper has closed its connection."""
        while True:  # of those that a wrapper connects to at once it keeps one
            with self._listener.accept()[0] as guest:
                guest.settimeout(PATIENCE)
                channel, out = Channel(), Channel()
                messages: list[Any] = []
                while data := self._receive(guest):
                    channel.feed(data)
                    while (found := channel.take()) is not None:
                        messages.append(from_json(found))
                        if len(messages) == 1:
                            guest.sendall(b"".join(out.encode(to_json(each)) for each in said))
                if messages:
                    return messages

    def __enter__(self) -> "Stranger":
        return self

    def __exit__(self, *error: object) -> None:
        self._listener.close()

    def _receive(self, guest: socket.socket) -> bytes:
        try:
            data = guest.recv(1 << 16)
        except ConnectionResetError:  # it hung up without having read all
            data = b""
        self.arrived += data
        return data
