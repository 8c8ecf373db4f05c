"""Parameters that were fed: their results are recorded once, or they return to the pool; last, files are collected."""

from collections.abc import Iterable

from koalapy.coallocation.stop import stop_job
from koalapy.core.core import Core
from koalapy.core.sweeps import runner_of
from koalapy.model.commands import CollectOutput, OutputKind
from koalapy.model.events import ClusterLeft, LaunchersSeen, ParametersEnded, ParametersReturned
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.intervals import NONE, Intervals
from koalapy.model.job import Job, Outcome
from koalapy.model.sweep import ParameterResult, ResultBatch, Runner, replace_runner
from koalapy.model.units import Instant

PerCluster = tuple[tuple[str, Intervals], ...]


def on_ended(core: Core, now: Instant, event: ParametersEnded) -> None:
    """Record the new results of a Launcher, and count those of parameters that were not fed there.

    A Launcher with new results is no longer suspected. Whether one of them succeeded counts when other suspects are
    judged.
    """
    fresh, foreign = record_results(core, event, core.sessions.fed.get((event.sweep, event.cluster), NONE))
    core.sessions.failures.pop((event.sweep, event.cluster), None)
    if fresh and _lives(core, event.attempt):
        core.sessions.latest[event.attempt] = any(each.succeeded for each in fresh)
        core.sessions.suspects.pop(event.attempt, None)  # a suspected Launcher reports no results
    if foreign:
        core.foreign.note_parameters(event.cluster, event.sweep, foreign)


def on_launchers_seen(core: Core, now: Instant, event: LaunchersSeen) -> None:
    """Note how many parameters run in each Launcher, and when its newest one was pulled."""
    for attempt, running, pulled_at in event.launchers:
        if _lives(core, attempt):
            core.sessions.doing[attempt] = running, pulled_at


def _lives(core: Core, pilot: AttemptId) -> bool:
    found = core.records.pilots.get(pilot)
    return found is not None and not found.let_go


def record_results(
    core: Core, event: ParametersEnded, fed: Intervals = NONE
) -> tuple[tuple[ParameterResult, ...], int]:
    """Record the new results. Return them, and the number of new results that are passed over.

    A result is new if its parameter is not done. It is passed over if its parameter is neither out on the cluster, nor
    returned from there, nor in `fed`.
    """
    sweep = sweep_of(core, event.sweep)
    if sweep is None:
        return (), 0
    runner = runner_of(sweep)
    there = runner.out_on(event.cluster) | dict(runner.returned).get(event.cluster, NONE) | fed
    new = _fresh(runner, event.results)
    forgotten = sweep.id < core.records.counters.doubtful_below  # a restored store may lack parameters that were fed
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
    """Put parameters back into the pool; those that are not out on the cluster are passed over.

    Their results are still accepted later, since a Launcher may have run them all the same.
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


def on_cluster_left(core: Core, now: Instant, event: ClusterLeft) -> None:
    """Put the parameters that are out on the cluster back into the pool: no result comes from there any more."""
    for identity in core.sweeps.ids:
        sweep = core.records.jobs[identity]
        runner = runner_of(sweep)
        if out := runner.out_on(event.name):
            put_runner(core, sweep, out=without(runner.out, out, event.name))


def put_runner(core: Core, sweep: Job, **changes: object) -> None:
    """Change the sweep's record. A cluster whose parameters change may be asked again to return some."""
    before, after = runner_of(sweep), replace_runner(runner_of(sweep), changes)
    core.records.change(sweep, runner=after)
    if core.sessions.recalled and before.out is not after.out:
        for of, cluster in list(core.sessions.recalled):
            if of == sweep.id and before.out_on(cluster) != after.out_on(cluster):
                del core.sessions.recalled[of, cluster]


def sweep_of(core: Core, sweep: JobId) -> Job | None:
    """Return the sweep; None if it is final or no sweep has this id."""
    job = core.records.jobs.get(sweep)
    return job if job is not None and job.runner is not None and not job.state.final else None


def joined(numbers: PerCluster, cluster: str, more: Intervals) -> PerCluster:
    there = dict(numbers)
    return (*(there | {cluster: there.get(cluster, NONE) | more}).items(),)


def without(numbers: PerCluster, less: Intervals, cluster: str | None = None) -> PerCluster:
    """Return `numbers` without `less`, on all clusters or on one; clusters that have none left are dropped."""
    left = ((name, each - less if cluster in (None, name) else each) for name, each in numbers)
    return tuple((name, each) for name, each in left if each)


def finish_sweep(core: Core, now: Instant, sweep: Job) -> None:
    """End a sweep whose parameters are all done; if files are to be staged out, collect them first.

    Its Launchers stop meanwhile. The answer to CollectOutput is handled as for any job (coallocation.completion).
    """
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
