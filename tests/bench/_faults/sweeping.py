"""One large sweep on the test grid, the faults that strike it one after another, and what must be true in the end.

Every run of a parameter writes `start` and `end` with its number and the time to a file on its node's own disk. Some
programs misbehave, each in its own way, by their number.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from _faults.koalad import Koalad, batch_jobs
from _faults.programs import PLACE
from koalapy.answers.jobs import Job
from koalapy.answers.sweeps import Result
from koalapy.testgrid import layout, repair

COUNT = 20_000
SECONDS = 1.0  # that a parameter takes
LIMIT_S = 40  # that it may take: a busy disk needs a while for FLOOD
FLOOD = 1_000_000_000  # bytes; beta's shared disk has 64 MB in all
CUT_S = 60.0
Document = dict[str, Any]

_PROGRAM = f"""
file={PLACE}/sweep; mkdir -p {PLACE}
say() {{ echo "$1 $0 $EPOCHREALTIME" >>$file; }}
number=$0; say start
case $((number % 2000)) in
    17) (trap '' TERM; exec -a {PLACE}-orphan setsid sleep 98765) & ;;
    27) trap '' TERM; while :; do sleep 1; done ;;
    37) kill -KILL $$ ;;
    47) exit 3 ;;
esac
if [ $number = 5057 ] || [ $number = 10057 ]; then
    case $HOSTNAME in beta*) head -c 1000000 /dev/zero ;; *) head -c {FLOOD} /dev/zero ;; esac
fi
sleep {SECONDS} || sleep {LIMIT_S}  # Slurm signals children first: its own end comes next
say end
"""

_EXPECTED = {27: ("walltime", None), 37: ("killed", 137), 47: ("exited", 3)}  # by what is left of number / 2000


@dataclass(frozen=True, slots=True)
class Stroke:
    """`strike` returns when the fault is over and mended; `cluster` is the one that it strikes."""

    name: str
    fault: str
    cluster: str
    strike: Callable[[Koalad, str], None]


@dataclass(frozen=True, slots=True)
class Struck:
    """The effect of one fault. Instants are in seconds. `done`: parameters before it; `anew`: those begun again."""

    stroke: Stroke
    at: float
    mended_at: float
    done: int
    anew: int = 0
    went_on_s: float | None = None  # from the mending until a parameter began on that cluster


@dataclass(frozen=True, slots=True)
class Account:
    """The starts and ends that every run wrote, by parameter."""

    starts: dict[int, list[float]]
    ends: dict[int, list[float]]


@dataclass(frozen=True, slots=True)
class SweepVerdict:
    """Sentences on what should not be; none where all promises hold."""

    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not (self.lost or self.twice or self.wrong or self.left)


def begin(koalad: Koalad, count: int = COUNT) -> int:
    program = {
        "executable": "/bin/bash",
        "arguments": ["-c", _PROGRAM.replace("{", "{{").replace("}", "}}"), "{x}"],
        "processors": 1,
        "walltime": f"{LIMIT_S}s",
    }
    return koalad.grid.submit(
        {"name": "many", "parameters": {"x": f"1:{count}"}, "components": [program]}, directory=koalad.directory
    )


# ---- the faults


def kill_launcher(koalad: Koalad, cluster: str) -> None:
    """The Launcher itself, not what it has forked."""
    repair.kill_command(koalad.containers, _launchers_node(koalad, cluster), r"\.pyz launcher", "oldest")


def kill_wrapper(koalad: Koalad, cluster: str) -> None:
    repair.kill_command(koalad.containers, _launchers_node(koalad, cluster), r"\.pyz wrapper", "oldest")


def lose_node(koalad: Koalad, cluster: str) -> None:
    """Its power, for half a minute."""
    node = _launchers_node(koalad, cluster)
    koalad.containers.kill(node)
    time.sleep(30)
    koalad.containers.start(node)


def kill_kcm(koalad: Koalad, cluster: str) -> None:
    repair.kill_command(koalad.containers, cluster, r"\.pyz kcm")


def kill_koalad(koalad: Koalad, cluster: str) -> None:
    koalad.kill()
    koalad.up()


def cut_connection(koalad: Koalad, cluster: str) -> None:
    koalad.containers.disconnect(cluster, "access")
    time.sleep(CUT_S)
    koalad.containers.connect(cluster, "access")


def cancel_batch_job(koalad: Koalad, cluster: str) -> None:
    """Cancel all batch jobs of the user there, as an administrator does."""
    command = {"gamma": ["qdel", "-u", layout.USER]}.get(cluster, ["scancel", "-u", layout.USER])
    koalad.testgrid.check(cluster, command, "root")


STROKES = (
    Stroke("launcher", "kill -9 of a Launcher", "alpha", kill_launcher),
    Stroke("launcher-sge", "kill -9 of a Launcher", "gamma", kill_launcher),
    Stroke("kcm", "kill -9 of the KCM", "gamma", kill_kcm),
    Stroke("koalad", "kill -9 of koalad, started again", "alpha", kill_koalad),
    Stroke("wrapper", "kill -9 of a Launcher's wrapper", "alpha", kill_wrapper),
    Stroke("cut", "the connection cut for a minute", "alpha", cut_connection),
    Stroke("node", "a node loses its power for half a minute", "beta", lose_node),
    Stroke("node-sge", "a node loses its power for half a minute", "gamma", lose_node),
    Stroke("scancel", "an administrator cancels all batch jobs", "beta", cancel_batch_job),
)


def _launchers_node(koalad: Koalad, cluster: str) -> str:
    """A node of the cluster on which a Launcher runs."""
    own = next(each.nodes for each in layout.CLUSTERS if each.name == cluster)
    command = ["pgrep", "--full", "--uid", layout.USER, r"\.pyz launcher"]

    def found() -> str:
        return next((node for node in own if koalad.containers.exec(node, command)[0] == 0), "")

    return str(koalad.until(found, f"a Launcher runs on {cluster}"))


# ---- the judgement


def account(koalad: Koalad) -> Account:
    """Read the account from the nodes' disks; every node must run."""
    starts: dict[int, list[float]] = defaultdict(list)
    ends: dict[int, list[float]] = defaultdict(list)
    for text in repair.on_each(_nodes(), lambda node: koalad.containers.check(node, ["cat", f"{PLACE}/sweep"])):
        for kind, number, at in map(str.split, text.splitlines()):
            (starts if kind == "start" else ends)[int(number)].append(float(at))
    return Account(starts, ends)


