"""The courses of an experiment: every set of jobs, through every architecture."""

from itertools import product
from typing import NamedTuple

from koalapy.simulation.experiments.plan import Row
from koalapy.simulation.interop.architectures import ARCHITECTURES
from koalapy.simulation.interop.architectures.stage import Stage
from koalapy.simulation.interop.experiment import Experiment
from koalapy.simulation.interop.streams import draw_set
from koalapy.simulation.interop.system import System


class Course(NamedTuple):
    """One set of jobs at one load. `most`: of its jobs, all if None."""

    experiment: Experiment
    system: System
    load: int
    number: int
    seed: int
    most: int | None

    def outcome(self) -> list[Row]:
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
