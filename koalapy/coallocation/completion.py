"""Completion: the output of a job whose components have all ended well is collected, then the job is done."""

from koalapy.coallocation.stop import stop_job
from koalapy.core.core import Core
from koalapy.model.commands import CollectOutput
from koalapy.model.events import OutputCollected, OutputKept
from koalapy.model.header import Outcome
from koalapy.model.history import HistoryKind
from koalapy.model.job import Job, KeptOutput
from koalapy.model.states import Ending, JobState
from koalapy.model.units import Instant


def finish_if_ended(core: Core, now: Instant, job: Job) -> None:
    """Collect the output of a running job whose components have all ended, or end the job if there is none."""
    if not job.state.running or job.collecting:
        return None
    for attempt in job.attempts:
        if attempt is not None and not attempt.state.ended:
            return None
    if not job.request.stage_out:
        return stop_job(core, now, job, Outcome.DONE)
    core.records.change(job, collecting=True)
    sources = tuple([(each.cluster, each.id) for each in job.present])
    request = job.request
    core.records.command(
        CollectOutput(
            job=job.id, sources=sources, paths=request.stage_out, directory=request.directory, to=request.stage_out_to
        )
    )
    return None


def ended_first(job: Job) -> bool:
    """Return whether the programs of a job that is vacated had all ended well before that reached them."""
    if job.outcome is None or job.outcome.ends or job.outcome not in (Outcome.VACATED, Outcome.HOLD):
        return False
    present = job.present
    return bool(present) and all([each.ending is Ending.DONE for each in present])  # noqa: C419 — faster


def complete(core: Core, now: Instant, job: Job) -> None:
    """Complete a stopping job whose programs have all ended well (`ended_first`), as if it had not been stopped."""
    core.records.change(job, state=JobState.RUNNING, outcome=None, reason=None)
    core.records.note(now, job.id, HistoryKind.JOB_ENDED_FIRST)
    finish_if_ended(core, now, job)


def on_output_collected(core: Core, now: Instant, event: OutputCollected) -> None:
    """End the job: as done, or as failed if its output could not be collected."""
    job = core.records.jobs.get(event.job)
    if job is None or not job.collecting or not job.state.running:
        return
    note_collected(core, now, event)
    stop_job(core, now, job, Outcome.FAILED if event.reason else Outcome.DONE, event.reason)


def note_collected(core: Core, now: Instant, event: OutputCollected) -> None:
    """Note in the history of a job or sweep which of its files have come."""
    has_files = event.files or event.notes
    counts = {"files": event.files, "size": event.size, "notes": list(event.notes)} if has_files else {}
    message = {"message": str(event.reason)} if event.reason else {}
    core.records.note(now, event.job, HistoryKind.OUTPUT_COLLECTED, **message, **counts)


def on_output_kept(core: Core, now: Instant, event: OutputKept) -> None:
    """Record that the output of the job's processes is at home, or that a part of it is lost."""
    job = event.job
    if not job.state.final or job.kept_output is not KeptOutput.PENDING:
        return
    core.records.change_final(job, kept_output=KeptOutput.LOST if event.reason else KeptOutput.KEPT)
    counts = {"size": event.size, "omitted_bytes": event.omitted_bytes, "notes": list(event.notes)}
    message = {"message": str(event.reason)} if event.reason else {}
    core.records.note(now, job.id, HistoryKind.OUTPUT_KEPT, **message, **counts)
