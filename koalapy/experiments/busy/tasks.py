"""The tasks of the experiment: four clusters, a log's jobs in their queues, and jobs of one to three components."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import NamedTuple

from koalapy.experiments.plan import Options, Row
from koalapy.experiments.replay.background import BackgroundRules, background, read_background, work_beyond
from koalapy.experiments.replay.comparison import busy_figures, figures
from koalapy.experiments.replay.record import Record, ReplayJob
from koalapy.experiments.replay.rules import NO_GRACE
from koalapy.experiments.replay.world import Replay
from koalapy.experiments.workloads.reading import counts_text
from koalapy.model.cluster import ClusterSettings
from koalapy.model.errors import RequestError
from koalapy.model.request import WhenBusy
from koalapy.model.settings import BARRIER_WAIT, Race, Settings
from koalapy.model.units import HOUR, MINUTE, Duration, format_duration
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.scheduler.schedule import Policies

CLUSTERS, PROCESSORS = 4, 128
OURS = 0.03  # the part of all processors that our jobs ask for
SIZES = (8, 16, 32)  # of a component
RUNS = tuple([Duration(minutes * MINUTE) for minutes in (30, 60, 120, 240)])
_LONGER = 1.5  # a walltime by its run time
LOADS, SETS, JOBS = (70, 85, 100, 110), 10, 96
_MOST_LOAD = 200


class Way(NamedTuple):
    """How jobs wait that find no idle processors. `barrier_wait`: of components in queues, in `race` each."""

    when_busy: WhenBusy
    barrier_wait: Duration = BARRIER_WAIT
    race: int = 1

    def settings(self, clusters: Sequence[str]) -> Settings:
        """Return the engine's settings for clusters of these names."""
        return Settings(
            clusters=tuple([ClusterSettings(name=name, batch="slurm") for name in clusters]),
            barrier_wait=self.barrier_wait,
            race=Race(most=self.race),
        )


REFERENCE = "wait"
"""The way with which the others are compared."""
_WAITS = (Duration(15 * MINUTE), HOUR, Duration(2 * HOUR))
_ONE = {
    REFERENCE: Way(WhenBusy.WAIT),
    **{f"queue, race {most}": Way(WhenBusy.QUEUE, race=most) for most in (1, 2, CLUSTERS)},
}
_SEVERAL = {
    REFERENCE: Way(WhenBusy.WAIT),
    "queue, 0s, race 1": Way(WhenBusy.QUEUE, Duration(0)),
    **{
        f"queue, {format_duration(wait)}, race {most}": Way(WhenBusy.QUEUE, wait, most)
        for most, wait in product((1, CLUSTERS), _WAITS)
    },
}
WAYS: Mapping[int, Mapping[str, Way]] = MappingProxyType({1: _ONE, 2: _SEVERAL, 3: _SEVERAL})
"""The ways by the number of components."""
WITHOUT = "without"
"""The name of the runs that have local jobs only, with which those of the others are compared."""


