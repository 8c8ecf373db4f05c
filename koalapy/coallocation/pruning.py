"""Pruning of final jobs, sweeps and their Launchers: the directories of their attempts first, then their records."""

from collections.abc import Iterator
from dataclasses import dataclass

from koalapy.attempts.directories import cluster_with_directory
from koalapy.core.core import Core
from koalapy.core.pruning import PruneWanted
from koalapy.model.attempt import Attempt
from koalapy.model.commands import ForgetAttempt
from koalapy.model.events import AttemptForgotten, ClusterLeft, OutputCollected, OutputKept, PruneRequested
from koalapy.model.history import HistoryKind
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Job
from koalapy.model.units import Instant
from koalapy.model.work import Work

Pruned = Work | Attempt  # the latter a Launcher
_REMEMBERED = 10_000  # ids of pruned jobs: far more than one request names
NOT_FINAL, PENDING_CANCEL, COLLECTING, OF_A_SWEEP, OF_A_FLOW, PRUNED, NOTIFYING = (
    "not final for long enough", "a pending cancel", "output on its way", "a sweep that is not final",
    "a flow that is not final", "pruned already", "a notification on its way",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Judgement:
    """The effect of a request.

    `ready`: jobs and Launchers whose pruning can begin now. `waiting`: (cluster, job) for those with directories on a
    cluster that is not connected. `kept`: (reason, job) for those that are not pruned.
    """

    ready: tuple[Pruned, ...]
    waiting: tuple[tuple[str, Pruned], ...]
    kept: tuple[tuple[str, Pruned], ...]


def on_prune_requested(core: Core, now: Instant, event: PruneRequested) -> None:
    """Begin to prune the jobs that are ready, and skip the others."""
    for key in event.leases:
        core.records.remove_lease(key)
    pruning = core.pruning
    for each in judge(core, event).ready:
        number = number_of(each)
        pruning.wanted[number] = wanted = PruneWanted(each, event.records, event.without)
        under_way = pruning.directories.get(number, {})
        for cluster, attempt in _directories_of(core, each):
            if attempt not in under_way and cluster not in event.without:
                core.records.command(ForgetAttempt(cluster=cluster, attempt=attempt))
                pruning.directories.setdefault(number, {})[attempt] = cluster
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
    """Wait for no directory on the cluster any more: nobody removes it, unless the cluster around a pilot does."""
    for job, directories in list(core.pruning.directories.items()):
        gone = {each for each, cluster in directories.items() if cluster == event.name}
        for attempt in gone:
            del directories[attempt]
        if (wanted := core.pruning.wanted.get(job)) is not None:
            for cluster, attempt in _directories_of(core, wanted.pruned):
                if attempt in gone and cluster != event.name:
                    core.records.command(ForgetAttempt(cluster=cluster, attempt=attempt))
                    directories[attempt] = cluster
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
    number, pruning = number_of(wanted.pruned), core.pruning
    left = [cluster for cluster in pruning.directories.get(number, {}).values() if cluster not in wanted.without]
    if left:
        return
    del pruning.wanted[number]
    if not wanted.records:
        core.records.note(now, number, HistoryKind.OUTPUT_PRUNED, remains_on=[*wanted.without])
        return
    if isinstance(wanted.pruned, Attempt):
        core.records.remove_launcher(wanted.pruned)
    else:
        core.records.remove(wanted.pruned)
    pruning.directories.pop(number, None)
    pruning.pruned[number] = None
    if len(pruning.pruned) > _REMEMBERED:
        del pruning.pruned[next(iter(pruning.pruned))]


def number_of(pruned: Pruned) -> JobId:
    """Return the id of a job or sweep, or the number of a Launcher."""
    return pruned.id.job if isinstance(pruned, Attempt) else pruned.id


def final_since(pruned: Pruned) -> Instant | None:
    """Return since when a job or sweep is final, or since when a Launcher has ended."""
    return pruned.ended_at if isinstance(pruned, Attempt) else pruned.finished_at


def judge(core: Core, event: PruneRequested) -> Judgement:
    """Return the effect that the request would have now; nothing is changed."""
    with_pending_cancels = {attempt.job for attempt in core.records.pending_cancels}
    ready: list[Pruned] = []
    waiting: list[tuple[str, Pruned]] = []
    kept: list[tuple[str, Pruned]] = []
    asked: dict[JobId, Pruned] = {number_of(each): each for each in event.work}
    asked |= {number_of(each): each for each in event.launchers}
    for number, each in asked.items():
        why = _why_kept(core, each, event.before, with_pending_cancels)
        if why:
            kept.append((why, each))
        elif number not in core.pruning.wanted:
            cluster = next(_out_of_reach(core, each, event.without), None)
            if cluster is None:
                ready.append(each)
            else:
                waiting.append((cluster, each))
    return Judgement(tuple(ready), tuple(waiting), tuple(kept))


def _why_kept(core: Core, pruned: Pruned, before: Instant, with_pending_cancels: set[JobId]) -> str:
    number = number_of(pruned)
    if number in core.pruning.pruned:
        return PRUNED
    ended_at = final_since(pruned) if _is_final(core, pruned) else None
    if ended_at is None or ended_at > before:
        return NOT_FINAL
    if number in with_pending_cancels:
        return PENDING_CANCEL
    if number in core.pruning.collecting:
        return COLLECTING
    if core.notifications.has_unsettled(number):
        return NOTIFYING
    if isinstance(pruned, Attempt):
        return OF_A_SWEEP if pruned.owner.id in core.records.sweeps else ""
    if pruned.part_of is not None and pruned.part_of in core.records.flows:
        return OF_A_FLOW
    return ""


def _is_final(core: Core, pruned: Pruned) -> bool:
    if isinstance(pruned, Attempt):
        return pruned.let_go and pruned.id not in core.records.launchers
    still_runs = isinstance(pruned, Job) and pruned.live
    return pruned.state.final and core.records.work(pruned.id) is None and not still_runs


def _out_of_reach(core: Core, pruned: Pruned, without: tuple[str, ...]) -> Iterator[str]:
    """Yield the clusters that have directories of the job and are not connected, or not in the grid file any more."""
    last = (cluster for cluster, _ in _directories_of(core, pruned))
    for cluster in (*last, *core.pruning.directories.get(number_of(pruned), {}).values()):
        if cluster not in without and cluster not in core.information.reachable:
            yield cluster


def _directories_of(core: Core, pruned: Pruned) -> Iterator[tuple[str, AttemptId]]:
    """Yield (cluster, attempt) of the job's last attempts; directories of earlier ones are removed at each retry.

    A sweep has directories no more: its Launchers were pruned before.
    """
    if not isinstance(pruned, Job | Attempt):
        return
    for attempt in (pruned,) if isinstance(pruned, Attempt) else pruned.attempts:
        if attempt is not None:
            yield cluster_with_directory(core, attempt) or attempt.cluster, attempt.id
