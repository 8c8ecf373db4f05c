"""The simulation under every architecture: arrivals and ends of jobs, clusters with free processors, and a clock."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from koalapy.experiments.interop.series import Series
from koalapy.experiments.interop.streams import GridJob
from koalapy.experiments.interop.system import System
from koalapy.experiments.interop.tally import Kind, Tally
from koalapy.model.units import MINUTE, Duration, Instant
from koalapy.world.agenda import Agenda

_ARRIVAL, _END, _CALL = 0, 1, 2  # ranks of calls at one instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The defaults of section 5.4. The paper does not give the delegation interval, the DTTL and the orders.

    `cool_down`: run until the last job has ended, instead of stopping at the last arrival. `binding`: least and most
    time that it takes to bind another site's processors (table 4). `series`: the time between two samples; None: no
    samples.
    """

    threshold: float = 1.0
    matchmaking_interval: Duration = Duration(5 * MINUTE)
    delegation_interval: Duration = MINUTE
    monitoring_interval: Duration = MINUTE
    dttl: int = 4
    max_passes: int = 1000  # more than there are cycles in days, for the natural backfilling of section 6.2
    reports: bool = True  # of free processors; in the paper, a site knows only its own (section 4.3)
    delegation: str = "fcfs"
    targets: str = "nearest"
    binding: tuple[Duration, Duration] = (Duration(0), Duration(0))
    job_managers: str = "user"  # fcondor: one for each user, or one for each "cluster"
    half_life: Duration = Duration(24 * 60 * MINUTE)  # of fcondor's past usage: Condor's PRIORITY_HALFLIFE
    cool_down: bool = False
    series: Duration | None = None


class Simulation:
    """A simulation, which an architecture runs after it has set `arrived` and `ended`.

    At one instant, arrivals come first, then ends, then calls, each in the order of their entry. `free`: idle
    processors by cluster. An architecture takes a job's processors as it starts the job; they return before `ended`.
    """

    def __init__(self, system: System, jobs: Sequence[GridJob], options: Options, seed: int) -> None:
        self.system, self.jobs, self.options = system, jobs, options
        self.free = {name: system.processors[name] for name in system.clusters}
        self.rng = Random(seed)
        self.arrived: Callable[[GridJob], None] = lambda job: None
        self.ended: Callable[[GridJob, str], None] = lambda job, cluster: None
        last = jobs[-1].arrived if jobs else Instant(0)
        self._until = None if options.cool_down else last
        self.tally = Tally(system, len(jobs), self._until)
        self.series = Series(options.series) if options.series is not None else None
        self._agenda = Agenda(Instant(0))

    @property
    def now(self) -> Instant:
        return self._agenda.now

    def start(self, job: GridJob, cluster: str, links: int = 0, bind: Duration = Duration(0)) -> None:
        """Take the job's processors now, and run it as soon as they are bound."""
        begins = Instant(self.now + bind)
        if self._until is None or begins <= self._until:
            self.tally.start(job, begins, cluster, self.now, links)
            if self.series is not None:
                self.series.start(job, begins)
        self.tally.messages[Kind.MATCH] += 6  # a match to both sides, a claim and its answer, a release to both
        self.tally.messages[Kind.DATA] += 2
        self._agenda.at(Instant(begins + job.runtime), lambda: self._end(job, cluster), _END)

    def at(self, when: Instant, call: Callable[[], None]) -> None:
        self._agenda.at(when, call, _CALL)

    def each(self, interval: Duration, call: Callable[[], None]) -> None:
        """Call `call` in every interval while jobs arrive or run, first at a random moment of the first interval."""

        def again() -> None:
            call()
            if self._busy:
                self.at(Instant(self.now + interval), again)

        self.at(Instant(self.rng.randrange(interval)), again)

    def run(self) -> None:
        self._busy = len(self.jobs)
        if self.series is not None:
            self._look(self.series)
        self._arriving = iter(self.jobs)
        self._await_next()
        self._agenda.run(self._until)

    def _await_next(self) -> None:
        """Schedule the next arrival."""
        job = next(self._arriving, None)
        if job is not None:
            self._agenda.at(job.arrived, partial(self._arrive, job), _ARRIVAL)

    def _arrive(self, job: GridJob) -> None:
        self._await_next()
        self.tally.messages[Kind.NOTIFY] += 1
        self.arrived(job)

    def _end(self, job: GridJob, cluster: str) -> None:
        self._busy -= 1
        self.free[cluster] += job.processors
        self.ended(job, cluster)

    def _look(self, series: Series) -> None:
        """Sample the series now, and again while jobs arrive or run."""
        series.look(self.now, self.tally.messages)
        if self._busy:
            self.at(Instant(self.now + series.interval), lambda: self._look(series))
