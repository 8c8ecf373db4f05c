"""A scenario in a simulated world, in which a process is killed at each step in turn: its user, and the jobs' ends."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from koalapy.model.identity import AttemptId, tag_of
from koalapy.model.job import Job
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.states import JobState
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration
from koalapy.model.usage import By, sums
from koalapy.model.work import Flow
from koalapy.world.behaviour import EXECUTABLE, Behaviour, arguments_of
from koalapy.world.koalad.host import OWNER
from koalapy.world.world import World

CHECK_EVERY = Duration(2 * SECOND)  # between two checks of the user

Play = Callable[[Callable[[World], None]], tuple[World, Mapping[str, object]]]  # the scenario in a disturbed world


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


class User:
    """Submits jobs one by one, each under its name as its key, and again until it is accepted.

    He is also who starts koalad again, when he finds it dead.
    """

    def __init__(self, world: World, jobs: Mapping[str, Request]) -> None:
        self._world, self._jobs, self._to_submit = world, jobs, list(jobs)
        world.agenda.after(CHECK_EVERY, self._look)

    def job(self, name: str) -> Any:
        """The job or flow of this name; None before it is accepted."""
        store = self._world.koalad.store
        found = store.id_of_key(OWNER, name)
        return None if found is None else store.work(found)

    @property
    def done(self) -> bool:
        return self._world.koalad.alive and all(job is not None and job.state.final for job in self.all())

    def all(self) -> list[Any]:
        return [self.job(name) for name in self._jobs]

    def play(self) -> None:
        """Let the world go on until it is quiescent."""
        latest = self._world.agenda.now + HOUR
        while not (self.done and self._world.quiescent()):
            assert self._world.agenda.now < latest, self.all()
            self._world.run_for(CHECK_EVERY)

    def may_submit(self, name: str) -> bool:
        return True

    def change_mind(self) -> None:
        """Ask koalad, which is alive, for something else."""

    def _look(self) -> None:
        self._world.agenda.after(CHECK_EVERY, self._look)
        koalad = self._world.koalad
        koalad.start()
        if not koalad.alive:  # already dead again
            return
        for name in self._to_submit[:1]:
            if self.job(name) is not None:
                self._to_submit.remove(name)
            elif self.may_submit(name):
                koalad.submit(self._jobs[name], key=name)
        self.change_mind()


class End(NamedTuple):
    """The end of a job. `runs`: for each component, how often the program of each attempt ran, if it did.

    `statuses` are empty for a job that was cancelled: a wrapper out of reach is ended by the batch system's own cancel,
    which leaves some programs no time for a status. `used`: of the attempts whose programs ran, what their processor
    time was for and how often they ran, in the order of attempts.
    """

    state: JobState
    code: str
    statuses: tuple[int | None, ...]
    runs: tuple[tuple[int, ...], ...]
    used: tuple[tuple[str, int], ...]


def end_of(world: World, job: Job | Flow, clocks: Duration = SECOND) -> End:
    """Return what became of the job. `clocks`: by how much those of hosts may differ."""
    attempts = job.attempts if isinstance(job, Job) else ()
    return End(
        state=job.state,
        code=job.reason.code if job.reason else "",
        statuses=()
        if job.state is JobState.CANCELLED
        else tuple(None if each is None else each.exit_status for each in attempts),
        runs=tuple(_runs(world, job, each) for each in range(len(job.request.components)))
        if isinstance(job, Job)
        else (),
        used=_used(world, job, clocks),
    )


def _used(world: World, job: Job | Flow, clocks: Duration) -> tuple[tuple[str, int], ...]:
    """Each entry must cover the program's own lines in the ledger, and so must every sum of them."""
    entries = [each for each in world.koalad.store.usage() if each.attempt.job == job.id]
    ran = {}
    for entry in entries:
        runs = world.program_log.runs(tag_of(world.instance, entry.attempt))
        ends = [at for run in runs for at in run.nodes.values() if at is not None]
        if runs:
            assert entry.started_at <= entry.released_at <= runs[0].began + clocks, (entry, runs)
            assert max(ends) - clocks <= entry.ended_at, (entry, runs)
            ran[entry.attempt] = (str(entry.kind), len(runs))
    of_job = {key: found for key, found in sums(entries, By.JOB).items() if key[0] == job.id}
    assert sum(each.total + each.on_pilots for each in of_job.values()) == sum(
        each.processors * (each.ended_at - each.started_at) for each in entries
    )
    return tuple(ran[attempt] for attempt in sorted(ran))


def _runs(world: World, job: Job, component: int) -> tuple[int, ...]:
    attempts = [AttemptId(job.id, component, number + 1) for number in range(job.number_of(component))]
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

    def kill_koalad(self, play: Play, steps: Iterable[int], lossy: bool = False) -> None:
        """Play the scenario once for each of these steps, at which koalad is killed. `lossy`: its messages are lost."""
        for step in steps:

            def kill(world: World, step: int = step) -> None:
                world.koalad.lossy, world.koalad.crash_point.left = lossy, step

            killed, found = play(kill)
            assert killed.koalad.starts == 2, step
            self.look(f"koalad killed at step {step}", found)
