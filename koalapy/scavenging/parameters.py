"""Parameters that were fed: recorded once, or put back into the pool; at last their files are collected."""

from collections.abc import Iterable

from koalapy.coallocation.stop import stop_job
from koalapy.core.core import Core
from koalapy.core.launchers import runner_of
from koalapy.model.commands import CollectOutput, OutputKind
from koalapy.model.events import LaunchersSeen, ParametersEnded, ParametersReturned
from koalapy.model.identity import JobId
from koalapy.model.intervals import NONE, Intervals
from koalapy.model.job import Job, Outcome
from koalapy.model.sweep import ParameterResult, ResultBatch, Runner, replace_runner
from koalapy.model.units import Instant

PerCluster = tuple[tuple[str, Intervals], ...]


def on_ended(core: Core, now: Instant, event: ParametersEnded) -> None:
    """Record what is new. What a Launcher has run lately tells of the program what it tells of no suspect."""
    fresh, foreign = record_results(core, event, core.sessions.fed.get((event.sweep, event.cluster), NONE))
    core.sessions.failures.pop((event.sweep, event.cluster), None)
    if fresh and core.records.attempt(event.attempt) is not None:
        core.sessions.latest[event.attempt] = any(each.succeeded for each in fresh)
        core.sessions.suspects.pop(event.attempt, None)  # a suspect says nothing of what it runs
    if foreign:
        core.foreign.note_parameters(event.cluster, event.sweep, foreign)


def on_launchers_seen(core: Core, now: Instant, event: LaunchersSeen) -> None:
    """How many parameters run in each Launcher, and when it pulled the newest."""
    for attempt, running, pulled_at in event.launchers:
        if core.records.attempt(attempt) is not None:
            core.sessions.doing[attempt] = running, pulled_at


def record_results(
    core: Core, event: ParametersEnded, fed: Intervals = NONE
) -> tuple[tuple[ParameterResult, ...], int]:
    """Record what is new of it; what was recorded before is not again. And how many results are passed over.

    Those of parameters that are not out on the cluster that tells them, nor have come back from there, nor are `fed`.
    """
    sweep = sweep_of(core, event.sweep)
    if sweep is None:
        return (), 0
    runner = runner_of(sweep)
    there = runner.out_on(event.cluster) | dict(runner.returned).get(event.cluster, NONE) | fed
    new = _fresh(runner, event.results)
    forgotten = sweep.id < core.records.counters.doubtful_below  # a store that was restored knows not all that was fed
    fresh = tuple(each for each in new if forgotten or each.number in there)
    if not fresh:
        return (), len(new)
    numbers = Intervals.numbers(each.number for each in fresh)
    failed = Intervals.numbers(each.number for each in fresh if not each.succeeded)
    put_runner(
        core,
        sweep,
        done=runner.done | numbers,
        failed=runner.failed | failed if failed else runner.failed,
        out=without(runner.out, numbers),
        returned=without(runner.returned, numbers),
    )
    core.records.result(ResultBatch(sweep.id, event.cluster, event.attempt, fresh))
    return fresh, len(new) - len(fresh)


def _fresh(runner: Runner, results: Iterable[ParameterResult]) -> tuple[ParameterResult, ...]:
    new: dict[int, ParameterResult] = {}
    for each in results:
        if 1 <= each.number <= runner.count and each.number not in runner.done:
            new.setdefault(each.number, each)
    return tuple(new.values())


def on_returned(core: Core, now: Instant, event: ParametersReturned) -> None:
    """Back into the pool; what is not out there, or not any more, is passed over.

    Whoever has them in hand all the same may still tell of their end.
    """
    sweep = sweep_of(core, event.sweep)
    if sweep is None:
        return
    runner, fed = runner_of(sweep), core.sessions.fed
    numbers = event.numbers & runner.out_on(event.cluster)
    fed[event.sweep, event.cluster] = fed.get((event.sweep, event.cluster), NONE) | numbers
    if not numbers:
        return
    put_runner(
        core,
        sweep,
        out=without(runner.out, numbers, event.cluster),
        returned=joined(runner.returned, event.cluster, numbers),
        preempted=runner.preempted + len(event.begun & numbers),
    )


def put_runner(core: Core, sweep: Job, **changes: object) -> None:
    core.records.change(sweep, runner=replace_runner(runner_of(sweep), changes))


def sweep_of(core: Core, sweep: JobId) -> Job | None:
    """Return the sweep; None if it is over, or was never one."""
    job = core.records.jobs.get(sweep)
    return job if job is not None and job.runner is not None and not job.state.final else None


def joined(numbers: PerCluster, cluster: str, more: Intervals) -> PerCluster:
    there = dict(numbers)
    return (*(there | {cluster: there.get(cluster, NONE) | more}).items(),)


def without(numbers: PerCluster, less: Intervals, cluster: str | None = None) -> PerCluster:
    """On all clusters, or on one."""
    left = ((name, each - less if cluster in (None, name) else each) for name, each in numbers)
    return tuple((name, each) for name, each in left if each)


def finish_sweep(core: Core, now: Instant, sweep: Job) -> None:
    """Its Launchers go meanwhile; the answer is treated as any job's is (coallocation.completion)."""
    request = sweep.request
    if not request.stage_out:
        stop_job(core, now, sweep, Outcome.DONE)
    elif not sweep.collecting:
        core.records.change(sweep, collecting=True)
        core.records.command(
            CollectOutput(
                job=sweep.id,
                sources=(),
                paths=request.stage_out,
                directory=request.directory,
                to=request.stage_out_to,
                kind=OutputKind.SUCCESSFUL_PARAMETERS,
            )
        )
