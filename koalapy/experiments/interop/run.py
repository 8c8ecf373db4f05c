"""The tasks of an experiment: every set of jobs, under every architecture."""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from koalapy.experiments.interop.architectures import ARCHITECTURES
from koalapy.experiments.interop.architectures.simulation import Simulation
from koalapy.experiments.interop.experiment import Experiment, Variant
from koalapy.experiments.interop.logged import load_of, read_traces
from koalapy.experiments.interop.streams import GridJob, draw_set
from koalapy.experiments.interop.system import System
from koalapy.experiments.plan import Row
from koalapy.model.units import HOUR

_MANY = 8  # from this number on, the tasks alone keep all processors busy


class Cut(NamedTuple):
    """The part of a set of jobs that is run: the number kept, the number of all, and the hour of the last one kept."""

    kept: int
    all: int
    hours: float


class Part(NamedTuple):
    """The outcome of a task: a row of the table for each run, and rows over time if the experiment samples them.

    `cut`: None if all jobs were run.
    """

    rows: list[Row]
    series: list[Row]
    notes: tuple[str, ...]
    cut: Cut | None


class ArchitecturesTask(NamedTuple):
    """One set of jobs at one load, under some architectures.

    `most`: the number of its first jobs that are run; None: all.
    """

    experiment: Experiment
    system: System
    load: int
    number: int
    seed: int
    most: int | None
    runs: Sequence[tuple[Variant, str]]

    def outcome(self) -> Part:
        """Return the outcome; the same seed gives the same one in every process."""
        part = self._jobs()
        rows: list[Row] = []
        series: list[Row] = []
        for variant, architecture in self.runs:
            simulation = Simulation(
                self.system, part.jobs, self.experiment.options(variant), seed=self.seed * 1000 + self.number
            )
            ARCHITECTURES[architecture](simulation)
            begun: Row = {"architecture": architecture, "load": part.load, "set": self.number}
            varied: Row = {"varied": variant.value}
            rows.append(begun | simulation.tally.row() | varied)
            if simulation.series is not None:
                series.extend(begun | row | varied for row in simulation.series.rows(part.jobs))
        return Part(rows, series, part.notes, part.cut)

    def _jobs(self) -> "_Jobs":
        experiment, system = self.experiment, self.system
        if experiment.traces:
            jobs, notes = read_traces(experiment.traces, system, experiment.trace_from, experiment.days)
            return self._first(jobs, load_of(jobs, system, experiment.days), notes)
        loads = {grid: experiment.fixed.get(grid, self.load) / 100 for grid in set(system.grids.values())}
        return self._first(draw_set(system, loads, self.seed, self.number, experiment.days), self.load, ())

    def _first(self, jobs: list[GridJob], load: int, notes: tuple[str, ...]) -> "_Jobs":
        if self.most is None or len(jobs) <= self.most:
            return _Jobs(jobs, load, notes, None)
        kept = jobs[: self.most]
        return _Jobs(kept, load, notes, Cut(len(kept), len(jobs), kept[-1].arrived / HOUR))


class _Jobs(NamedTuple):
    jobs: list[GridJob]
    load: int
    notes: tuple[str, ...]
    cut: Cut | None


def tasks(experiment: Experiment, system: System, seed: int, most: int | None) -> list[ArchitecturesTask]:
    """Return one task for each load and set; if there are few, one for each of their runs, in the same order."""
    runs = [
        (variant, architecture)
        for variant in experiment.variants
        for architecture in experiment.architectures
        if not variant.architectures or architecture in variant.architectures
    ]
    loads, sets = ([0], 1) if experiment.traces else (experiment.loads, experiment.sets)
    whole = [
        ArchitecturesTask(experiment, system, load, number, seed, most, runs)
        for load, number in product(loads, range(1, sets + 1))
    ]
    if len(whole) >= _MANY:
        return whole
    return [task._replace(runs=[run]) for task in whole for run in runs]
