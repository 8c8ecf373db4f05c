"""Refused submissions: the job leaves the cluster alone for a while, and is not to blame.

A refusal that may pass excludes the cluster for the job for a pause of 5 s. Each further pause is twice as long, up to
ten minutes. One that follows the longest pause counts as a submission failure. So does every one if the job states how
often it is tried, and can go nowhere else. A limit on submitted jobs never counts: the job waits until another batch
job has ended there, or its pause is over.
"""

from koalapy.broker.wait_deadlines import excluded_clusters
from koalapy.core.core import Core
from koalapy.model.attempt import Attempt
from koalapy.model.counts import counted_as
from koalapy.model.errors import Reason
from koalapy.model.events import AttemptCleanedUp, AttemptSubmitted
from koalapy.model.history import HistoryKind
from koalapy.model.job import SUBMIT_LIMIT, Job, Refusals
from koalapy.model.states import AttemptState, JobState
from koalapy.model.units import MINUTE, SECOND, Duration, Instant

FIRST_PAUSE, LONGEST_PAUSE = Duration(5 * SECOND), Duration(10 * MINUTE)


def may_pass(reason: Reason) -> bool:
    """Return whether the same submission may be accepted later: words that nobody knows may mean that, too."""
    return reason.whose == "transient" or reason.code == "unknown_words" or _is_unread(reason)


def of_the_cluster(reason: Reason) -> bool:
    """Return whether the cluster would refuse other jobs as well."""
    return reason.code != SUBMIT_LIMIT and (reason.whose in ("transient", "cluster") or _is_unread(reason))


def _is_unread(reason: Reason) -> bool:
    """Return whether the answer of a batch command cannot be read. Without a command koalapy withdrew the attempt."""
    return reason.whose == "ours" and bool(reason.command)


def note(core: Core, now: Instant, job: Job, attempt: Attempt, reason: Reason) -> bool:
    """Exclude the cluster for the job for a while after a refusal that may pass. Return whether it follows
    the longest pause.

    A limit on submitted jobs has no such end. Refusals of attempts that were claimed together are one.
    """
    cluster = attempt.cluster
    if cluster in excluded_clusters(now, job):
        return False
    limited = reason.code == SUBMIT_LIMIT
    before = next((each for each in job.refusals if each.cluster == cluster and each.of_a_limit is limited), None)
    pause = Duration(min(2 * before.pause, LONGEST_PAUSE)) if before is not None else FIRST_PAUSE
    refused = Refusals(cluster, before.count + 1 if before is not None else 1, pause, reason)
    others = [each for each in job.refusals if each.cluster != cluster and each.cluster in core.information.clusters]
    core.records.change(job, refusals=(*others, refused))
    exclude(core, now, job, attempt, pause)
    if limited:
        core.limited.setdefault(cluster, {})[job.id] = None
    return not limited and before is not None and before.pause >= LONGEST_PAUSE


def exclude(core: Core, now: Instant, job: Job, attempt: Attempt, pause: Duration) -> None:
    """Exclude the attempt's cluster for the job."""
    until = Instant(now + pause)
    kept = {cluster: each for cluster, each in job.excluded if each > now} | {attempt.cluster: until}
    core.records.change(job, excluded=tuple(kept.items()))
    core.records.note_attempt(now, attempt.id, attempt.cluster, HistoryKind.CLUSTER_EXCLUDED, until_at=until)


def all_of(job: Job, last: Reason) -> Reason:
    """Return the reason of a job that was refused too often: by which clusters, how often, and why at last."""
    found = [
        f"{each.cluster} refused it {counted_as(each.count, 'time')}: {each.reason.message}" for each in job.refusals
    ]
    return Reason(
        last.code, last.whose, " ".join(found), last.advice, last.command, last.exit_status, last.words
    )  # fmt: skip


def on_accepted(core: Core, now: Instant, event: AttemptSubmitted) -> None:
    """Forget the refusals of a cluster that accepts a submission: of all jobs together, and of this one."""
    attempt = core.records.attempt(event.attempt)
    if attempt is None or attempt.state is not AttemptState.SUBMITTING:
        return
    core.information.accepted(attempt.cluster)
    core.mark_dirty()
    job = core.records.jobs.get(attempt.id.job)
    if job is not None and job.refusals:
        _forget(core, job, attempt.cluster)


def on_cleaned_up(core: Core, now: Instant, event: AttemptCleanedUp) -> None:
    """Let the first job that waits there because of a limit on submitted jobs go in place of one that has ended."""
    attempt = core.records.attempt_or_pending_cancel(event.attempt)
    if attempt is None or attempt.cleaned_up or not core.limited.get(attempt.cluster):
        return
    cluster = attempt.cluster
    found = [job for each in core.limited[cluster] if (job := core.records.jobs.get(each)) is not None]
    kept = [job for job in found if not job.state.final and cluster in excluded_clusters(now, job)]
    waiting = [job for job in kept if job.state is JobState.WAITING]
    first = min(waiting, key=lambda job: (job.request.priority, job.position), default=None)
    core.limited[cluster] = {job.id: None for job in kept if job is not first}
    if first is not None:
        core.records.change(first, excluded=tuple(each for each in first.excluded if each[0] != cluster))
        _forget(core, first, cluster)


def _forget(core: Core, job: Job, cluster: str) -> None:
    left = tuple(each for each in job.refusals if each.cluster != cluster)
    if left != job.refusals:
        core.records.change(job, refusals=left)
