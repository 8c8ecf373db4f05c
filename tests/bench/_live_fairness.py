"""The fairness experiment's hours, each a few minutes long, on real Slurm and Grid Engine.

Local jobs hold a quarter of each cluster, which leaves twelve nodes: four for each of three users, if all is fair. One
parameter runs at a time on a node, and takes as much of the hour as in the simulated world; so do grid jobs.
"""

import time
from collections.abc import Sequence

from _grid import koalad_of

from koalapy import Grid
from koalapy.answers import sweeps as answers
from koalapy.experiments.plan import Row
from koalapy.experiments.sweeps.fairness import LASTS, USERS, FairnessOutcome, FairnessTask
from koalapy.experiments.sweeps.workload import WORKLOADS, GridJob
from koalapy.languages import sweep_request
from koalapy.model.units import MINUTE, SECOND, Duration
from koalapy.testgrid import Running
from koalapy.world.random_streams import between, stream

NAME = "cs-fairness-live"
ABOUT = "Three users' sweeps on twelve real nodes under Slurm and Grid Engine while grid jobs come and go."
NODES = {"alpha": 6, "beta": 3, "gamma": 3}  # without those of local jobs
_SHARES = {"alpha": 0.6, "beta": 0.3, "gamma": 0.0}  # for grid jobs, unevenly: 5 of 12
_LOCAL = {
    "alpha": ["sbatch", "--exclusive", "--nodes=2", "--time=110", "--output=/dev/null", "--wrap=sleep 6600"],
    "beta": ["sbatch", "--exclusive", "--nodes=1", "--time=110", "--output=/dev/null", "--wrap=sleep 6600"],
    "gamma": ["qsub", "-q", "all.q@gamma-c4", "-pe", "mpi", "4", "-o", "/dev/null", "-b", "y", "sleep", "6600"],
}
_LOCAL_USER, _PER_NODE = "wombat", 4
_PARAMETERS = 200
_PATIENCE_S = 120


def play(running: Running, task: FairnessTask, faster: float) -> FairnessOutcome:
    """`faster`: so many times as fast as the course has it."""
    running.reset()
    for cluster, command in _LOCAL.items():
        running.check(cluster, ["bash", "-lc", 'cd /tmp; exec "$@"', "local", *command], _LOCAL_USER)
    grid = running.grid(*NODES)
    grid["scavenging"] = {"policy": task.policy}
    for settings in grid["clusters"].values():
        settings |= {"processors_per_node": _PER_NODE, "poll": "2s"}
    with koalad_of(grid, timeout_s=300) as (koalad, _):
        _wait_until_known(koalad)
        return _Hour(koalad, task, faster).play()


class _Hour:
    """One course, once."""

    def __init__(self, koalad: Grid, task: FairnessTask, faster: float) -> None:
        self._koalad, self._course, self._faster = koalad, task, faster
        jobs = WORKLOADS[task.workload](_seed(task), NODES, _SHARES, task.length)
        self._jobs: list[GridJob] = sorted(jobs, reverse=True)

    def play(self) -> FairnessOutcome:
        began = time.monotonic()
        request = _sweep(self._course, self._faster)
        sweeps = self._koalad.submit_many([request] * USERS, directory="/tmp")  # at once: nobody has a start
        held: dict[int, list[int]] = {sweep: [] for sweep in sweeps}
        runners: list[answers.Runner] = []
        while (at := (time.monotonic() - began) * self._faster * SECOND) < self._course.length:
            while self._jobs and self._jobs[-1].at <= at:
                self._koalad.submit(_job(self._jobs.pop(), self._faster), directory="/tmp")
            runners = [each for each in self._koalad.runners() if each["id"] in held]
            for each in runners:
                held[each["id"]].append(sum(place["nodes"] for place in each["clusters"]))
            time.sleep(0.5)
        found = {each["id"]: each for each in runners}
        rows = [self._row(user, found[sweep], held[sweep]) for user, sweep in enumerate(sweeps, 1)]
        return FairnessOutcome(rows, {f"user {user}": held[sweep] for user, sweep in enumerate(sweeps, 1)})

    def _row(self, user: int, runner: answers.Runner, held: Sequence[int]) -> Row:
        return {
            "workload": self._course.workload, "policy": self._course.policy, "set": self._course.number, "user": user,
            "done": runner["done"], "per_minute": runner["done"] / (self._course.length / MINUTE),
            "preemptions": runner["preempted"], "nodes": sum(held) / len(held),
        }  # fmt: skip


def _seed(task: FairnessTask) -> int:
    return 1000 * task.seed + task.number


def _sweep(task: FairnessTask, faster: float) -> dict[str, object]:
    """The same parameters for every user."""
    rng = stream(_seed(task), "parameters")
    seconds = ",".join(_seconds(between(rng, *LASTS), faster) for _ in range(_PARAMETERS))
    node = {"processors": _PER_NODE, "threads_per_process": _PER_NODE, "walltime": "10m"}
    return dict(sweep_request(["/bin/sleep", "{x}"], [f"x={seconds}"], component=node))


def _job(job: GridJob, faster: float) -> dict[str, object]:
    component = {
        "processors": job.nodes * _PER_NODE,
        "processors_per_node": _PER_NODE,
        "launch": "per-node",
        "cluster": job.cluster,
        "executable": "/bin/sleep",
        "arguments": [_seconds(job.lasts, faster)],
        "walltime": "10m",
    }
    return {"name": "grid", "components": [component]}


def _seconds(length: Duration, faster: float) -> str:
    return f"{length / SECOND / faster:.2f}"


def _wait_until_known(koalad: Grid) -> None:
    """Until all is idle but what local jobs have."""
    wanted = {name: nodes * _PER_NODE for name, nodes in NODES.items()}
    deadline = time.monotonic() + _PATIENCE_S
    while (idle := {each["name"]: each["idle"] for each in koalad.clusters()}) != wanted:
        if time.monotonic() > deadline:
            raise SystemExit(f"the clusters never had idle what local jobs leave: {idle}")
        time.sleep(0.2)
