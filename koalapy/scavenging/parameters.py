"""What becomes of parameters that were fed: done, and recorded once; or back in the pool."""

from collections.abc import Iterable

from koalapy.model.events import ParametersEnded, ParametersReturned
from koalapy.model.identity import JobId
from koalapy.model.intervals import NONE, Intervals
from koalapy.model.job import Job
from koalapy.model.records import Records
from koalapy.model.sweep import ParameterResult, ResultBatch, Runner, evolve_runner
from koalapy.scavenging.launchers import runner_of

PerCluster = tuple[tuple[str, Intervals], ...]


def ended(records: Records, event: ParametersEnded, fed: Intervals = NONE) -> tuple[tuple[ParameterResult, ...], int]:
    """Record what is new of it; what was recorded before is not again. And how many results are passed over.

    Those of parameters that are not out on the cluster that tells them, nor have come back from there, nor are `fed`.
    """
    sweep = sweep_of(records, event.sweep)
    if sweep is None:
        return (), 0
    runner = runner_of(sweep)
    there = runner.out_on(event.cluster) | dict(runner.returned).get(event.cluster, NONE) | fed
    new = _fresh(runner, event.results)
    forgotten = sweep.id < records.counters.doubtful_below  # a store that was restored knows not all that was fed
    fresh = tuple(each for each in new if forgotten or each.number in there)
    if not fresh:
        return (), len(new)
    numbers = Intervals.numbers(each.number for each in fresh)
    failed = Intervals.numbers(each.number for each in fresh if not each.succeeded)
    put_runner(
        records,
        sweep,
        done=runner.done | numbers,
        failed=runner.failed | failed if failed else runner.failed,
        out=without(runner.out, numbers),
        returned=without(runner.returned, numbers),
    )
    records.result(ResultBatch(sweep.id, event.cluster, event.attempt, fresh))
    return fresh, len(new) - len(fresh)


def _fresh(runner: Runner, results: Iterable[ParameterResult]) -> tuple[ParameterResult, ...]:
    new: dict[int, ParameterResult] = {}
    for each in results:
        if 1 <= each.number <= runner.count and each.number not in runner.done:
            new.setdefault(each.number, each)
    return tuple(new.values())


def returned(records: Records, event: ParametersReturned) -> None:
    """Back into the pool; what is not out there, or not any more, is passed over."""
    sweep = sweep_of(records, event.sweep)
    if sweep is None:
        return
    runner = runner_of(sweep)
    numbers = event.numbers & runner.out_on(event.cluster)
    if not numbers:
        return
    put_runner(
        records,
        sweep,
        out=without(runner.out, numbers, event.cluster),
        returned=joined(runner.returned, event.cluster, numbers),
        preempted=runner.preempted + len(event.begun & numbers),
    )


def put_runner(records: Records, sweep: Job, **changes: object) -> Job:
    return records.put(sweep.with_runner(evolve_runner(runner_of(sweep), changes)))


def sweep_of(records: Records, sweep: JobId) -> Job | None:
    """None where it is over, or was never one."""
    job = records.jobs.get(sweep)
    return job if job is not None and job.runner is not None and not job.state.final else None


def joined(numbers: PerCluster, cluster: str, more: Intervals) -> PerCluster:
    there = dict(numbers)
    return (*(there | {cluster: there.get(cluster, NONE) | more}).items(),)


def without(numbers: PerCluster, less: Intervals, cluster: str | None = None) -> PerCluster:
    """On all clusters, or on one."""
    left = ((name, each - less if cluster in (None, name) else each) for name, each in numbers)
    return tuple((name, each) for name, each in left if each)
