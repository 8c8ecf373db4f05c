"""Ends of the jobs of a scenario in a simulated world, where a process is killed at each step in turn."""

from collections.abc import Mapping
from typing import NamedTuple

from koalapy.model.identity import AttemptId, tag_of
from koalapy.model.job import Component, Job
from koalapy.model.request import ComponentRequest
from koalapy.model.states import JobState
from koalapy.model.units import MINUTE, SECOND, Duration
from koalapy.model.usage import By, sums
from koalapy.world.behaviour import EXECUTABLE, Behaviour, arguments_of
from koalapy.world.world import World


def component(cluster: str | None = None, optional: bool = False, **behaviour: object) -> ComponentRequest:
    executable = str(behaviour.pop("executable", EXECUTABLE))
    does = Behaviour(**{"runs": Duration(3 * SECOND), **behaviour})  # type: ignore[arg-type]
    return ComponentRequest(
        processors=1,
        executable=executable,
        arguments=arguments_of(does),
        cluster=cluster,
        walltime=Duration(MINUTE),
        optional=optional,
    )


class End(NamedTuple):
    """What became of a job. `runs`: of each component how often the program of each of its attempts ran, if it did.

    `statuses` are empty for a job that was cancelled: a wrapper out of reach is ended by the batch system's own cancel,
    which leaves some programs no time for a status. `used`: of the attempts whose programs ran, what their processor
    time was for and how often they ran, in the order of attempts.
    """

    state: JobState
    code: str
    statuses: tuple[int | None, ...]
    runs: tuple[tuple[int, ...], ...]
    used: tuple[tuple[str, int], ...]


def end_of(world: World, job: Job) -> End:
    return End(
        state=job.state,
        code=job.reason.code if job.reason else "",
        statuses=() if job.state is JobState.CANCELLED else tuple(each.exit_status for each in job.components),
        runs=tuple(_runs(world, job, each) for each in job.components),
        used=_used(world, job),
    )


def _used(world: World, job: Job) -> tuple[tuple[str, int], ...]:
    """Each entry must cover what the program's own lines in the ledger say, and so must every sum of them."""
    entries = [each for each in world.koalad.store.usage() if each.attempt.job == job.id]
    ran = {}
    for entry in entries:
        runs = world.program_log.runs(tag_of(world.instance, entry.attempt))
        ends = [at for run in runs for at in run.nodes.values() if at is not None]
        if runs:
            late = Duration(6 * SECOND)  # a cluster's clock is estimated, by answers that may be slow
            assert entry.started_at <= entry.released_at <= runs[0].began + late, (entry, runs)
            assert max(ends) - late <= entry.ended_at, (entry, runs)
            ran[entry.attempt] = (str(entry.kind), len(runs))
    of_job = {key: found for key, found in sums(entries, By.JOB).items() if key[0] == job.id}
    assert sum(each.total for each in of_job.values()) == sum(
        each.processors * (each.ended_at - each.started_at) for each in entries
    )
    return tuple(ran[attempt] for attempt in sorted(ran))


def _runs(world: World, job: Job, component: Component) -> tuple[int, ...]:
    attempts = [AttemptId(job.id, component.index, number + 1) for number in range(component.attempt)]
    runs = [len(world.program_log.runs(tag_of(world.instance, attempt))) for attempt in attempts]
    return tuple(count for count in runs if count)


class Differences:
    """From the undisturbed run."""

    def __init__(self, ends: Mapping[str, object]) -> None:
        self._ends = ends
        self.found: list[tuple[str, dict[str, object]]] = []

    def look(self, what: str, found: Mapping[str, object]) -> None:
        wrong = {name: end for name, end in found.items() if end != self._ends[name]}
        if wrong:
            self.found.append((what, wrong))
