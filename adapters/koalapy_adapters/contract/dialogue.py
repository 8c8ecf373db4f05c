"""koalad's end of a session with a KCM, for tests: send a message, and wait for its effect."""

import hashlib
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from koalapy_adapters.frames import MAX_CHUNK, Chunk, Control, Credit, Decoder, encode
from koalapy_adapters.messages import from_json, to_json
from koalapy_adapters.messages.files import Fetch, Store
from koalapy_adapters.messages.kcm import CleanedUp, Event, Measured, Pong, Report
from koalapy_adapters.messages.koalad import Acknowledge, Submit

PATIENCE_S = 180.0


class Dialogue:
    """A session. Events are acknowledged as they are taken. `read` returns b"" at the end; `read` and `write` block."""

    def __init__(self, read: Callable[[int], bytes], write: Callable[[bytes], None]) -> None:
        self._read, self._write = read, write
        self._writing = threading.Lock()
        self._frames: queue.Queue[Any] = queue.Queue()
        self.log: list[Any] = []  # all messages so far, events unwrapped
        self.listener = threading.Thread(target=self._listen, name="dialogue", daemon=True)
        self.listener.start()
        self._ids = 0

    # ---- send

    def send(self, message: Any) -> None:
        self.write(Control(to_json(message)))

    def write(self, frame: Any) -> None:
        with self._writing:
            self._write(encode(frame))

    def request(self, kind: Any, *arguments: Any, **more: Any) -> int:
        """Send a request of this kind and return its id."""
        self._ids += 1
        self.send(kind(self._ids, *arguments, **more))
        return self._ids

    def answer(self, kind: Any, *arguments: Any, **more: Any) -> Any:
        """Send a request of this kind and return the answer."""
        number = self.request(kind, *arguments, **more)
        return self.wait(object, lambda message: getattr(message, "id", None) == number)

    def submit(self, tag: str, script: str, processors: int = 1, **more: Any) -> Any:
        """Submit an attempt that runs a shell script. Returns the answer."""
        batch = {"processors": processors, "walltime_s": 240}
        return self.answer(Submit, tag, batch, program(script, processors), **more)

    def store(self, data: bytes) -> Any:
        """Send a file to be staged. Returns the answer."""
        digest = hashlib.sha256(data).hexdigest()
        number = self.request(Store, digest, len(data))
        parts = [data[at : at + MAX_CHUNK] for at in range(0, len(data), MAX_CHUNK)]
        for place, part in enumerate([*parts, b""]):
            self.write(Chunk(number, place, part))
        return self.wait(object, lambda message: getattr(message, "id", None) == number)

    # ---- receive

    def wait(self, kind: Any, wanted: Callable[[Any], bool] = lambda message: True) -> Any:
        """Return the next message or chunk of this kind that is wanted; None at the end of the connection."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            message = self._next(deadline)
            if message is None or (isinstance(message, kind) and wanted(message)):
                return message

    def first_message(self, kind: Any, wanted: Callable[[Any], bool] = lambda message: True) -> Any:
        """Return the first such message of the whole session; if there was none yet, wait for it."""
        found = (message for message in self.log if isinstance(message, kind) and wanted(message))
        return next(found, None) or self.wait(kind, wanted)

    def report(self, tag: str, phase: str) -> Report:
        """Return the attempt's first report of this phase."""
        found = self.first_message(Report, lambda message: message.tag == tag and message.phase == phase)
        assert isinstance(found, Report)
        return found

    def gone(self, tag: str) -> None:
        """Wait until the attempt is cleaned up."""
        self.first_message(CleanedUp, lambda message: message.tag == tag)

    def fetch(self, tag: str, where: str, path: str = "", **more: Any) -> tuple[bytes, Any]:
        """Fetch a file. Returns the data of the stream, and the message that ends it."""
        number, data = self.request(Fetch, tag, where, path, **more), b""
        while True:
            message = self.wait(object, lambda each: number in (getattr(each, "id", 0), getattr(each, "stream", 0)))
            if not isinstance(message, Chunk):
                return data, message
            data += message.data
            self.write(Credit(number, 1))

    def _next(self, deadline: float) -> Any:
        try:
            frame = self._frames.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            received = [message for message in self.log if not isinstance(message, (Measured, Pong))]
            raise AssertionError(f"{PATIENCE_S:g} s passed; the last messages: {received[-6:]}") from None
        message = from_json(frame.data) if isinstance(frame, Control) else frame
        if isinstance(message, Event):
            self.send(Acknowledge(message.number))
            message = from_json(message.body)
        self.log.append(message)
        return message

    def _listen(self) -> None:
        decoder = Decoder()
        while data := self._read(1 << 16):
            for frame in decoder.feed(data):
                self._frames.put(frame)
        self._frames.put(None)


def program(script: str, processors: int = 1, **fields: Any) -> dict[str, Any]:
    """The program of a Submit that runs a shell script on every processor."""
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
        **fields,
    }
