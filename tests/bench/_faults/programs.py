"""The programs that faults strike: they write down by themselves when they ran, outside koalapy's own directories.

Each process appends lines `start`, `beat` (four a second) and `end` to a file of its own on its node's own disk, with
its job, component, attempt and rank. All containers have one clock. The attempt is the name of the directory that
koalapy gave it.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from koalapy.testgrid import Running, layout, repair

PLACE = "/var/tmp/koala-evidence"
BEAT_S = 0.25
_FIRST, _LAST = "here-it-begins", "that-is-all"

_PROGRAM = f"""
attempt=$(basename "$(dirname "$KOALA_HOSTS")")
mkdir -p {PLACE}
file={PLACE}/$KOALA_JOB_ID.$KOALA_COMPONENT.$attempt.$KOALA_RANK
say() {{ echo "$1 $KOALA_JOB_ID $KOALA_COMPONENT $attempt $KOALA_RANK $EPOCHREALTIME" >>"$file"; }}
say start
exec 9<> <(:)
for ((left = $0; left; left--)); do read -rt {BEAT_S} -u 9; say beat; done
say end
"""


def program(processors: int, seconds: float, **fields: Any) -> dict[str, Any]:
    """A component whose processes run for so long."""
    return {
        "processors": processors,
        "executable": "/bin/bash",
        "arguments": ["-c", _PROGRAM, str(round(seconds / BEAT_S))],
        "walltime": "10m",
        **fields,
    }


class Process(NamedTuple):
    """One process of a program, by what it wrote. Times are those of the clock, in seconds."""

    job: int
    component: int
    attempt: str
    rank: int
    starts: tuple[float, ...]
    last: float  # the last time that it was seen to live
    ended: bool  # by itself


def evidence(testgrid: Running) -> list[Process]:
    """What all programs have written by now, on all nodes; every node must run."""
    texts = repair.on_each(_nodes(), lambda node: _written(testgrid, node))
    return _processes([line.split() for text in texts for line in text.splitlines()])


def alive(testgrid: Running) -> list[str]:
    """The nodes where a process of a program runs now."""
    command = ["pgrep", "--full", "--uid", layout.USER, PLACE]
    found = repair.on_each(_nodes(), lambda node: testgrid.containers.exec(node, command)[0] == 0)
    return [node for node, there in zip(_nodes(), found, strict=True) if there]


def _written(testgrid: Running, node: str) -> str:
    """All of it: under load the engine may lose either end of the output of a command that is over in no time."""
    command = ["bash", "-c", f"echo {_FIRST}; cat {PLACE}/* 2>/dev/null; echo {_LAST}"]
    for _ in range(5):
        text = testgrid.containers.check(node, command)
        if text.startswith(f"{_FIRST}\n") and text.endswith(f"{_LAST}\n"):
            return text.removeprefix(f"{_FIRST}\n").removesuffix(f"{_LAST}\n")
    raise AssertionError(f"what programs wrote on {node} cannot be read")


def _nodes() -> list[str]:
    return [node for cluster in layout.CLUSTERS if cluster.name in layout.MAIN for node in cluster.nodes]


def _processes(lines: Iterable[Sequence[str]]) -> list[Process]:
    by_process: dict[tuple[str, ...], list[tuple[str, float]]] = {}
    for kind, *process, at in lines:
        by_process.setdefault(tuple(process), []).append((kind, float(at)))
    return [_process(key, said) for key, said in sorted(by_process.items())]


def _process(key: tuple[str, ...], said: list[tuple[str, float]]) -> Process:
    job, component, attempt, rank = key
    starts = tuple(at for kind, at in said if kind == "start")
    ended = any(kind == "end" for kind, _ in said)
    return Process(int(job), int(component), attempt, int(rank), starts, max(at for _, at in said), ended)
