"""The queue of an allocation: a batch job of another batch system, used as a cluster.

    allocation PLACE COMMAND [ARGUMENT…]

      submit SCRIPT      queue a script with `#KOALA key=value` lines, as those of the local queue; also `per_node`, and
                         `command`, the script's one command as a JSON list
      status ID…         these jobs, without those no longer known
      find NAME          the newest job of this name, also one that has ended
      cancel ID…         end these jobs; an unknown or ended one is no error
      suspend ID…        stop the programs of these jobs, whose processors are then free
      resume ID…         let them go on, as soon as their processors are free
      capacity           slots, nodes, and every job that is queued, runs or has failed lately
      describe           version and slots
      serve COMMAND…     be the server of the queue in the directory PLACE; COMMAND starts the pushed file

PLACE holds the queues, one directory for each allocation. Each command but `serve` answers with one JSON document. It
starts the server of the allocation's queue if there is none.
"""

import json
import os
import sys
from typing import List

_COMMANDS = ("submit", "status", "find", "cancel", "suspend", "resume", "capacity", "describe")
USAGE = "usage: allocation PLACE %s|serve …" % "|".join(_COMMANDS)


def main(argv: List[str]) -> int:
    """Run one command. `argv` begins after the word allocation. Returns 0 (done), 1 (refused) or 2 (wrong usage)."""
    from koalapy_adapters.allocation import client

    if len(argv) > 2 and argv[1] == "serve":
        return client.serve(argv[0], argv[2:])
    if len(argv) < 2 or argv[1] not in _COMMANDS:
        sys.stderr.write(USAGE + "\n")
        return 2
    command = [sys.executable, "-I", "-S", os.path.abspath(sys.argv[0])]
    answer = client.answer(argv[0], command, os.environ, argv[1:])
    sys.stdout.write(json.dumps(answer, sort_keys=True) + "\n")
    return 1 if "error" in answer else 0
