"""Runs an experiment on all processors of this machine: every set of jobs through every architecture."""

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import NamedTuple

from koalapy.simulation.interop.architectures import ARCHITECTURES
from koalapy.simulation.interop.architectures.stage import Stage
from koalapy.simulation.interop.experiment import Experiment
from koalapy.simulation.interop.streams import draw_set
from koalapy.simulation.interop.system import System

Row = dict[str, str | int | float]


class Course(NamedTuple):
    """One set of jobs at one load. `most`: of its jobs, all if None."""

    experiment: Experiment
    system: System
    load: int
    number: int
    seed: int
    most: int | None

    def rows(self) -> list[Row]:
        """One for each architecture and variant. The same for the same seed, in every process."""
        loads = {grid: self.experiment.fixed.get(grid, self.load) / 100 for grid in set(self.system.grids.values())}
        jobs = draw_set(self.system, loads, self.seed, self.number, self.experiment.days)[: self.most]
        rows: list[Row] = []
        for variant, architecture in product(self.experiment.variants, self.experiment.architectures):
            stage = Stage(self.system, jobs, self.experiment.options(variant), seed=self.seed * 1000 + self.number)
            ARCHITECTURES[architecture](stage)
            begun: Row = {"architecture": architecture, "load": self.load, "set": self.number}
            rows.append(begun | stage.tally.row() | {"varied": variant.value})
        return rows


def courses(experiment: Experiment, system: System, seed: int, most: int | None) -> list[Course]:
    numbers = range(1, experiment.sets + 1)
    return [Course(experiment, system, load, number, seed, most) for load, number in product(experiment.loads, numbers)]


def run(chosen: list[Course], workers: int) -> Iterator[list[Row]]:
    """The rows of each course, in their order, as they come."""
    if workers == 1:
        yield from map(Course.rows, chosen)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(Course.rows, chosen)
