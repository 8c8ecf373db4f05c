"""A program that is started over `command:` instead of a login, and says what a test wants instead of a KCM.

Used as `python hostile_kcm.py SCRIPT`: the script is a JSON file with a list of messages, to be said after Hello has
has come. In their texts `{tag}` and the like were filled in by the test. `repeat` sends the last of them again and
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

from koalapy_adapters.connections.landing import MARKER
from koalapy_adapters.frames import Control, Decoder, encode

PROTOCOL = 1


def welcome(**fields: Any) -> dict[str, Any]:
    """A Welcome with these fields another."""
    sound = {"protocol": PROTOCOL, "version": "1", "clock": time.time_ns() // 1000, "python": "3", "host": "evil"}
    return {"type": "welcome", **sound, **fields}


def event(number: int, **body: Any) -> dict[str, Any]:
    return {"type": "event", "number": number, "body": body}


def command(script: Path, messages: list[Any]) -> list[str]:
    """The `command:` that says these messages."""
    script.write_text(json.dumps(messages))
    return [sys.executable, __file__, str(script)]


def main(script: str) -> None:
    said = json.loads(Path(script).read_text())
    incoming, outgoing = sys.stdin.buffer, sys.stdout.buffer

    def write(data: bytes) -> None:
        outgoing.write(data)
        outgoing.flush()

    write(MARKER.encode() + b' {"answer": "ready", "version": "3.11.0"}\n')
    order = json.loads(incoming.readline())
    incoming.read(order["strict_modes"])  # a program that checks the directory, which is not run
    write(MARKER.encode() + b' {"answer": "go"}\n')
    decoder = Decoder()
    while data := incoming.read1(1 << 16):
        for frame in decoder.feed(data):
            if not isinstance(frame, Control):
                continue
            if frame.data["type"] == "hello":
                for message in said:
                    write(message.encode() if isinstance(message, str) else encode(Control(message)))
            elif frame.data["type"] == "ping":
                write(encode(Control({"type": "pong", "id": frame.data["id"], "clock": frame.data["clock"]})))


if __name__ == "__main__":
    main(sys.argv[1])
