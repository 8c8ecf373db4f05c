"""A small batch queue for one machine: slots, first come first served, exit codes. Jobs survive their submitter.

    local-queue --directory DIR [--slots N] [--command JSON] COMMAND [ARGUMENT…]

      submit SCRIPT      queue a script with `#KOALA key=value` lines (name, processors, walltime, output, directory,
                         lowest)
      status ID…         these jobs, without those no longer known
      find NAME          the newest job of this name, also one that has ended
      cancel ID…         end these jobs; an unknown or ended one is no error
      capacity           slots, and every job that is queued, runs or has ended lately
      describe           version and slots

Each answers with one JSON document. There is no daemon: every running job has a keeper process, which starts the next
job at its end. Every command first repairs what a killed keeper has left.
"""

import json
import sys
from typing import Any, Dict, List, Tuple

from koalapy_adapters.errors import BatchError, ClusterError

USAGE = "usage: local-queue --directory DIR [--slots N] [--command JSON] submit|status|find|cancel|capacity|describe …"


def main(argv: List[str]) -> int:
    """Run one command. `argv` begins after the word local-queue. Returns 0 (done), 1 (refused) or 2 (wrong usage)."""
    from koalapy_adapters.localqueue import commands

    try:
        options, words = _parse(argv)
        command = commands.COMMANDS[words[0]]
    except (ValueError, KeyError, IndexError):
        sys.stderr.write(USAGE + "\n")
        return 2
    try:
        answer = command(commands.Queue(**options), words[1:])
    except BatchError as error:
        answer = {"error": _as_json(error)}
    except OSError as error:
        answer = {"error": _as_json(_unusable(options["directory"], error))}
    sys.stdout.write(json.dumps(answer, sort_keys=True) + "\n")
    sys.stdout.flush()
    return 1 if "error" in answer else 0


def _parse(argv: List[str]) -> Tuple[Dict[str, Any], List[str]]:
    """Raises ValueError or IndexError for a bad command line."""
    options: Dict[str, Any] = {}
    words = list(argv)
    while words and words[0].startswith("--"):
        name, value = words[0][2:], words[1]
        del words[:2]
        if name == "directory":
            options[name] = value
        elif name == "slots":
            options[name] = int(value)
        elif name == "command":
            options[name] = [str(word) for word in json.loads(value)]
        else:
            raise ValueError(name)
    if not options.get("directory"):
        raise ValueError("directory")
    return options, words


def _unusable(directory: str, error: OSError) -> BatchError:
    return ClusterError(
        "local_queue_unusable",
        "The local queue in %s cannot be used: %s." % (directory, error),
        "Free space there or make it writable, or name another `shared` directory in the grid file.",
    )


def _as_json(error: BatchError) -> Dict[str, str]:
    return {"code": error.code, "whose": error.whose, "message": error.message, "advice": error.advice}
