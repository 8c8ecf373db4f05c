"""Sweeps for the API: the state of their CS-Runners, the result of each parameter, and its output."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, replace

from koalapy_adapters.launcher.space import Compiled, names

from koalapy.answers.sweeps import Admission, Runner
from koalapy.coallocation.changeable import is_possible, no_such
from koalapy.languages.stageout import check_templates
from koalapy.model.change import Change
from koalapy.model.commands import CollectOutput, OutputKind
from koalapy.model.errors import RequestError
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.parameters import ParameterResult
from koalapy.model.request import Request
from koalapy.model.states import JobState
from koalapy.model.sweep import Sweep
from koalapy.runtime.clock import SystemClock
from koalapy.runtime.driver_thread import DriverThread
from koalapy.runtime.parameters import line_reader
from koalapy.store.contract import Store
from koalapy.views.sweeps import Pace, forecast, living_runners, past_runner

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
        for sweep in change.sweeps:
            if sweep.state.final:
                self._pace.forget(sweep.id)

    def runners(self, states: Collection[JobState] | None = None) -> list[Runner]:
        """Describe the sweeps in these states, or of those that are not final.

        The sweeps are in the order of their ids.
        """
        now = self._clock.now()
        found = self._loop.ask(lambda engine: living_runners(engine, now, self._pace))
        living = {each["id"]: each for each in found}
        if states is None:
            return list(living.values())
        return [living.get(sweep.id) or past_runner(sweep) for sweep in self._store.sweeps(states)]

    def forecast(self) -> Admission:
        now = self._clock.now()
        return self._loop.ask(lambda engine: forecast(engine.scavenger.prediction, now))

    def names(self, sweep: JobId) -> list[str]:
        """Return the names of the sweep's parameters, as they are written.

        Raises RequestError if the job is no sweep.
        """
        return names(_space(self._sweep(sweep).request))

    def results(self, sweep: JobId, failed: bool = False) -> Iterator[Row]:
        """Return the results in the order in which they were recorded. The store is read as they are consumed.

        `failed`: only those that did not end with exit status 0. Raises RequestError at once if the job is no sweep.
        """
        return self._rows(self._sweep(sweep), failed)

    def output(self, sweep: JobId, number: int, stream: str) -> Iterator[bytes]:
        """Return the output of one parameter. `stream` is output or errors. Raises KoalaError."""
        found = self._result(self._sweep(sweep), number)
        result = found.result
        at = (result.output_at, result.output_size) if stream == "output" else (result.errors_at, result.errors_size)
        return (
            self._read_slot(found.cluster, found.attempt, SLOT_FILES[stream] % result.slot, *at) if at[1] else iter(())
        )

    def fetching(self, sweep: Sweep, command: CollectOutput) -> CollectOutput:
        """Return the command that collects the files of those parameters of a sweep that are done.

        If the paths contain no parameter's name, the command collects the files of the Launchers. Raises RequestError
        if no parameter is done, or for a path that is the same for several parameters.
        """
        if not sweep.done:
            message = f"No parameter of sweep {sweep.id} is done yet."
            raise RequestError("nothing_to_fetch", message, "`koala runners` shows the progress.")
        if check_templates(sweep.request, command.paths):
            return replace(command, kind=OutputKind.ENDED_PARAMETERS)
        found = ((batch.cluster, batch.attempt) for _, batch in self._store.results(sweep.id))
        paths = tuple(path.replace("{{", "{").replace("}}", "}") for path in command.paths)
        return replace(command, sources=tuple(dict.fromkeys(found)), paths=paths)

    def _sweep(self, sweep: JobId) -> Sweep:
        found = self._store.work(sweep) if is_possible(sweep) else None
        if found is None:
            raise no_such(sweep, self._store.unreadable())
        if not isinstance(found, Sweep):
            raise RequestError("no_sweep", f"Job {sweep} is not a sweep.", "`koala runners --all` lists the sweeps.")
        return found

    def _rows(self, sweep: Sweep, failed: bool) -> Iterator[Row]:
        values = _values_of(sweep.request)
        for _, batch in self._store.results(sweep.id):
            for result in batch.results:
                if not failed or not result.succeeded:
                    yield Row(values(result.number), batch.cluster, batch.attempt, result)

    def _result(self, sweep: Sweep, number: int) -> Row:
        if not 1 <= number <= sweep.count:
            message = f"Sweep {sweep.id} has no parameter {number}."
            raise RequestError("no_such_parameter", message, f"They are counted from 1 to {sweep.count}.")
        if number in sweep.done and (found := self._store.result(sweep.id, number)) is not None:
            return Row(None, found.cluster, found.attempt, found.results[0])
        message = f"Parameter {number} of sweep {sweep.id} has not ended yet."
        raise RequestError(
            "not_ended", message, "Its output can be read once it has; `koala runners` shows the progress."
        )


def _space(request: Request) -> dict[str, object]:
    assert request.parameters is not None
    return asdict(request.parameters)


def _values_of(request: Request) -> Callable[[int], tuple[str, ...] | None]:
    """Return a function that gives a parameter's values.

    It returns None once the file that holds them is not there any more.
    """
    space = _space(request)
    try:
        compiled = Compiled(space, [f"{{{name}}}" for name in names(space)], line_reader(request))
    except ValueError:
        return lambda number: None

    def values(number: int) -> tuple[str, ...] | None:
        try:
            return tuple(value.decode("utf-8", "surrogateescape") for value in compiled.of(number))
        except ValueError:
            return None

    return values
