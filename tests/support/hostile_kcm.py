"""A program that is started over `command:` instead of a login, and sends what a test wants instead of a KCM.

Used as `python hostile_kcm.py SCRIPT`. The script is a JSON file with a list of messages; they are sent after Hello has
come, and whenever the file is another. `{1}` in them becomes the tag of the first attempt of job 1 of Hello's store.
"""

import json
import re
import sys
import threading
import time
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any

from koalapy_adapters.connections.loader import MARKER
from koalapy_adapters.frames import Control, Decoder, encode

from koalapy.model.identity import AttemptId, InstanceId, JobId, tag_of

PROTOCOL = 1
_POLL_S = 0.05


def welcome(**fields: Any) -> dict[str, Any]:
    """A Welcome with these fields another."""
    sound = {"protocol": PROTOCOL, "version": "1", "clock": time.time_ns() // 1000, "python": "3", "host": "evil"}
    return {"type": "welcome", **sound, **fields}


def event(number: int, **body: Any) -> dict[str, Any]:
    return {"type": "event", "number": number, "body": body}


def command(script: Path, messages: list[Any]) -> list[str]:
    """The `command:` that sends these messages."""
    deliver(script, messages)
    return [sys.executable, __file__, str(script)]


def deliver(script: Path, messages: list[Any]) -> None:
    """From now on these."""
    temporary = script.with_suffix(".new")
    temporary.write_text(json.dumps(messages))
    temporary.rename(script)


class Liar:
    """A KCM's messages, and when they are sent."""

    def __init__(self, script: Path) -> None:
        self._script = script
        self._last_text = ""
        self._lock = threading.Lock()

    def write(self, data: bytes) -> None:
        with self._lock:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    def watch(self, instance: InstanceId) -> None:
        """Wait until nobody reads its messages any more."""
        while True:
            text = self._script.read_text()
            if text != self._last_text:
                self._last_text = text
                for message in json.loads(re.sub(r"\{(\d+)\}", lambda found: _tag(instance, int(found[1])), text)):
                    self.write(message.encode() if isinstance(message, str) else encode(Control(message)))
            time.sleep(_POLL_S)


def _tag(instance: InstanceId, job: int) -> str:
    return str(tag_of(instance, AttemptId(JobId(job), 0, 1)))


def main(script: str) -> None:
    incoming, liar = BufferedReader(FileIO(sys.stdin.fileno())), Liar(Path(script))
    liar.write(MARKER.encode() + b' {"answer": "ready", "version": "3.11.0"}\n')
    order = json.loads(incoming.readline())
    incoming.read(order["strict_modes"])  # a program that checks the directory, which is not run
    liar.write(MARKER.encode() + b' {"answer": "go"}\n')
    decoder = Decoder()
    while data := incoming.read1(1 << 16):
        for frame in decoder.feed(data):
            if not isinstance(frame, Control):
                continue
            if frame.data["type"] == "hello":
                threading.Thread(target=liar.watch, args=(frame.data["instance"],), daemon=True).start()
            elif frame.data["type"] == "ping":
                liar.write(encode(Control({"type": "pong", "id": frame.data["id"], "clock": frame.data["clock"]})))


if __name__ == "__main__":
    main(sys.argv[1])
