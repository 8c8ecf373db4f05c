"""The steps that the engine runs after the events of a batch, in their order, and which of them are due."""

from koalapy.model.index import Index
from koalapy.model.sweep import Sweep

# The bit of each step; the lowest one runs first.
FACTS = 1 << 0  # the owners of attempts react to what was derived for them
TIMERS = 1 << 1  # jobs whose timers have expired are marked
MISSING = 1 << 2  # attempts that were missing for too long are lost
RUN_LIST = 1 << 3  # jobs are released, completed, stopped and settled
LAUNCHERS = 1 << 4  # Launchers are released, stopped and let go
SWEEP_ENDS = 1 << 5
PREREQUISITES = 1 << 6  # jobs take their turns, or fail with those that they waited for
DOUBTFUL = 1 << 7  # waiting jobs of a restored store are bound to their clusters
REQUESTS = 1 << 8  # those of neighbours are served, passed on or rejected
PILOTS = 1 << 9  # they become clusters, and end
KEPT_PILOTS = 1 << 10  # those of the grid file's rules are opened
SUSPENDED = 1 << 11  # jobs are resumed
STARTUP = 1 << 12  # clusters that are late after the start are given up
PASS = 1 << 13  # jobs are placed, and no job after it
SWEEPS = 1 << 14  # nodes are reclaimed and divided, and parameters fed
ADS = 1 << 15  # those of jobs are to be compared with those of clusters
REVOKING = 1 << 16  # leases are taken back
NEIGHBOURS = 1 << 17  # leases are followed, and jobs sent and reported
LEASES = 1 << 18  # those that are borrowed join and leave the grid
NOTIFICATIONS = 1 << 19

ALL = (1 << 20) - 1
REPEATED = FACTS | PREREQUISITES | PILOTS  # run again if a later step of the same batch has woken them


class DueSteps(Index):
    """The steps that are due, as the bits of `steps`: all of them after a start.

    A step that is woken runs in the present batch if its turn is still to come, else in the next one.
    """

    kinds = (Sweep,)

    def __init__(self) -> None:
        self.steps = ALL

    def wake(self, steps: int) -> None:
        self.steps |= steps

    def added(self, sweep: Sweep) -> None:
        self.wake(SWEEP_ENDS | SWEEPS)
