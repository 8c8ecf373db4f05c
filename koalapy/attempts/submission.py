"""The submission of an attempt, and the reactions to its cluster's answer."""

from koalapy.attempts.attempt_end import reason_details
from koalapy.attempts.cancel import clean_up
from koalapy.core.core import Core
from koalapy.model.attempt import Attempt
from koalapy.model.commands import LauncherWork, SubmitAttempt
from koalapy.model.events import AttemptSubmitted, SubmissionFailed
from koalapy.model.facts import Ended
from koalapy.model.history import HistoryKind
from koalapy.model.request import Request
from koalapy.model.settings import WALLTIME_MARGIN
from koalapy.model.states import AttemptState, Ending
from koalapy.model.units import Duration, Instant

BARRIER_MARGIN = Duration(WALLTIME_MARGIN // 2)  # between koalad's time-out and the instant at which wrappers leave


def submit(
    core: Core,
    attempt: Attempt,
    files: Request,
    *,
    lowest: bool = False,
    avoid: tuple[str, ...] = (),
    launcher: LauncherWork | None = None,
    wait: Duration | None = None,
) -> None:
    """Order the cluster to submit the attempt. Its walltime is that of the program, the barrier and a margin together.

    `files`: the request whose input files it needs, with as many components as start together. `lowest`: at the lowest
    priority. `avoid`: hosts that its batch job must not get. `launcher`: the work of a sweep's Launcher.
    `wait`: how long it may wait at its barrier before all batch jobs have started; None: not at all.
    """
    core.records.command(
        SubmitAttempt(
            cluster=attempt.cluster,
            attempt=attempt.id,
            components=len(files.components),
            request=attempt.request,
            walltime=Duration(attempt.request.walltime + core.settings.beside_program + (wait or 0)),
            barrier_timeout=Duration(core.settings.barrier_timeout + BARRIER_MARGIN + (wait or 0)),
            stage_in=files.stage_in,
            directory=files.directory,
            files=files.files,
            lowest=lowest,
            avoid=avoid,
            launcher=launcher,
            interactive=files.interactive if attempt.id.component == 0 else None,
        )
    )


def on_submitted(core: Core, now: Instant, event: AttemptSubmitted) -> None:
    """Record the batch job's id, and that the batch job is in the queue."""
    attempt = core.records.attempt(event.attempt)
    if attempt is None or attempt.let_go:
        return
    changes: dict[str, object] = {"batch_id": event.batch_id, "queued_at": attempt.queued_at or now}
    if attempt.state is AttemptState.SUBMITTING:
        changes["state"] = AttemptState.QUEUED
    core.records.change_attempt(attempt, **changes)
    core.records.note_attempt(now, attempt.id, attempt.cluster, HistoryKind.ATTEMPT_SUBMITTED, batch_id=event.batch_id)


def on_submission_failed(core: Core, now: Instant, event: SubmissionFailed) -> None:
    """End the attempt as failed and cleaned up. One that is being cancelled ends when its cluster confirms that."""
    core.mark_dirty()
    attempt = core.records.attempt(event.attempt)
    if attempt is None or attempt.state.ended or attempt.cancelling:
        return
    core.records.change_attempt(
        attempt, state=AttemptState.ENDED, ending=Ending.FAILED, reason=event.reason, ended_at=now
    )
    core.records.note_attempt(
        now, attempt.id, attempt.cluster, HistoryKind.SUBMISSION_FAILED, **reason_details(event.reason)
    )
    core.derive(
        Ended(
            attempt=attempt.id,
            owner=attempt.owner_kind,
            reason=event.reason,
            released=False,
            ended_at=now,
            refused=True,
        )
    )
    clean_up(core, now, attempt)
