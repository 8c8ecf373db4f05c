"""A cluster of the test grid by its own commands: filled by somebody else, watched, emptied; no koalapy in it."""

import shlex
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from _grid import end_orderly, koalad_of

from koalapy import Grid, testgrid
from koalapy.testgrid import Containers, layout

OURS, OTHERS = "koala", "wombat"
_PATIENCE_S = 300


@dataclass(frozen=True, slots=True)
class Words:
    """The commands of a batch system. Each is shell text; `count` prints how many jobs a user has."""

    fill: str
    submit: str
    script: str
    count: str
    running: str
    cancel: str


SLURM = Words(
    fill="sbatch --parsable --output=/dev/null --exclusive --nodes={nodes} --time=110 --wrap 'sleep 6600'",
    submit="sbatch --parsable {script}",
    script="#!/bin/sh\n#SBATCH --ntasks=1 --time=10 --output=/dev/null\nexec sleep 600\n",
    count="squeue --noheader --user={user} --format=%i | wc -l",
    running="squeue --noheader --user={user} --states=running --format=%i | wc -l",
    cancel="scancel --user={user}",
)
GRID_ENGINE = Words(
    fill="qsub -terse -o /dev/null -j y -pe mpi {processors} -b y sleep 6600",
    submit="qsub -terse {script}",
    script="#!/bin/sh\n#$ -S /bin/sh -l h_rt=600 -o /dev/null -j y\nexec sleep 600\n",
    count="qstat -u {user} | sed 1,2d | wc -l",
    running="qstat -s r -u {user} | sed 1,2d | wc -l",
    cancel="[ $(qstat -u {user} | wc -l) = 0 ] || qdel -u {user} > /dev/null",
)


@dataclass(frozen=True, slots=True)
class Head:
    """One cluster's head node, reached by the container engine, so that nothing is sent over koalapy's connection."""

    name: str
    words: Words
    nodes: int
    processors: int
    containers: Containers

    def run(self, text: str, user: str = OURS) -> str:
        """Run shell text in the user's login environment and return its output. A failure ends the bench."""
        return self.containers.check(self.name, ["bash", "-c", text], user=user, login=True).strip()

    @contextmanager
    def filled(self) -> Iterator[None]:
        """Every processor is somebody else's, so that what is submitted meanwhile waits."""
        self.run(self.words.fill.format(nodes=self.nodes, processors=self.processors), OTHERS)
        self._until(self.words.running.format(user=OTHERS), "-ge 1")
        try:
            yield
        finally:
            self.empty(OTHERS)

    def loop(self, jobs: int) -> str:
        """Shell text of one loop that submits so many jobs, one after another, by the bare binary."""
        script = f"{OURS}-bare.sh"
        self.run(f"printf %s {shlex.quote(self.words.script)} > {script}")
        submit = self.words.submit.format(script=script)
        return f"i=0; while [ $i -lt {jobs} ]; do {submit} > /dev/null || exit 1; i=$((i + 1)); done"

    @contextmanager
    def watched(self, jobs: int) -> "Iterator[Future[float]]":
        """When the batch system itself first lists so many jobs of ours, in seconds since 1970."""
        with ThreadPoolExecutor(1) as pool:
            seen = pool.submit(self._until, self.words.count.format(user=OURS), f"-ge {jobs}", OTHERS)
            time.sleep(0.5)  # until it looks
            yield seen

    def count(self) -> int:
        return int(self.run(self.words.count.format(user=OURS)))

    def cpu_s(self) -> float:
        """Processor seconds of all processes on the head so far, by its container's control group."""
        container = self.containers.client.containers.get(layout.container_name(self.name))
        stats: Any = container.stats(stream=False)
        return int(stats["cpu_stats"]["cpu_usage"]["total_usage"]) / 1e9

    def empty(self, user: str = OURS) -> None:
        """No job of this user is left."""
        self.run(self.words.cancel.format(user=user), user)
        self._until(self.words.count.format(user=user), "-eq 0")

    def until_quiet(self) -> None:
        """Wait until nobody has a job here."""
        for user in (OURS, OTHERS):
            self._until(self.words.count.format(user=user), "-eq 0", user)

    def _until(self, number: str, holds: str, user: str = OURS) -> float:
        """When the command's number was first like that, as this user sees it, whose commands nobody counts."""
        look = f"until [ $({number}) {holds} ]; do sleep 0.03; done; date +%s.%N"
        return float(self.run(f"timeout {_PATIENCE_S} bash -c {shlex.quote(look)}", user))


def alpha(containers: Containers) -> Head:
    return Head("alpha", SLURM, 8, 32, containers)


def gamma(containers: Containers) -> Head:
    return Head("gamma", GRID_ENGINE, 4, 16, containers)


HEADS: dict[str, Callable[[Containers], Head]] = {"alpha": alpha, "gamma": gamma}


@contextmanager
def full_cluster(name: str) -> Iterator[Head]:
    """One cluster of the test grid, which is brought up and reserved, and all of it is somebody else's."""
    end_orderly()
    with testgrid.reserved():
        running = testgrid.up()
        running.reset()
        head = HEADS[name](running.containers)
        with head.filled():
            yield head


@contextmanager
def koalad_over(head: Head, jobs: int) -> Iterator[Grid]:
    """A koalad over this one cluster, whose queue takes so many jobs of ours at once."""
    grid = testgrid.up().grid(head.name)
    grid["queue_after"] = "0s"
    grid["clusters"][head.name]["backlog"] = jobs
    with koalad_of(grid, timeout_s=300) as (koalad, _):
        _wait_until_known(koalad)
        yield koalad


def _wait_until_known(koalad: Grid) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while any(each["idle"] is None for each in koalad.clusters()):
        if time.monotonic() > deadline:
            raise SystemExit(f"the cluster is not known: {koalad.clusters()}")
        time.sleep(0.1)
