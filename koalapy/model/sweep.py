"""A sweep as koalapy keeps it: the request, its place among the sweeps, and the progress of its CS-Runner."""

from dataclasses import dataclass

from koalapy.model.fast_frozen import caster, fast_frozen, row_class
from koalapy.model.header import Header
from koalapy.model.intervals import NONE, Intervals
from koalapy.model.units import Instant

PerCluster = tuple[tuple[str, Intervals], ...]


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep(Header):
    """One sweep (CCGrid 2009, 5.1). Its pilots are attempts that it owns.

    `excluded`: (cluster, instant) until which the cluster is excluded for it. `collecting`: its parameters are done,
    and staged-out files are on their way.

    `count`: the number of its parameters. A parameter is in its pool unless it is done or out on a cluster. `done`:
    recorded, with any result; `failed`: those of them without success. `out`: (cluster, parameters) that its KCM or a
    Launcher has. `returned`: (cluster, parameters) that came back unfinished. `reclaimed`: (cluster, nodes) that were
    taken from it for others' jobs, and that -All gives back (CCGrid 2009, 5.3). `black_holes`: (cluster, host), where
    it gets no node. `charged`: processor-microseconds of its Launchers' allocations so far, without those that run.
    """

    count: int
    done: Intervals = NONE
    failed: Intervals = NONE
    returned: PerCluster = ()
    out: PerCluster = ()
    reclaimed: tuple[tuple[str, int], ...] = ()
    black_holes: tuple[tuple[str, str], ...] = ()
    preempted: int = 0
    charged: int = 0
    admitted_at: Instant | None = None
    excluded: tuple[tuple[str, Instant], ...] = ()
    collecting: bool = False

    @property
    def pool(self) -> Intervals:
        """The parameters that may be fed: neither done nor out."""
        taken = self.done
        for _, numbers in self.out:
            taken |= numbers
        return Intervals.of(((1, self.count),)) - taken

    @property
    def remaining(self) -> int:
        """The number of parameters that are not done."""
        return self.count - len(self.done)

    def out_on(self, cluster: str) -> Intervals:
        return dict(self.out).get(cluster, NONE)


SweepRow = row_class(Sweep)
sweep_row, sweep_value = caster(Sweep, SweepRow), caster(SweepRow, Sweep)
