"""Notes that borrowers' programs write on a lender's nodes, although they are isolated there.

They see a directory of the node read-only. In it is a FIFO, which one may write to even so. A recorder of the test
appends its lines to a file of the node. All containers have one clock. The lines are those of `programs`.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from _faults.programs import BEAT_S, Process, processes_of
from koalapy.testgrid import Containers, layout, repair

VISIBLE = "/var/tmp/koala-lease-evidence"  # the directory that programs see
_RECORD = f"{VISIBLE}.lines"
_RECORDER = f"{VISIBLE}.pid"
_HOLD = f"{VISIBLE}/hold"

_PROGRAM = f"""
attempt=$(basename "$(dirname "$HOME")")
say() {{ echo "$1 $KOALA_JOB_ID $KOALA_COMPONENT $attempt $KOALA_RANK $EPOCHREALTIME" >>{VISIBLE}/lines; }}
say start
exec 9<> <(:)
while [ -e {_HOLD} ]; do read -rt {BEAT_S} -u 9; say beat; done
for ((left = $0; left; left--)); do read -rt {BEAT_S} -u 9; say beat; done
say end
"""
_BEGIN = f"""
mkdir -p {VISIBLE}
[ -p {VISIBLE}/lines ] || mkfifo {VISIBLE}/lines
chmod 666 {VISIBLE}/lines
exec 3<>{VISIBLE}/lines
setsid cat <&3 >>{_RECORD} 2>/dev/null &
echo $! >{_RECORDER}
"""
_END = f"kill $(cat {_RECORDER}); rm -rf {VISIBLE} {_RECORD} {_RECORDER}"


def program(processors: int, seconds: float, **fields: Any) -> dict[str, Any]:
    """Return a component whose processes run for so long once they are let go."""
    return {
        "processors": processors,
        "executable": "/bin/bash",
        "arguments": ["-c", _PROGRAM, str(round(seconds / BEAT_S))],
        "walltime": "15m",
        **fields,
    }


class Evidence:
    """The recorders on all nodes of these clusters."""

    def __init__(self, containers: Containers, clusters: Iterable[str]) -> None:
        self._containers = containers
        named = set(clusters)
        self.nodes = [node for each in layout.CLUSTERS if each.name in named for node in each.nodes]

    def begin(self, nodes: Sequence[str] = ()) -> None:
        """Start the recorders there, or on all nodes. A node that was killed has lost its own."""
        self._on_each(_BEGIN, nodes)

    def end(self) -> None:
        """Remove everything. What is missing does not matter."""
        repair.on_each(self.nodes, lambda node: self._containers.exec(node, ["bash", "-c", _END]))

    def hold(self) -> None:
        """Forget what was recorded; programs that start wait until `let_go`."""
        self._on_each(f": >{_RECORD}; touch {_HOLD}")

    def let_go(self, nodes: Sequence[str] = ()) -> None:
        """Let programs come to their ends, on all nodes that run."""
        running = [host for host, each in self._containers.all().items() if each.status == "running"]
        self._on_each(f"rm -f {_HOLD}", [node for node in nodes or self.nodes if node in running])

    def processes(self) -> list[Process]:
        """Return all that was recorded since `hold`; every node must run."""
        return processes_of(self._on_each(f"cat {_RECORD}"))

    def alive(self, users: Sequence[str]) -> list[str]:
        """Return the processes that run as one of these users, on any node."""
        look = 'id "$each" >/dev/null 2>&1 && pgrep --list-full --uid "$each"'  # nobody has an account everywhere
        found = self._on_each(f"for each in {' '.join(users)}; do {look}; done; true")
        return [f"{node}: {line}" for node, text in zip(self.nodes, found, strict=True) for line in text.splitlines()]

    def _on_each(self, script: str, nodes: Sequence[str] = ()) -> list[str]:
        return repair.on_each(nodes or self.nodes, lambda node: self._containers.check(node, ["bash", "-c", script]))
