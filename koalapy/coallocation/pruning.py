"""Pruning of final jobs: the directories of their attempts first, then their records."""

from collections.abc import Iterator
from dataclasses import dataclass

from koalapy.core.core import Core
from koalapy.core.pruning import PruneWanted
from koalapy.model.commands import ForgetAttempt
from koalapy.model.events import AttemptForgotten, ClusterLeft, OutputCollected, OutputKept, PruneRequested
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import OUTPUT_PRUNED, Job
from koalapy.model.units import Instant

_REMEMBERED = 10_000  # ids of pruned jobs: far more than one request names
NOT_OVER, PENDING_CANCEL, COLLECTING, OF_A_SWEEP, OF_A_FLOW, PRUNED, NOTIFYING = (
    "not final for long enough", "a pending cancel", "output on its way", "a sweep that is not final",
    "a flow that is not final", "pruned already", "a notification on its way",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Judgement:
    """The effect of a request.

    `ready`: jobs whose pruning can begin now. `waiting`: (cluster, job) for jobs with directories on a cluster that is
    not connected. `kept`: (reason, job) for jobs that are not pruned.
    """

    ready: tuple[Job, ...]
    waiting: tuple[tuple[str, Job], ...]
    kept: tuple[tuple[str, Job], ...]


def on_prune_requested(core: Core, now: Instant, event: PruneRequested) -> None:
    """Begin to prune the jobs that are ready, and skip the others."""
    pruning = core.pruning
    for job in judge(core, event).ready:
        pruning.wanted[job.id] = wanted = PruneWanted(job, event.records, event.without)
        under_way = pruning.directories.get(job.id, {})
        for cluster, attempt in _directories_of(job):
            if attempt not in under_way and cluster not in event.without:
                core.records.command(ForgetAttempt(cluster=cluster, attempt=attempt))
                pruning.directories.setdefault(job.id, {})[attempt] = cluster
        _finish(core, now, wanted)


def on_forgotten(core: Core, now: Instant, event: AttemptForgotten) -> None:
    """Go on with the job of a removed directory. A job keeps its record if a KCM refuses to remove a directory."""
    job, pruning = event.attempt.job, core.pruning
    attempts = pruning.directories.get(job, {})
    attempts.pop(event.attempt, None)
    if not attempts:
        pruning.directories.pop(job, None)
    if event.refused is not None:
        pruning.wanted.pop(job, None)
    if (wanted := pruning.wanted.get(job)) is not None:
        _finish(core, now, wanted)


def on_cluster_left(core: Core, now: Instant, event: ClusterLeft) -> None:
    """Wait for no directory on the cluster any more: nobody removes it."""
    for job, directories in list(core.pruning.directories.items()):
        for attempt in [each for each, cluster in directories.items() if cluster == event.name]:
            del directories[attempt]
        if not directories:
            del core.pruning.directories[job]
        if (wanted := core.pruning.wanted.get(job)) is not None:
            _finish(core, now, wanted)


def on_output_collected(core: Core, now: Instant, event: OutputCollected) -> None:
    """Note that the job's output is no longer being collected."""
    core.pruning.collecting.pop(event.job, None)


def on_output_kept(core: Core, now: Instant, event: OutputKept) -> None:
    """Note that the job's output is no longer being collected."""
    core.pruning.collecting.pop(event.job.id, None)


def _finish(core: Core, now: Instant, wanted: PruneWanted) -> None:
    """Finish the pruning if no directory is left except those that stay."""
    job, pruning = wanted.job, core.pruning
    left = [cluster for cluster in pruning.directories.get(job.id, {}).values() if cluster not in wanted.without]
    if left:
        return
    del pruning.wanted[job.id]
    if not wanted.records:
        core.records.note(now, job.id, OUTPUT_PRUNED, left_on=[*wanted.without])
        return
    core.records.remove(job)
    pruning.directories.pop(job.id, None)
    pruning.pruned[job.id] = None
    if len(pruning.pruned) > _REMEMBERED:
        del pruning.pruned[next(iter(pruning.pruned))]


def judge(core: Core, event: PruneRequested) -> Judgement:
    """Return the effect that the request would have now; nothing is changed."""
    with_pending_cancels = {attempt.job for attempt in core.records.pending_cancels}
    ready: list[Job] = []
    waiting: list[tuple[str, Job]] = []
    kept: list[tuple[str, Job]] = []
    for job in {job.id: job for job in event.jobs}.values():
        why = _why_kept(core, job, event.before, with_pending_cancels)
        if why:
            kept.append((why, job))
        elif job.id not in core.pruning.wanted:
            cluster = next(_out_of_reach(core, job, event.without), None)
            if cluster is None:
                ready.append(job)
            else:
                waiting.append((cluster, job))
    return Judgement(tuple(ready), tuple(waiting), tuple(kept))


def _why_kept(core: Core, job: Job, before: Instant, with_pending_cancels: set[JobId]) -> str:
    if job.id in core.pruning.pruned:
        return PRUNED
    over = job.state.final and job.id not in core.records.jobs and not job.live
    if not over or job.finished_at is None or job.finished_at > before:
        return NOT_OVER
    if job.id in with_pending_cancels:
        return PENDING_CANCEL
    if job.id in core.pruning.collecting:
        return COLLECTING
    if core.notifications.has_unsettled(job.id):
        return NOTIFYING
    if job.pilot is not None and job.pilot.sweep in core.records.jobs:
        return OF_A_SWEEP
    if job.part_of is not None and job.part_of in core.records.jobs:
        return OF_A_FLOW
    return ""


def _out_of_reach(core: Core, job: Job, without: tuple[str, ...]) -> Iterator[str]:
    """Yield the clusters that have directories of the job and are not connected, or not in the grid file any more."""
    last = (cluster for cluster, _ in _directories_of(job))
    for cluster in (*last, *core.pruning.directories.get(job.id, {}).values()):
        if cluster not in without and cluster not in core.information.reachable:
            yield cluster


def _directories_of(job: Job) -> Iterator[tuple[str, AttemptId]]:
    """Yield (cluster, attempt) of the job's last attempts; directories of earlier ones are removed at each retry."""
    for attempt in job.attempts:
        if attempt is not None:
            yield attempt.cluster, attempt.id
