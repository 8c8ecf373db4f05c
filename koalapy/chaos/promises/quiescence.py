"""Promises about a quiescent world: records and world agree, and no batch job or directory of koalapy is left."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from koalapy.chaos.promises.committed import Committed
from koalapy.chaos.violation import Promise, promise
from koalapy.model.attempt import Attempt
from koalapy.model.identity import AttemptId, InstanceId, JobId, is_tag, tag_of
from koalapy.model.states import Ending, JobState
from koalapy.world.program_log import ProgramLog, Run
from koalapy.world.world import World


def of_records(committed: Committed) -> None:
    """Check that every job and sweep is final, no cancel is pending, and every command was confirmed."""
    for each in committed.work().values():
        promise(each.state.final, Promise.ENDS, "job", each.id, "is", each.state)
    for pilot in committed.launchers.values():
        promise(pilot.let_go, Promise.ENDS, "pilot", pilot.id, "is", pilot.state)
    promise(not committed.pending_cancels, Promise.OUTLIVED, "cancels are pending:", *committed.pending_cancels)
    left = [f"{number}: {entry.command}" for number, entry in committed.outbox.items()]
    promise(not left, Promise.AGREE, "never confirmed:", *left)


def of_programs(
    committed: Committed, instance: InstanceId, program_log: ProgramLog, given_up: Collection[AttemptId]
) -> None:
    """Check that the records of every last attempt agree with its program's log, unless it was given up."""
    for job in committed.jobs.values():
        for each in job.attempts:
            if each is not None and each.id not in given_up:
                _agree(each, program_log.runs(tag_of(instance, each.id)))
                done = each.ending is Ending.DONE or each.request.optional or job.state is not JobState.DONE
                promise(done, Promise.AGREE, "job", job.id, "is done, but", each.id, "is", each.ending)
    for pilot in committed.launchers.values():
        if pilot.id not in given_up:
            _agree(pilot, program_log.runs(tag_of(instance, pilot.id)))


def _agree(attempt: Attempt, runs: Sequence[Run]) -> None:
    done = attempt.ending is Ending.DONE
    statuses = [status for run in runs for status in run.statuses]
    promise(not any(run.running for run in runs), Promise.OUTLIVED, "the program of", attempt.id, "runs on")
    seen = attempt.started_at is not None
    promise(runs or not seen, Promise.AGREE, attempt.id, "is recorded as started, but did not start")
    well = len(runs) == 1 and not any(statuses)
    promise(not done or well, Promise.AGREE, attempt.id, "is recorded as done, but ended with", *statuses)
    if attempt.ending is Ending.FAILED and attempt.reason and attempt.reason.code == "exit_status":
        status = attempt.exit_status
        promise(status in statuses, Promise.AGREE, attempt.id, "is recorded as ended with", status, "not", *statuses)


def of_users(committed: Committed, accepted: Iterable[JobId]) -> None:
    """Check that every job and sweep whose number a user has received exists."""
    known = committed.work()
    for each in accepted:
        promise(each in known, Promise.AGREE, "job", each, "was accepted, and is not there")


def of_clusters(committed: Committed, world: World, left: Collection[str]) -> None:
    """Check that only directories of last attempts are left, whose output may be fetched.

    `left`: clusters that have left the grid at some time, where others may be left too.
    """
    for cluster, name in left_in_queues(world):
        promise(False, Promise.OUTLIVED, name, "is left in the queue of", cluster)
    attempts = [each for job in committed.jobs.values() for each in job.attempts if each is not None]
    last = {tag_of(world.instance, each.id) for each in (*attempts, *committed.launchers.values())}
    for cluster, tag in _directories(world):
        promise(tag in last or cluster in left, Promise.AGREE, "the directory of", tag, "is left on", cluster)


def left_in_queues(world: World) -> Iterator[tuple[str, str]]:
    """Yield cluster and name of each batch job of koalapy that has not ended. What was in a pilot is gone with it."""
    for name, cluster in world.clusters.items():
        for job in cluster.batch.everything if not cluster.dead else ():
            if job.live and cluster.is_ours(job):
                yield name, job.name


def _directories(world: World) -> Iterator[tuple[str, str]]:
    for name, cluster in world.clusters.items():
        for path in cluster.shared.directories:
            above, _, last = path.rpartition("/")
            if above.endswith(f"/{world.instance}") and is_tag(last):
                yield name, last
