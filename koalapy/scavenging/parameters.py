"""Parameters that were fed: their results are recorded once, or they return to the pool; last, files are collected."""

from collections.abc import Iterable

from koalapy.coallocation.completion import note_collected
from koalapy.coallocation.stop import stop_sweep
from koalapy.core.core import Core
from koalapy.model.commands import CollectOutput, OutputKind
from koalapy.model.events import ClusterLeft, LaunchersSeen, OutputCollected, ParametersEnded, ParametersReturned
from koalapy.model.header import Outcome
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.intervals import NONE, Intervals
from koalapy.model.parameters import ParameterResult, ResultBatch
from koalapy.model.states import JobState
from koalapy.model.sweep import PerCluster, Sweep
from koalapy.model.units import Instant


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


def _lives(core: Core, launcher: AttemptId) -> bool:
    found = core.records.launchers.get(launcher)
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
    there = sweep.out_on(event.cluster) | dict(sweep.returned).get(event.cluster, NONE) | fed
    new = _fresh(sweep, event.results)
    forgotten = sweep.id < core.records.counters.doubtful_below  # a restored store may lack parameters that were fed
    fresh = tuple(each for each in new if forgotten or each.number in there)
    if not fresh:
        return (), len(new)
    numbers = Intervals.numbers(each.number for each in fresh)
    failed = Intervals.numbers(each.number for each in fresh if not each.succeeded)
    put_out(
        core,
        sweep,
        without(sweep.out, numbers),
        done=sweep.done | numbers,
        failed=sweep.failed | failed if failed else sweep.failed,
        returned=without(sweep.returned, numbers),
    )
    core.records.result(ResultBatch(sweep.id, event.cluster, event.attempt, fresh))
    return fresh, len(new) - len(fresh)


def _fresh(sweep: Sweep, results: Iterable[ParameterResult]) -> tuple[ParameterResult, ...]:
    new: dict[int, ParameterResult] = {}
    for each in results:
        if 1 <= each.number <= sweep.count and each.number not in sweep.done:
            new.setdefault(each.number, each)
    return tuple(new.values())


def on_returned(core: Core, now: Instant, event: ParametersReturned) -> None:
    """Put parameters back into the pool; those that are not out on the cluster are passed over.

    Their results are still accepted later, since a Launcher may have run them all the same.
    """
    sweep = sweep_of(core, event.sweep)
    if sweep is None:
        return
    fed = core.sessions.fed
    numbers = event.numbers & sweep.out_on(event.cluster)
    fed[event.sweep, event.cluster] = fed.get((event.sweep, event.cluster), NONE) | numbers
    if not numbers:
        return
    put_out(
        core,
        sweep,
        without(sweep.out, numbers, event.cluster),
        returned=joined(sweep.returned, event.cluster, numbers),
        preempted=sweep.preempted + len(event.begun & numbers),
    )


def on_cluster_left(core: Core, now: Instant, event: ClusterLeft) -> None:
    """Put the parameters that are out on the cluster back into the pool: no result comes from there any more."""
    for sweep in living_sweeps(core):
        if out := sweep.out_on(event.name):
            put_out(core, sweep, without(sweep.out, out, event.name))


def put_out(core: Core, sweep: Sweep, out: PerCluster, **changes: object) -> None:
    """Change which parameters are out. A cluster whose parameters change may be asked again to return some."""
    before, recalled = dict(sweep.out), core.sessions.recalled
    core.records.change_work(sweep, out=out, **changes)
    for of, cluster in list(recalled):
        if of == sweep.id and before.get(cluster, NONE) != sweep.out_on(cluster):
            del recalled[of, cluster]


def sweep_of(core: Core, sweep: JobId) -> Sweep | None:
    """Return the sweep; None if it is final or no sweep has this id."""
    found = core.records.sweeps.get(sweep)
    return found if found is not None and not found.state.final else None


def living_sweeps(core: Core) -> list[Sweep]:
    """Return the sweeps that are not final, in the order of their arrival."""
    return [sweep for sweep in core.records.sweeps.values() if not sweep.state.final]


def joined(numbers: PerCluster, cluster: str, more: Intervals) -> PerCluster:
    there = dict(numbers)
    return (*(there | {cluster: there.get(cluster, NONE) | more}).items(),)


def without(numbers: PerCluster, less: Intervals, cluster: str | None = None) -> PerCluster:
    """Return `numbers` without `less`, on all clusters or on one; clusters that have none left are dropped."""
    left = ((name, each - less if cluster in (None, name) else each) for name, each in numbers)
    return tuple((name, each) for name, each in left if each)


def finish_sweep(core: Core, now: Instant, sweep: Sweep) -> None:
    """End a sweep whose parameters are all done; if files are to be staged out, collect them first.

    Its Launchers stop meanwhile.
    """
    request = sweep.request
    if not request.stage_out:
        stop_sweep(core, now, sweep, Outcome.DONE)
    elif not sweep.collecting:
        core.records.change_work(sweep, collecting=True)
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


def on_output_collected(core: Core, now: Instant, event: OutputCollected) -> None:
    """End the sweep: as done, or as failed if its files could not be collected."""
    sweep = core.records.sweeps.get(event.job)
    if sweep is None or not sweep.collecting or sweep.state is not JobState.RUNNING:
        return
    note_collected(core, now, event)
    stop_sweep(core, now, sweep, Outcome.FAILED if event.reason else Outcome.DONE, event.reason)
