"""Three users' sweeps on DAS-3 for an hour, under both policies and both workloads (CCGrid 2009, section 6.3).

Values that the paper does not give are chosen here. Local jobs hold 40 % of every cluster all the time, which leaves
about as many nodes as the paper's users had. A parameter, one of its solver's random walks, takes 6 to 12 minutes.
"""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from koalapy.experiments.plan import Row
from koalapy.experiments.sweeps.grid import GridPlan, SweepGrid
from koalapy.experiments.sweeps.workload import WORKLOADS
from koalapy.model.identity import JobId
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration, Instant
from koalapy.policies.fairshare import EQUIPARTITION_ALL, EQUIPARTITION_PERSITE
from koalapy.world.random_streams import between, stream

NAME = "cs-fairness"
ABOUT = "Three users' sweeps on the 272 nodes of DAS-3 while grid jobs come and go (CCGrid 2009, figure 5 and table 2)."

DAS3 = {"vu": 85, "uva": 41, "delft": 68, "multimedian": 46, "leiden": 32}  # nodes: the paper's table 1
SHARES = {"vu": 0.6, "uva": 0.1, "delft": 0.6, "multimedian": 0.1, "leiden": 0.2}  # for grid jobs: 40 % of all nodes
POLICIES = {"equipartition-all": EQUIPARTITION_ALL, "equipartition-persite": EQUIPARTITION_PERSITE}
USERS = 3
LENGTH = HOUR
LASTS = Duration(6 * MINUTE), Duration(12 * MINUTE)  # of a parameter
_LOCAL = 0.4
_PARAMETERS = 1_000
_SAMPLE = Duration(20 * SECOND)


class FairnessOutcome(NamedTuple):
    """A row for each user, and the nodes that each user held at every sample, for the figure."""

    rows: list[Row]
    held: dict[str, list[int]]


class FairnessTask(NamedTuple):
    """One hour. The same seed gives the same outcome in every process."""

    workload: str
    policy: str
    number: int
    seed: int
    length: Duration = LENGTH

    def outcome(self) -> FairnessOutcome:
        seed = 1000 * self.seed + self.number
        grid = SweepGrid(_plan(self.policy, seed), seed)
        grid.play(WORKLOADS[self.workload](seed, DAS3, SHARES, self.length), self.length)
        return FairnessOutcome(
            [self._row(grid, user, sweep) for user, sweep in enumerate(grid.sweeps, 1)],
            {f"user {user}": _held(grid, sweep, self.length) for user, sweep in enumerate(grid.sweeps, 1)},
        )

    def _row(self, grid: SweepGrid, user: int, sweep: JobId) -> Row:
        found = grid.sweep(sweep)
        lost = [each for each in grid.program_log.parameters.of(sweep) if each.ended is not None and not each.done]
        nodes = sum(end - begin for begin, end in stays(grid, sweep)) / self.length
        return {
            "workload": self.workload, "policy": self.policy, "set": self.number, "user": user,
            "done": len(found.done), "per_minute": len(found.done) / (self.length / MINUTE),
            "preemptions": found.preempted, "nodes": nodes,
            "lost_hours": sum(each.ended - each.began for each in lost if each.ended is not None) / HOUR,
        }  # fmt: skip


def tasks(seed: int, sets: int, length: Duration = LENGTH) -> list[FairnessTask]:
    numbers = range(1, sets + 1)
    return [FairnessTask(*each, seed, length) for each in product(WORKLOADS, POLICIES, numbers)]


def rows_of(outcomes: Sequence[FairnessOutcome]) -> list[Row]:
    return [row for outcome in outcomes for row in outcome.rows]


def stays(grid: SweepGrid, sweep: JobId) -> list[tuple[Instant, Instant]]:
    """Return when each Launcher of the sweep began, and when it ended; the end of the simulation if it still runs."""
    tags = dict.fromkeys(each.tag for each in grid.program_log.parameters.of(sweep))
    runs = [run for tag in tags for run in grid.program_log.runs(tag)]
    return [(run.began, end if end is not None else grid.agenda.now) for run in runs for end in run.nodes.values()]


def _plan(policy: str, seed: int) -> GridPlan:
    rng = stream(seed, "parameters")
    return GridPlan(
        nodes=DAS3,
        local={name: round(_LOCAL * nodes) for name, nodes in DAS3.items()},
        fairshare=POLICIES[policy],
        durations=tuple(between(rng, *LASTS) for _ in range(_PARAMETERS)),
        users=USERS,
    )


def _held(grid: SweepGrid, sweep: JobId, length: Duration) -> list[int]:
    """Return the number of nodes at every sample."""
    found = stays(grid, sweep)
    samples = range(grid.began + MINUTE, grid.began + MINUTE + length, _SAMPLE)
    return [sum(begin <= at < end for begin, end in found) for at in samples]
