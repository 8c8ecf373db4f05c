"""The claim: each component of a job is submitted to the batch system of its cluster (DCS, section 3.5)."""

from collections.abc import Sequence
from dataclasses import replace

from koalapy.attempts.directories import host_cluster_of
from koalapy.attempts.submission import submit
from koalapy.broker.broker import Placement, placement_on
from koalapy.broker.wait_deadlines import time_to_begin
from koalapy.coallocation import choices, hold, race
from koalapy.core.core import Core
from koalapy.model.attempt import Attempt
from koalapy.model.errors import Reason
from koalapy.model.events import FilesMoved, FilesStaged
from koalapy.model.history import HistoryKind
from koalapy.model.identity import MAX_ATTEMPTS, AttemptId
from koalapy.model.job import Choice, Job
from koalapy.model.states import AttemptState, JobState
from koalapy.model.units import HOUR, MINUTE, Duration, Instant


def claim(core: Core, now: Instant, job: Job, placement: Placement, patient: bool) -> None:
    """Submit every placed component; optional components without a cluster do not take part in this try.

    `patient`: the job enters batch queues, without a claim time-out. A job with a component that was tried too often
    (MAX_ATTEMPTS) fails instead.
    """
    allocation, placed_request = _until_their_ends(core, placement)
    if placed_request is not job.request:
        core.records.change(job, request=placed_request, written=job.written or job.request)
    numbers = [*job.numbers, *[0] * (len(allocation) - len(job.numbers))]  # also of components of its other choices
    attempts: list[Attempt | None] = [None] * len(allocation)
    placed: dict[str, str] = {}
    for index, (request, cluster) in enumerate(zip(job.request.components, allocation, strict=True)):
        if cluster is not None:
            numbers[index] += 1
            placed[str(index)] = cluster
            identity, host_cluster = AttemptId(job.id, index, numbers[index]), host_cluster_of(core, cluster)
            attempts[index] = Attempt(id=identity, cluster=cluster, request=request, host_cluster=host_cluster)
    if max(numbers) >= MAX_ATTEMPTS:
        reason = Reason("too_many_attempts", "ours", f"A component was tried {MAX_ATTEMPTS} times.", "Submit it anew.")
        core.records.change(job, state=JobState.FAILED, reason=reason, finished_at=now)
        return core.records.note(now, job.id, HistoryKind.WORK_FAILED, code=reason.code, message=str(reason))
    placed_components = zip(job.request.components, allocation, strict=True)
    early = time_to_begin(now, job)
    wait = hold.longest_wait(core, job.request, placed_components, early) if patient else None
    core.records.begin(
        job, attempts, state=JobState.CLAIMING, numbers=tuple(numbers), claimed_at=now, reason=None, outcome=None,
        patient=patient, barrier_wait=wait, **({"choices": (), "choice": 0} if patient else {}),
    )  # fmt: skip
    details: dict[str, object] = {} if wait is None else {"barrier_wait": wait}
    if patient:
        details["numbers"] = {index: numbers[int(index)] for index in placed}
    core.records.note(now, job.id, HistoryKind.JOB_CLAIMED, clusters=placed, **details)
    for attempt in job.present:
        submit(core, attempt, job.request, wait=Duration((wait or 0) + early))
    race.recall(core, now, job)
    return None


def _until_their_ends(core: Core, placement: Placement) -> Placement:
    """Return the placement with what is left of a pilot as the walltime of components that ask for that.

    A margin stays for the time since the pilot was measured.
    """
    request = placement.request
    if not any([each.until_end for each in request.components]):  # noqa: C419 — faster
        return placement
    components = list(request.components)
    for index, (each, cluster) in enumerate(zip(components, placement.clusters, strict=True)):
        if each.until_end and cluster is not None:
            left = core.information.walltime_limit(cluster)
            walltime = HOUR if left is None else max(each.walltime - MINUTE, left - MINUTE)
            components[index] = replace(each, walltime=Duration(walltime))
    return placement._replace(request=replace(request, components=tuple(components)))


def claim_choice(core: Core, now: Instant, job: Job, found: Sequence[Choice], choice: int) -> None:
    """Claim one of the choices, each of whose clusters gets a component. `found`: the job's own, or a new list."""
    if not job.choices:
        listed = [choices.described(each) for each in found]
        core.records.note(now, job.id, HistoryKind.CHOICES_MADE, choice=choice + 1, choices=listed)
    core.records.change(job, choices=choices.with_busy(found, choice), choice=choice)
    claim(core, now, job, placement_on(job.request, found[choice]), False)


def on_files_moved(core: Core, now: Instant, event: FilesMoved | FilesStaged) -> None:
    """Restart the claim's timer: staging a large file takes time, though the cluster answers."""
    attempt = core.records.attempt(event.attempt)
    if attempt is None or attempt.state is not AttemptState.SUBMITTING:
        return
    if attempt.launcher is not None:
        core.records.change_launcher(attempt, claimed_at=now)
    elif (job := core.records.jobs[attempt.id.job]).state.claiming:
        core.records.change(job, claimed_at=now)
    else:
        return
    if isinstance(event, FilesStaged):
        details = {"files": event.files, "size": event.size, "version": event.version}
        core.records.note_attempt(now, attempt.id, attempt.cluster, HistoryKind.FILES_STAGED, **details)
