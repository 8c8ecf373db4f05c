"""koalad's end of a connection to a KCM that runs as a process of its own, for tests."""

import hashlib
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from koalapy_adapters.frames import MAX_CHUNK, Chunk, Control, Credit, Decoder, encode
from koalapy_adapters.messages import (
    PROTOCOL,
    Acknowledge,
    Event,
    Fetch,
    Gone,
    Hello,
    Report,
    Store,
    Submit,
    Welcome,
    from_json,
    to_json,
)

INSTANCE = "abcde"
TAGS = [f"k{INSTANCE}00000000{number}" for number in range(1, 5)]
PATIENCE = 60.0
PYTHON = os.environ.get("KOALA_TEST_PYTHON", sys.executable)  # the cluster's own may be as old as 3.6


class Koalad:
    """koalad's end of one connection: sends, acknowledges, and waits for what it is told to wait for."""

    def __init__(self, shared: Path, pyz: Path) -> None:
        argv = [PYTHON, "-W", "error", "-I", "-S", str(pyz), "kcm"]
        self.shared = shared
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.said = ""
        self._frames: queue.Queue[Any] = queue.Queue()
        self._threads = [threading.Thread(target=self._listen), threading.Thread(target=self._read_errors)]
        for thread in self._threads:
            thread.start()
        self._ids = 0

    def hello(self, epoch: int = 1, known: list[list[str]] | None = None, **cluster: Any) -> Welcome:
        fields = {"name": "here", "batch": "local", "slots": 2, "poll": 1.0, "python": PYTHON, "grace": 1.0}
        fields.update({"shared": str(self.shared), **cluster})
        self.send(Hello(PROTOCOL, "0", epoch, INSTANCE, 0, fields, known or []))
        welcome = self.wait(Welcome)
        assert isinstance(welcome, Welcome)
        return welcome

    def request(self, kind: Any, *arguments: Any, **more: Any) -> int:
        """Send a request of this kind; its id."""
        self._ids += 1
        self.send(kind(self._ids, *arguments, **more))
        return self._ids

    def answer(self, kind: Any, *arguments: Any, **more: Any) -> Any:
        """The answer to a request of this kind."""
        number = self.request(kind, *arguments, **more)
        return self.wait(object, lambda message: getattr(message, "id", None) == number)

    def submit(self, tag: str, script: str, processors: int = 1, **more: Any) -> Any:
        batch = {"processors": processors, "walltime_s": 120}
        return self.answer(Submit, tag, batch, program(script, processors), **more)

    def report(self, tag: str, phase: str) -> Report:
        found = self.wait(Report, lambda message: message.tag == tag and message.phase == phase)
        assert isinstance(found, Report)
        return found

    def gone(self, tag: str) -> None:
        self.wait(Gone, lambda message: message.tag == tag)

    def fetch(self, tag: str, where: str, path: str = "", **more: Any) -> tuple[bytes, Any]:
        """What came on the stream, and its end."""
        number, data = self.request(Fetch, tag, where, path, **more), b""
        while True:
            message = self.wait(object, lambda said: number in (getattr(said, "id", 0), getattr(said, "stream", 0)))
            if not isinstance(message, Chunk):
                return data, message
            data += message.data
            self.write(Credit(number, 1))

    def store(self, data: bytes) -> Any:
        digest = hashlib.sha256(data).hexdigest()
        number = self.request(Store, digest, len(data))
        parts = [data[at : at + MAX_CHUNK] for at in range(0, len(data), MAX_CHUNK)]
        for place, part in enumerate([*parts, b""]):
            self.write(Chunk(number, place, part))
        return self.wait(object, lambda message: getattr(message, "id", None) == number)

    def wait(self, kind: Any, wanted: Callable[[Any], bool] = lambda message: True) -> Any:
        """The next message or chunk of this kind that is wanted; None at the end of the connection."""
        deadline = time.monotonic() + PATIENCE
        while True:
            frame = self._frames.get(timeout=max(0.0, deadline - time.monotonic()))
            message = from_json(frame.data) if isinstance(frame, Control) else frame
            if isinstance(message, Event):
                self.send(Acknowledge(message.number))
                message = from_json(message.body)
            if message is None or (isinstance(message, kind) and wanted(message)):
                return message

    def send(self, message: Any) -> None:
        self.write(Control(to_json(message)))

    def hang_up(self) -> int:
        """Close the connection; the KCM's exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.ended()

    def ended(self) -> int:
        status = self.process.wait(PATIENCE)
        for thread in self._threads:
            thread.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        return status

    def write(self, frame: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(encode(frame))
        self.process.stdin.flush()

    def _listen(self) -> None:
        decoder = Decoder()
        assert self.process.stdout is not None
        while data := os.read(self.process.stdout.fileno(), 1 << 16):
            for frame in decoder.feed(data):
                self._frames.put(frame)
        self._frames.put(None)

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        self.said = self.process.stderr.read().decode()


def program(script: str, processors: int = 1) -> dict[str, Any]:
    return {
        "job": 1,
        "component": 0,
        "components": 1,
        "attempt": 1,
        "executable": "/bin/sh",
        "arguments": ["-c", script],
        "environment": [],
        "setup": [],
        "launch": "per-processor",
        "processors": processors,
        "threads": 1,
        "walltime": 60,
        "barrier_timeout": 60,
        "grace": 1,
    }


def await_file(path: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.02)  # a file of another process cannot be awaited otherwise


def dialogue(port: int, message: Any) -> Any:
    """The relay's first answer to this message, None if it closes the connection."""
    decoder = Decoder()
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as connection:
        connection.sendall(encode(Control(to_json(message))))
        while data := connection.recv(1 << 16):
            for frame in decoder.feed(data):
                assert isinstance(frame, Control)
                return from_json(frame.data)
    return None
