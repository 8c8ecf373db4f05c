"""The makespan of a sweep on 32 nodes, with Launchers and with one job per parameter (CCGrid 2009, figure 4)."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from koalapy.experiments.plan import Options, Plan, Row, Table
from koalapy.experiments.sweeps.grid import GridPlan, SweepGrid
from koalapy.model.identity import JobId
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.settings import Scavenging
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration, Instant
from koalapy.policies.fairshare import EQUIPARTITION_ALL
from koalapy.world.behaviour import EXECUTABLE, Behaviour, arguments_of
from koalapy.world.random_sweeps import Parameter, sweep_of

if TYPE_CHECKING:  # listing the experiments needs no matplotlib
    from matplotlib.figure import Figure

NODES, LASTS = 32, MINUTE
COUNTS = (32, 64, 128, 256, 512, 1024, 2048, 4096)
BY = ("Launchers", "jobs")
_SETS = 3
_WALLTIME = Duration(5 * MINUTE)  # of a parameter
_MOST = Duration(12 * HOUR)


class MakespanTask(NamedTuple):
    """One sweep of `parameters` parameters. The same seed gives the same outcome in every process."""

    by: str
    parameters: int
    number: int
    seed: int

    def outcome(self) -> Row:
        """Return the makespan of the sweep. Raises OurError if it does not end in time."""
        grid = SweepGrid(_PLAN, 1000 * self.seed + self.number)
        requests = [_sweep(self.parameters)] if self.by == "Launchers" else _jobs(self.parameters)
        submitted = grid.play_out(requests, _MOST)
        times = _of_parameters(grid) if self.by == "Launchers" else _of_jobs(grid)
        assert len(times) == self.parameters
        ideal = -(-self.parameters // NODES) * LASTS
        makespan = max(end for _, end in times) - submitted
        return {
            "by": self.by, "parameters": self.parameters, "set": self.number, "makespan_s": makespan / SECOND,
            "ideal_s": ideal / SECOND, "of_ideal": makespan / ideal,
            "start_up_s": (min(begin for begin, _ in times) - submitted) / SECOND,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Makespan:
    name: str = "cs-makespan"
    about: str = "32 to 4,096 parameters of 60 s on 32 nodes, by Launchers and by jobs (CCGrid 2009, figure 4)."

    def plan(self, options: Options) -> Plan[Row]:
        options.refuse_loads_and_jobs(self.name)
        sets = range(1, (options.sets or _SETS) + 1)
        return Plan(
            tasks=[MakespanTask(by, count, number, options.seed) for count, by, number in product(COUNTS, BY, sets)],
            rows=list,
            figure=lambda rows: _figure(rows, self.about),
            table=_table,
            unit="sweeps",
        )


CS_MAKESPAN = Makespan()

_PLAN = GridPlan(
    nodes={"delft": NODES},
    local={},
    fairshare=EQUIPARTITION_ALL,
    durations=(),
    users=0,
    scavenging=Scavenging(walltime=Duration(4 * HOUR)),  # no Launcher reaches its walltime before the sweep ends
)
_PROGRAM = ComponentRequest(
    processors=1, executable=EXECUTABLE, arguments=arguments_of(Behaviour(runs=LASTS)), walltime=_WALLTIME
)


def _sweep(count: int) -> Request:
    return sweep_of([Parameter(LASTS)] * count, _WALLTIME)


def _jobs(count: int) -> list[Request]:
    return [Request(name=f"parameter {number}", components=(_PROGRAM,)) for number in range(1, count + 1)]


def _of_parameters(grid: SweepGrid) -> list[tuple[Instant, Instant]]:
    """Return when each parameter began and ended."""
    (sweep,) = grid.koalad.accepted
    return [(each.began, each.ended) for each in grid.program_log.parameters.of(sweep) if each.ended is not None]


def _of_jobs(grid: SweepGrid) -> list[tuple[Instant, Instant]]:
    return [_began_and_ended(grid, job) for job in grid.koalad.accepted]


def _began_and_ended(grid: SweepGrid, identity: JobId) -> tuple[Instant, Instant]:
    job = grid.koalad.store.job(identity)
    assert job is not None
    assert job.started_at is not None
    (attempt,) = job.present
    assert attempt.ended_at is not None
    return job.started_at, attempt.ended_at


def _means(rows: Sequence[Row]) -> list[tuple[str, int, float, float]]:
    """Return rows of means over the sets: by, parameters, makespan, and its ratio to the ideal."""
    keys = dict.fromkeys((str(row["by"]), int(row["parameters"])) for row in rows)
    found = []
    for by, count in keys:
        alike = [row for row in rows if (row["by"], row["parameters"]) == (by, count)]
        makespan, of_ideal = (fmean(float(row[name]) for row in alike) for name in ("makespan_s", "of_ideal"))
        found.append((by, count, makespan, of_ideal))
    return found


def _table(rows: Sequence[Row]) -> Table:
    lines = [(str(count), by, f"{span:.0f}", f"{ratio:.3f}") for by, count, span, ratio in _means(rows)]
    return Table(["parameters", "by", "makespan [s]", "of the ideal"], lines)


def _figure(rows: Sequence[Row], about: str) -> "Figure":
    """Draw the makespans and the ideal over the number of parameters, as in the paper."""
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(7, 4.4), layout="constrained")
    axes = drawn.subplots()
    for by, marker in zip(BY, "os", strict=True):
        mine = [(count, span) for name, count, span, _ in _means(rows) if name == by]
        axes.plot(*zip(*mine, strict=True), marker=marker, markersize=4, label=f"by {by}")
    counts = sorted({int(row["parameters"]) for row in rows})
    axes.plot(counts, [-(-count // NODES) * LASTS / SECOND for count in counts], "k:", label="ideal")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(counts, [f"{count:,}" for count in counts])
    axes.set_xlabel("parameters", fontsize=8)
    axes.set_ylabel("makespan [s]", fontsize=8)
    axes.tick_params(which="both", labelsize=8)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    drawn.suptitle(about, fontsize=10)
    return drawn
