"""Sweeps for the API: the state of their CS-Runners, the result of each parameter, and its output."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, replace

from koalapy_adapters.launcher.space import Compiled, names

from koalapy.coallocation.changeable import is_possible, no_such
from koalapy.languages.stageout import check_templates
from koalapy.model.change import Change
from koalapy.model.commands import CollectOutput, OutputKind
from koalapy.model.errors import RequestError
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Job
from koalapy.model.states import JobState
from koalapy.model.sweep import ParameterResult
from koalapy.runtime.clock import SystemClock
from koalapy.runtime.driver_thread import DriverThread
from koalapy.runtime.parameters import line_reader
from koalapy.store.contract import Store
from koalapy.views.sweeps import Forecast, Pace, RunnerReport, forecast, living_runners, past_runner

SLOT_FILES = {"output": "slot-%d.out", "errors": "slot-%d.err"}  # of a Launcher
ReadSlot = Callable[[str, AttemptId, str, int, int], Iterator[bytes]]  # cluster, attempt, path, offset, size


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one parameter. `values`: in the order of the sweep's names; None if they are not known any more."""

    values: tuple[str, ...] | None
    cluster: str
    attempt: AttemptId
    result: ParameterResult


class Sweeps:
    """The calls for sweeps, for any thread.

    `read_slot` reads a part of a file that an attempt has left on its cluster.
    """

    def __init__(self, store: Store, loop: DriverThread, clock: SystemClock, read_slot: ReadSlot) -> None:
        self._store, self._loop, self._clock, self._read_slot = store, loop, clock, read_slot
        self._pace = Pace()

    def committed(self, change: Change) -> None:
        self._pace.count(self._clock.now(), change.results)
        for job in change.jobs:
            if job.state.final:
                self._pace.forget(job.id)

    def runners(self, states: Collection[JobState] | None = None) -> list[RunnerReport]:
        """Return reports of the sweeps in these states, or of those that are not final.

        The sweeps are in the order of their ids.
        """
        now = self._clock.now()
        found = self._loop.ask(lambda engine: living_runners(engine, now, self._pace))
        living = {report.job.id: report for report in found}
        if states is None:
            return list(living.values())
        sweeps = [job for job in self._store.jobs(states) if job.runner is not None]
        return [living.get(job.id) or past_runner(job) for job in sweeps]

    def forecast(self) -> Forecast:
        now = self._clock.now()
        return self._loop.ask(lambda engine: forecast(engine.scavenger.prediction, now))

    def names(self, sweep: JobId) -> list[str]:
        """Return the names of the sweep's parameters, as they are written.

        Raises RequestError if the job is no sweep.
        """
        return names(_space(self._sweep(sweep)))

    def results(self, sweep: JobId, failed: bool = False) -> Iterator[Row]:
        """Return the results in the order in which they were recorded. The store is read as they are consumed.

        `failed`: only those that did not end with exit status 0. Raises RequestError at once if the job is no sweep.
        """
        return self._rows(self._sweep(sweep), failed)

    def output(self, sweep: JobId, number: int, stream: str) -> Iterator[bytes]:
        """Return the output of one parameter. `stream` is output or errors. Raises KoalaError."""
        job = self._sweep(sweep)
        found = self._result(job, number)
        result = found.result
        at = (result.output_at, result.output_size) if stream == "output" else (result.errors_at, result.errors_size)
        return (
            self._read_slot(found.cluster, found.attempt, SLOT_FILES[stream] % result.slot, *at) if at[1] else iter(())
        )

    def fetching(self, sweep: Job, command: CollectOutput) -> CollectOutput:
        """Return the command that collects the files of those parameters of a sweep that are done.

        If the paths contain no parameter's name, the command collects the files of the Launchers. Raises RequestError
        if no parameter is done, or for a path that is the same for several parameters.
        """
        assert sweep.runner is not None
        if not sweep.runner.done:
            message = f"No parameter of sweep {sweep.id} is done yet."
            raise RequestError("nothing_to_fetch", message, "`koala runners` shows the progress.")
        if check_templates(sweep.request, command.paths):
            return replace(command, kind=OutputKind.ENDED_PARAMETERS)
        found = ((batch.cluster, batch.attempt) for _, batch in self._store.results(sweep.id))
        paths = tuple(path.replace("{{", "{").replace("}}", "}") for path in command.paths)
        return replace(command, sources=tuple(dict.fromkeys(found)), paths=paths)

    def _sweep(self, sweep: JobId) -> Job:
        job = self._store.job(sweep) if is_possible(sweep) else None
        if job is None:
            raise no_such(sweep, self._store.unreadable())
        if job.runner is None:
            raise RequestError("no_sweep", f"Job {sweep} is not a sweep.", "`koala runners --all` lists the sweeps.")
        return job

    def _rows(self, job: Job, failed: bool) -> Iterator[Row]:
        values = _values_of(job)
        for _, batch in self._store.results(job.id):
            for result in batch.results:
                if not failed or not result.succeeded:
                    yield Row(values(result.number), batch.cluster, batch.attempt, result)

    def _result(self, job: Job, number: int) -> Row:
        assert job.runner is not None
        if not 1 <= number <= job.runner.count:
            message = f"Sweep {job.id} has no parameter {number}."
            raise RequestError("no_such_parameter", message, f"They are counted from 1 to {job.runner.count}.")
        if number in job.runner.done and (found := self._store.result(job.id, number)) is not None:
            return Row(None, found.cluster, found.attempt, found.results[0])
        message = f"Parameter {number} of sweep {job.id} has not ended yet."
        raise RequestError(
            "not_ended", message, "Its output can be read once it has; `koala runners` shows the progress."
        )


def _space(job: Job) -> dict[str, object]:
    assert job.request.parameters is not None
    return asdict(job.request.parameters)


def _values_of(job: Job) -> Callable[[int], tuple[str, ...] | None]:
    """Return a function that gives a parameter's values.

    It returns None once the file that holds them is not there any more.
    """
    space = _space(job)
    try:
        compiled = Compiled(space, [f"{{{name}}}" for name in names(space)], line_reader(job.request))
    except ValueError:
        return lambda number: None

    def values(number: int) -> tuple[str, ...] | None:
        try:
            return tuple(value.decode("utf-8", "surrogateescape") for value in compiled.of(number))
        except ValueError:
            return None

    return values
