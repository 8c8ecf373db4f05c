"""What koalad tells of sweeps: how their runners stand, each parameter's result, and what a parameter wrote."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

from koalapy_adapters.launcher.space import Compiled, names

from koalapy.engine import Engine
from koalapy.languages.stageout import check_templates
from koalapy.model.change import Change
from koalapy.model.commands import CollectOutput, Of
from koalapy.model.errors import RequestError
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Component, Job
from koalapy.model.states import ComponentState, JobState
from koalapy.model.sweep import ParameterResult, Runner
from koalapy.model.units import MINUTE, Instant
from koalapy.runtime.changes import is_possible, no_such
from koalapy.runtime.clock import SystemClock
from koalapy.runtime.loop import DriverLoop
from koalapy.runtime.pace import Pace
from koalapy.runtime.parameters import line_reader
from koalapy.scavenging.prediction import Prediction
from koalapy.store.contract import Store

SLOT_FILES = {"output": "slot-%d.out", "errors": "slot-%d.err"}  # of a Launcher
Doing = Mapping[AttemptId, int]  # Launchers, and how many parameters each runs
ReadSlot = Callable[[str, AttemptId, str, int, int], Iterator[bytes]]  # cluster, attempt, path, offset, size


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a runner has on one cluster.

    `nodes` and `processors`: its Launchers that have theirs, those included that are `going` or `suspended`.
    `starting`: Launchers whose batch job waits. `running`: parameters that run, None if that is not known. `out`:
    parameters there that are not done. `owed`: see Runner. `left_out`: nodes that are black holes.
    """

    cluster: str
    nodes: int = 0
    processors: int = 0
    starting: int = 0
    going: int = 0
    suspended: int = 0
    running: int | None = None
    out: int = 0
    owed: int = 0
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerReport:
    """One sweep. `charged`: processor-microseconds of its Launchers' allocations up to now, those that run included."""

    job: Job
    runner: Runner
    places: tuple[Place, ...]
    charged: int
    per_minute: float | None = None
    ends_at: Instant | None = None


