"""The delay of jobs on nodes that a sweep has, compared with idle ones: local jobs, and koalapy's own other jobs.

A sweep whose program sleeps until it is stopped has every node of the cluster. Then another user submits a job of
some of the nodes by the batch system's own command on the head, or we one by koalapy; each reports itself when it runs.
The same on idle nodes, in the same round, with the sweep held. Clocks are those of one machine. With `--native` the
Launchers go where the batch system takes nodes back by itself: Slurm's partition `low`, which `batch` preempts, or a
subordinate queue of Grid Engine, which is made for the bench and removed after it.

Its cost is the processor time of everything on the head node, by its control group, while a sweep runs there and
nothing else happens; less what the head costs without koalapy. Of one core, that must stay below 1 %.

    tests/bench/run unobtrusive [--cluster NAME] [--rounds N] [--floor 1s] [--native] [--cost-seconds S]
"""

import argparse
import os
import random
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime
from typing import Any

from _grid import bootstrap, end_orderly, koalad_of, last_line
from _heads import HEADS, OTHERS, OURS, Head
from _native import taken_back
from politeness import cpu_s

from koalapy import Grid, testgrid
from koalapy.languages import sweep_request

LOCAL_BOUND_S, GRID_BOUND_S, COST_BOUND = 3.0, 1.0, 1.0
NODES, PER_NODE = 2, 4  # what the jobs ask for
_PATIENCE_S = 120
_STARTED = "{home}/bench-started"
_LOCAL = {
    "alpha": f"sbatch --parsable --output=/dev/null --nodes={NODES} --ntasks-per-node={PER_NODE} --time=5 {{script}}",
    "gamma": f"qsub -terse -q all.q -o /dev/null -j y -pe mpi {NODES * PER_NODE} {{script}}",
}
_SCRIPT = "#!/bin/sh\n#$ -S /bin/sh\ndate +%s.%N > {started}.new && mv {started}.new {started}\n"
Times = dict[str, list[float]]


class Scene:
    """One cluster, a koalad over it, and a sweep that never ends."""

    def __init__(self, head: Head, koalad: Grid) -> None:
        self.head, self.koalad = head, koalad
        program = ["/bin/sh", "-c", "exec sleep 3600", "{x}"]
        request = sweep_request(program, ["x=1:1000000"], component={"walltime": "30m"})
        self.sweep = koalad.submit(request, directory="/tmp")
        self.phases: list[tuple[float, float]] = []  # seconds until koalad gave back nodes, and from then on

    @property
    def scavenged(self) -> int:
        (cluster,) = self.koalad.clusters()
        return int(cluster["scavenged"] or 0)

    def idle(self) -> None:
        """Nothing of the sweep is left on the cluster, and koalad has seen it."""
        if self._state() not in ("held", "stopping"):
            self.koalad.hold(self.sweep)
        self.until(lambda: self.scavenged == 0 and self._free() == self.head.processors, "it is idle")
        self.head.until_quiet()

    def full(self) -> None:
        """The sweep runs on all of it."""
        self.until(lambda: self._state() != "stopping", "the sweep is held")
        if self._state() == "held":
            self.koalad.release(self.sweep)
        self.until(lambda: self._running() == self.head.processors, "the sweep has all nodes")

    def _state(self) -> str:
        (job,) = self.koalad.jobs(ids=[self.sweep])
        return str(job["state"])

    def _free(self) -> int:
        (cluster,) = self.koalad.clusters()
        return int(cluster["idle"] or 0)

    def _running(self) -> int:
        """Return the parameters that are reported to run."""
        (runner,) = [each for each in self.koalad.runners() if each["id"] == self.sweep]
        return int(runner["running"] or 0)

    def until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not holds():
            if time.monotonic() > deadline:
                raise SystemExit(f"it did not come to this: {what}")
            time.sleep(0.1)

    # ---- what is delayed

    def local(self) -> float:
        """Seconds from the command of another user until the job runs."""
        started = _STARTED.format(home=f"/home/{OTHERS}")
        script = shlex.quote(_SCRIPT.format(started=started))
        self.head.run(f"rm -f {started}; printf %s {script} > bench.sh", OTHERS)
        began = time.time()
        self.head.run(_LOCAL[self.head.name].format(script="bench.sh"), OTHERS)
        instant = self._instant(started, OTHERS)
        self._note_phases(began, instant)
        return instant - began

    def grid(self) -> float:
        """The same of a job of ours, from the call of koalad."""
        started = _STARTED.format(home=f"/home/{OURS}")
        self.head.run(f"rm -f {started}")
        program = f'[ "$KOALA_RANK" != 0 ] || {{ date +%s.%N > {started}.new && mv {started}.new {started}; }}'
        component = {
            "processors": NODES * PER_NODE,
            "processors_per_node": PER_NODE,
            "executable": "/bin/sh",
            "arguments": ["-c", program],
            "walltime": "5m",
        }
        began = time.time()
        job = self.koalad.submit({"name": "bench", "components": [component]}, directory="/tmp")
        instant = self._instant(started, OURS)
        self.koalad.wait([job], _PATIENCE_S)
        return instant - began

    def _note_phases(self, began: float, started: float) -> None:
        """Until koalad had seen the job and decided, and from then on; nothing where nothing was given back."""
        reported = [each for each in self.koalad.show(self.sweep)["events"] if each["kind"] == "sweep_preempted"]
        decided = datetime.fromisoformat(reported[-1]["at"]).timestamp() if reported else 0.0
        if decided > began:
            self.phases.append((decided - began, started - decided))

    def _instant(self, path: str, user: str) -> float:
        look = f"until [ -s {path} ]; do sleep 0.05; done; cat {path}"
        return float(self.head.run(f"timeout {_PATIENCE_S} sh -c {shlex.quote(look)}", user))


