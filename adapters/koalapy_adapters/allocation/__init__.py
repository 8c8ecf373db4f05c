"""The embedded queue: of an allocation, which is a batch job of another batch system; or of this machine itself.

    allocation PLACE [--slots N] COMMAND [ARGUMENT…]

      submit SCRIPT      queue a script with `#KOALA key=value` lines (see script)
      status ID…         these jobs, without those no longer known
      find NAME          the newest job of this name, also one that has ended
      cancel ID…         end these jobs; an unknown or ended one is no error
      suspend ID…        stop the programs of these jobs, whose processors are then free
      resume ID…         let them go on, as soon as their processors are free
      capacity           slots, nodes, and every job that is queued, runs or has ended lately
      describe           version and slots
      serve COMMAND…     be the server of the queue in the directory PLACE; COMMAND starts the pushed file

PLACE holds the queues, one directory for each allocation or machine. `--slots N`: the queue of this machine is meant,
and N processors are its; 0: as many as before, at first all. Each command but `serve` answers with one JSON document.
It starts the server of the queue if there is none.
"""

import json
import os
import sys
from typing import List, NamedTuple, Optional

_COMMANDS = ("submit", "status", "find", "cancel", "suspend", "resume", "capacity", "describe")
USAGE = "usage: allocation PLACE [--slots N] %s|serve …" % "|".join(_COMMANDS)


class Line(NamedTuple):
    """A command line, after the word allocation."""

    place: str
    slots: Optional[int]
    words: List[str]


def read_line(argv: List[str]) -> Line:
    """Read a command line. Raises ValueError for a wrong one."""
    slots, words = None, argv[1:]
    if words[:1] == ["--slots"] and len(words) > 1:
        slots, words = int(words[1]), words[2:]
    if not words or words[0] not in (*_COMMANDS, "serve"):
        raise ValueError(words)
    return Line(argv[0], slots, words)


def main(argv: List[str]) -> int:
    """Run one command. `argv` begins after the word allocation. Returns 0 (done), 1 (refused) or 2 (wrong usage)."""
    from koalapy_adapters.allocation import client

    try:
        line = read_line(argv)
    except ValueError:
        sys.stderr.write(USAGE + "\n")
        return 2
    if line.words[0] == "serve":
        return client.serve(line.place, line.slots, line.words[1:])
    command = [sys.executable, "-I", "-S", os.path.abspath(sys.argv[0])]
    answer = client.answer(line.place, command, os.environ, line.words, line.slots)
    sys.stdout.write(json.dumps(answer, sort_keys=True) + "\n")
    return 1 if "error" in answer else 0