@dataclass(frozen=True, slots=True)
class Forecast:
    """Mean nodes that sweeps can expect over the next hour; what was predicted of the last one, what came true of that,
    and how far predictions were off in the mean. None before there is one to tell by."""

    expected: float
    predicted: float | None = None
    came_true: float | None = None
    mean_error: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One parameter's result. `values` in the order of the sweep's names; None if they cannot be told any more."""

    values: tuple[str, ...] | None
    cluster: str
    attempt: AttemptId
    result: ParameterResult


class Sweeps:
    """For any thread. `read_slot` reads a stretch of a file that an attempt has left on its cluster."""

    def __init__(self, store: Store, loop: DriverLoop, clock: SystemClock, read_slot: ReadSlot) -> None:
        self._store, self._loop, self._clock, self._read_slot = store, loop, clock, read_slot
        self._pace = Pace()

    def committed(self, change: Change) -> None:
        self._pace.count(self._clock.now(), change.results)
        for job in change.jobs:
            if job.state.final:
                self._pace.over(job.id)

    def runners(self, states: Collection[JobState] | None = None) -> list[RunnerReport]:
        """By id; of the sweeps in these states, or of those that are not over."""
        now = self._clock.now()
        living = {report.job.id: report for report in self._loop.ask(lambda engine: self._living(engine, now))}
        if states is None:
            return list(living.values())
        sweeps = [job for job in self._store.jobs(states) if job.runner is not None]
        return [living.get(job.id) or _over(job) for job in sweeps]

    def forecast(self) -> Forecast:
        now = self._clock.now()
        return self._loop.ask(lambda engine: _forecast(engine.scavenger.prediction, now))

    def names(self, sweep: JobId) -> list[str]:
        """The names of its parameters, as they are written. Raises RequestError for what is no sweep."""
        return names(_space(self._sweep(sweep)))

    def results(self, sweep: JobId, failed: bool = False) -> Iterator[Row]:
        """In the order in which they were recorded; of those that did not end with 0 only, with `failed`.

        Read as they are asked for. Raises RequestError for what is no sweep, before the first.
        """
        return self._rows(self._sweep(sweep), failed)

    def output(self, sweep: JobId, number: int, stream: str) -> Iterator[bytes]:
        """What one parameter wrote: `stream` is output or errors. Raises KoalaError."""
        job = self._sweep(sweep)
        found = self._result(job, number)
        result = found.result
        at = (result.output_at, result.output_size) if stream == "output" else (result.errors_at, result.errors_size)
        return (
            self._read_slot(found.cluster, found.attempt, SLOT_FILES[stream] % result.slot, *at) if at[1] else iter(())
        )

    def fetching(self, sweep: Job, command: CollectOutput) -> CollectOutput:
        """The command for what those parameters of a sweep left that are done; without a parameter's name in its paths
        for what their Launchers left. Raises RequestError for a path that is the same for several parameters."""
        assert sweep.runner is not None
        if not sweep.runner.done:
            message = f"No parameter of sweep {sweep.id} is done yet."
            raise RequestError("nothing_to_fetch", message, "`koala runners` shows the progress.")
        if check_templates(sweep.request, command.paths):
            return replace(command, of=Of.DONE)
        found = ((batch.cluster, batch.attempt) for _, batch in self._store.results(sweep.id))
        paths = tuple(path.replace("{{", "{").replace("}}", "}") for path in command.paths)
        return replace(command, sources=tuple(dict.fromkeys(found)), paths=paths)

    def _living(self, engine: Engine, now: Instant) -> list[RunnerReport]:
        launchers: dict[JobId, list[Job]] = {}
        for job in engine.records.jobs.values():
            if job.glide is not None:
                launchers.setdefault(job.glide.sweep, []).append(job)
        sweeps = sorted((job for job in engine.records.jobs.values() if job.runner is not None), key=lambda job: job.id)
        doing = engine.scavenger.running_parameters
        return [self._living_one(job, launchers.get(job.id, []), doing, now) for job in sweeps]

    def _living_one(self, job: Job, launchers: Sequence[Job], doing: Doing, now: Instant) -> RunnerReport:
        assert job.runner is not None
        pace = self._pace.per_minute(now, job.id)
        left, runs = job.runner.left, job.state is JobState.RUNNING
        return RunnerReport(
            job=job,
            runner=job.runner,
            places=places(job.runner, launchers, doing),
            charged=job.runner.charged + sum(_charged(each.components[0], now) for each in launchers),
            per_minute=pace,
            ends_at=Instant(now + round(left * MINUTE / pace)) if pace and left and runs else None,
        )

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


def _forecast(prediction: Prediction, now: Instant) -> Forecast:
    expected = prediction.forecast(now)
    if not prediction.checks:
        return Forecast(expected)
    last = prediction.checks[-1]
    return Forecast(expected, last.predicted, last.came_true, prediction.mean_error)


def scavenged(jobs: Iterable[Job]) -> dict[str, int]:
    """Processors of each cluster that Launchers have."""
    found: dict[str, int] = {}
    for job in jobs:
        if job.glide is not None and (cluster := _has_nodes(job.components[0])):
            found[cluster] = found.get(cluster, 0) + job.components[0].processors
    return found


def places(runner: Runner, launchers: Sequence[Job], doing: Doing) -> tuple[Place, ...]:
    """By cluster: those where it has, is owed or has left out anything. `doing`: what was heard of its Launchers."""
    clusters = {name for name, _ in (*runner.out, *runner.owed, *runner.left_out)}
    clusters |= {job.components[0].cluster for job in launchers if job.components[0].cluster}
    return tuple(_place(runner, cluster, launchers, doing) for cluster in sorted(clusters))


def _place(runner: Runner, cluster: str, launchers: Sequence[Job], doing: Doing) -> Place:
    here = [job for job in launchers if job.components[0].cluster == cluster]
    having = [job for job in here if _has_nodes(job.components[0])]
    suspended = [job for job in having if job.components[0].state is ComponentState.SUSPENDED]
    heard = [doing.get(job.attempt_of(job.components[0])) for job in having if job not in suspended]
    running = [each for each in heard if each is not None]
    return Place(
        cluster=cluster,
        nodes=len(having),
        processors=sum(job.components[0].processors for job in having),
        starting=sum(not job.components[0].gone and job.components[0].allocated_at is None for job in here),
        running=sum(running) if len(running) == len(heard) else None,
        going=sum(job.glide is not None and job.glide.going != "" for job in having),
        suspended=len(suspended),
        out=len(runner.out_on(cluster)),
        owed=dict(runner.owed).get(cluster, 0),
        left_out=tuple(host for name, host in runner.left_out if name == cluster),
    )


def _has_nodes(component: Component) -> str | None:
    """The cluster on which it has its node now."""
    has = not component.gone and component.allocated_at is not None and component.ended_at is None
    return component.cluster if has else None


def _charged(component: Component, now: Instant) -> int:
    """Of a Launcher that has not been counted into its runner's yet."""
    if component.allocated_at is None:
        return 0
    return (now - component.allocated_at) * component.processors


def _over(job: Job) -> RunnerReport:
    assert job.runner is not None
    return RunnerReport(job=job, runner=job.runner, places=places(job.runner, (), {}), charged=job.runner.charged)


def _space(job: Job) -> dict[str, object]:
    assert job.request.parameters is not None
    return asdict(job.request.parameters)


def _values_of(job: Job) -> Callable[[int], tuple[str, ...] | None]:
    """Values that come from a file are read from it again: they are told for as long as it is there."""
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