def judge(koalad: Koalad, job: Job, rows: Sequence[Result], found: Account, count: int) -> SweepVerdict:
    numbers = Counter(row["parameter"] for row in rows)
    missing = [number for number in range(1, count + 1) if not numbers[number]]
    lost = [f"the sweep is {job['state']}: {job['reason']}"] if job["state"] != "done" else []
    lost += [f"parameter {number} has no result" for number in missing]
    twice = [f"parameter {number} has {times} results" for number, times in numbers.items() if times > 1]
    twice += [f"parameter {number} was completed {len(ends)} times" for number, ends in found.ends.items() if ends[1:]]
    return SweepVerdict(lost, twice, _wrong(rows, found), _left(koalad))


def _wrong(rows: Sequence[Result], found: Account) -> list[str]:
    """Results that are not what the programs did."""
    wrong = []
    for row in rows:
        number = row["parameter"]
        ending, status = _EXPECTED.get(number % 2000, ("exited", 0))
        if row["ending"] != ending or (status is not None and row["exit_status"] != status):
            wrong.append(f"parameter {number} is said to have {row['ending']} with {row['exit_status']}")
        elif (ending, status) == ("exited", 0) and not found.ends.get(number):
            wrong.append(f"parameter {number} has a result, but never came to its end")
    return wrong


def _left(koalad: Koalad) -> list[str]:
    pending_cancels = [f"pending cancel: {each}" for each in koalad.grid.status()["pending_cancels"]]
    command = ["pgrep", "--full", "--uid", layout.USER, PLACE]
    alive = repair.on_each(_nodes(), lambda node: koalad.containers.exec(node, command)[0] == 0)
    programs = [f"a program runs on {node}" for node, there in zip(_nodes(), alive, strict=True) if there]
    return [f"queue: {line.strip()}" for line in batch_jobs(koalad.testgrid)] + pending_cancels + programs


def after(struck: Struck, rows: Sequence[Result], found: Account, until: float) -> Struck:
    """Add the runs after it. `until`: when the next fault struck."""
    began = [moment(row["started_at"]) for row in rows if row["cluster"] == struck.stroke.cluster]
    later = [at for at in began if at >= struck.mended_at]
    again = sum(any(struck.at <= at < until for at in starts[1:]) for starts in map(sorted, found.starts.values()))
    went_on = min(later) - struck.mended_at if later else None
    return Struck(struck.stroke, struck.at, struck.mended_at, struck.done, again, went_on)


def moment(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _nodes() -> list[str]:
    return [node for cluster in layout.CLUSTERS if cluster.name in layout.MAIN for node in cluster.nodes]
