"""The programs that faults strike: they write down by themselves when they ran, outside koalapy's own directories.

Each process appends lines `start`, `beat` (four a second) and `end` to a file of its own on its node's own disk. Each
has its job, component, attempt and rank. All containers have one clock. The attempt is the name of the directory that
koalapy gave it.

A program's time begins when nobody holds it any more: so a fault strikes while it runs, however slow the machine is.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from koalapy.testgrid import Running, layout, repair

PLACE = "/var/tmp/koala-evidence"
BEAT_S = 0.25
HOLD, LATE = "koala-hold", "koala-late"  # files that all nodes of a cluster see: while they are there, programs wait

_PROGRAM = f"""
attempt=$(basename "$(dirname "$KOALA_HOSTS")")
mkdir -p {PLACE}
file={PLACE}/$KOALA_JOB_ID.$KOALA_COMPONENT.$attempt.$KOALA_RANK
say() {{ echo "$1 $KOALA_JOB_ID $KOALA_COMPONENT $attempt $KOALA_RANK $EPOCHREALTIME" >>"$file"; }}
say start
exec 9<> <(:)
while [ -e "$HOME/{HOLD}" ] || [ -e "/shared/koala/{HOLD}" ]; do read -rt {BEAT_S} -u 9; say beat; done
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


def held_up() -> str:
    """A line of `setup` that keeps a component from its barrier."""
    return f'while [ -e "$HOME/{LATE}" ]; do sleep 0.1; done'


def hold(testgrid: Running, clusters: Iterable[str]) -> None:
    """Programs that start there wait, and whoever is held up; until `let_go`."""
    _on_last_nodes(testgrid, clusters, "touch")


def let_go(testgrid: Running, clusters: Iterable[str]) -> None:
    """Also where the head node is out of reach, or the disk full. Nothing if it is done."""
    _on_last_nodes(testgrid, clusters, "rm -f")


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
    """Read the lines that all programs have written, on all nodes; every node must run."""
    texts = repair.on_each(_nodes(), lambda node: _written(testgrid, node))
    return processes_of(texts)


def alive(testgrid: Running) -> list[str]:
    """The nodes where a process of a program runs now."""
    command = ["pgrep", "--full", "--uid", layout.USER, PLACE]
    found = repair.on_each(_nodes(), lambda node: testgrid.containers.exec(node, command)[0] == 0)
    return [node for node, there in zip(_nodes(), found, strict=True) if there]


def _written(testgrid: Running, node: str) -> str:
    return testgrid.containers.check(node, ["bash", "-c", f"cat {PLACE}/* 2>/dev/null; true"])


def _on_last_nodes(testgrid: Running, clusters: Iterable[str], act: str) -> None:
    """No fault strikes there."""
    script = f"cd /shared/koala 2>/dev/null || cd /home/koala; {act} {HOLD} {LATE}"
    nodes = [each.nodes[-1] for each in layout.CLUSTERS if each.name in clusters]
    repair.on_each(nodes, lambda node: testgrid.containers.check(node, ["sh", "-c", script], user=layout.USER))


def _nodes() -> list[str]:
    return [node for cluster in layout.CLUSTERS if cluster.name in layout.MAIN for node in cluster.nodes]


def processes_of(texts: Iterable[str]) -> list[Process]:
    """Return the processes that wrote the lines of these texts."""
    by_process: dict[tuple[str, ...], list[tuple[str, float]]] = {}
    for kind, *process, at in (line.split() for text in texts for line in text.splitlines()):
        by_process.setdefault(tuple(process), []).append((kind, float(at)))
    return [_process(key, said) for key, said in sorted(by_process.items())]


def _process(key: tuple[str, ...], said: list[tuple[str, float]]) -> Process:
    job, component, attempt, rank = key
    starts = tuple(at for kind, at in said if kind == "start")
    ended = any(kind == "end" for kind, _ in said)
    return Process(int(job), int(component), attempt, int(rank), starts, max(at for _, at in said), ended)