class BusyTask(NamedTuple):
    """One run. `load`: of the local jobs, in percent. `number`: of its set; `jobs`: of its jobs of one component.

    Jobs of several components are fewer in the same time, so that they ask for as many processors. Runs of one set have
    the same local jobs; those with as many components also the same jobs. No `components`: local jobs alone.
    """

    log: Path
    load: int
    number: int
    seed: int
    jobs: int
    components: int
    way: str

    def outcome(self) -> Row:
        seed = 1000 * self.seed + self.number
        sizes = {f"cluster {number}": PROCESSORS for number in range(1, CLUSTERS + 1)}
        length = _length(self.jobs)
        rules = BackgroundRules(log=self.log, load=self.load / 100, seed=seed, lenient=True)
        way = WAYS[self.components][self.way] if self.components else Way(WhenBusy.WAIT)
        jobs = busy_jobs(self.jobs // self.components, self.components, length, seed) if self.components else []
        record = Record(sizes)
        replay = Replay(
            way.settings(list(sizes)),
            Policies(worst_fit, fpfs),
            sizes,
            [replace(each, when_busy=way.when_busy) for each in jobs],
            record.add,
            background(rules, sizes, length),
        )
        for _ in replay.run():
            pass
        found, busy = figures(record), busy_figures(record, replay.local_waits, replay.local_waiting)
        return {
            "log": log_name(self.log), "load": self.load, "set": self.number, "components": self.components,
            "way": self.way, "jobs": found.jobs, "failed": busy.failed, "wait_mean_s": found.wait_mean_s,
            "wait_median_s": found.wait_median_s, "wait_95_s": found.wait_95_s, "held_hours": busy.held_hours,
            "used_hours": busy.used_hours, "local_jobs": busy.local_jobs, "local_wait_mean_s": busy.local_wait_mean_s,
        }  # fmt: skip


def busy_jobs(count: int, components: int, length: Duration, seed: int) -> list[ReplayJob]:
    """Draw jobs of equal components that name no cluster, in order of submission, over a time of this length."""
    rng = Random(f"{seed} {components}")
    jobs = []
    for number, at in enumerate(sorted(rng.randrange(length) for _ in range(count)), 1):
        runtime = rng.choice(RUNS)
        jobs.append(
            ReplayJob(
                number=number,
                submitted=Duration(at),
                components=((rng.choice(SIZES), None),) * components,
                runtime=runtime,
                walltime=Duration(round(_LONGER * runtime)),
            )
        )
    return jobs


def _length(jobs: int) -> Duration:
    """Return the time in which jobs of one component ask for a part of all processors."""
    work = jobs * sum(SIZES) * sum(RUNS) / len(SIZES) / len(RUNS)
    return Duration(round(work / (OURS * CLUSTERS * PROCESSORS)))


def tasks(options: Options) -> list[BusyTask]:
    """Return the tasks of all logs, loads, sets, numbers of components and ways. Raises RequestError."""
    if not options.logs:
        message = "The experiment busy takes the jobs of other users from logs, which koalapy does not have."
        raise RequestError("no_log", message, "Name one or several with --log FILE: see docs/busy.md.")
    if len({log_name(each) for each in options.logs}) < len(options.logs):
        raise RequestError("bad_logs", "Two of the logs have the same name.", "Rename one of them.")
    loads = options.loads if options.loads is not None else LOADS
    if not loads or not all(0 < load <= _MOST_LOAD for load in loads):
        message = f"The load of the other users is a whole percentage from 1 to {_MOST_LOAD} here."
        raise RequestError("bad_loads", message, "Write --loads 85,100.")
    least = max(WAYS)
    if options.jobs is not None and options.jobs < least:
        raise RequestError("few_jobs", f"--jobs {options.jobs} is less than {least}.", f"Write --jobs {least} or more.")
    kinds = [(0, WITHOUT), *((components, way) for components, ways in WAYS.items() for way in ways)]
    numbers = range(1, (options.sets or SETS) + 1)
    return [
        BusyTask(log, load, number, options.seed, options.jobs or JOBS, *kind)
        for log, load, number, kind in product(options.logs, loads, numbers, kinds)
    ]


def notes(logs: Sequence[Path]) -> list[str]:
    """Return sentences on what is left out of the logs."""
    found = []
    for log in logs:
        read = read_background(log, True, NO_GRACE)
        beyond = work_beyond(read.jobs, PROCESSORS)
        words = [counts_text(read.left_out)] if read.left_out else []
        if beyond:
            words.append(f"jobs larger than {PROCESSORS} processors, with {100 * beyond:.3g} % of the processor time")
        if words:
            found.append(f"{log.name}: left out are {', and '.join(words)}.")
    return found


def log_name(log: Path) -> str:
    """Return the name of a log's file without its suffixes."""
    return log.name.partition(".swf")[0].partition(".gwf")[0] or log.name