def measure(name: str, asked: argparse.Namespace, chance: random.Random) -> dict[str, Any]:
    """One cluster: the delays of all rounds, and what the sweep costs the head."""
    end_orderly()
    with ExitStack() as stack:
        stack.enter_context(testgrid.reserved())
        running = testgrid.up()
        running.reset()
        head = HEADS[name](running.containers)
        scavenge = {"floor": asked.floor}
        if asked.native:
            scavenge["queue"] = stack.enter_context(taken_back(running.containers, name))
        without = cpu_share(head, asked.cost_seconds)
        grid = running.grid(name)
        grid["clusters"][name]["scavenge"] = scavenge
        grid["clusters"][name]["processors_per_node"] = PER_NODE
        koalad, _ = stack.enter_context(koalad_of(grid, timeout_s=300))
        scene = Scene(head, koalad)
        times = delays(scene, asked.rounds, chance)
        scene.full()
        time.sleep(10)  # what the filling costs is over
        costs = cpu_share(head, asked.cost_seconds) - without
        koalad.cancel(scene.sweep)
    phases = [[round(what(each), 2) for what in (statistics.median, max)] for each in zip(*scene.phases, strict=True)]
    reported = {"cluster": name, **scavenge, "of_a_core": round(costs, 2)}
    return {**reported, "until seen, from then (median, worst)": phases, **summary(times)}


def delays(scene: Scene, rounds: int, chance: random.Random) -> Times:
    times: Times = {f"{kind} {place}": [] for kind in ("local", "grid") for place in ("idle", "scavenged")}
    for number in range(rounds):
        for way in chance.sample(sorted(times), len(times)):
            kind, place = way.split()
            (scene.idle if place == "idle" else scene.full)()
            time.sleep(chance.uniform(0.0, 1.0))  # at any instant of whatever comes round and round
            times[way].append(scene.local() if kind == "local" else scene.grid())
        reported = ", ".join(f"{way} {each[-1]:.2f}" for way, each in times.items())
        load = os.getloadavg()[0]
        print(f"{scene.head.name}, round {number + 1}: {reported} s, load {load:.1f}", file=sys.stderr, flush=True)
    return times


def summary(times: Times) -> dict[str, Any]:
    found: dict[str, Any] = {way: round(statistics.median(each), 2) for way, each in times.items()}
    for kind in ("local", "grid"):
        pairs = zip(times[f"{kind} scavenged"], times[f"{kind} idle"], strict=True)
        added = [there - idle for there, idle in pairs]
        found[f"{kind} added"] = round(statistics.median(added), 2)
        found[f"{kind} interval"] = [round(end, 2) for end in bootstrap(added)]
        found[f"{kind} worst"] = round(max(added), 2)
    return found


def cpu_share(head: Head, seconds: float) -> float:
    """Percent of one core that everything on the head takes."""
    began, cpu = time.monotonic(), cpu_s(head)
    time.sleep(seconds)
    return 100 * (cpu_s(head) - cpu) / (time.monotonic() - began)


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests/bench/run unobtrusive", description=__doc__)
    parser.add_argument("--cluster", choices=sorted(_LOCAL), action="append", help="only this one")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--floor", default="1s", help="the shortest poll while a sweep has nodes there")
    parser.add_argument("--native", action="store_true", help="where the batch system takes nodes back by itself")
    parser.add_argument("--cost-seconds", type=float, default=60.0, help="that the cost is looked at")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 16))
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    found = [measure(name, arguments, chance) for name in arguments.cluster or sorted(_LOCAL)]
    worst = max(each["local added"] for each in found)
    holds = all(map(_holds, found))
    detail = {
        "rounds": arguments.rounds,
        "seed": arguments.seed,
        "load": round(os.getloadavg()[0], 1),
        "clusters": found,
    }
    last_line("unobtrusive", worst, "s added to a local job", LOCAL_BOUND_S, holds, detail)


def _holds(found: dict[str, Any]) -> bool:
    in_time = found["local added"] <= LOCAL_BOUND_S and found["grid added"] <= GRID_BOUND_S
    return bool(in_time and found["of_a_core"] <= COST_BOUND)


if __name__ == "__main__":
    main()
