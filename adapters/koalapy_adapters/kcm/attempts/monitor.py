"""Attempts as seen from outside: by the batch system's lists, its accounting, and the exit records on disk.

A job that is no longer listed is missing, not over, until the record or the accounting shows more; and before the batch
system's word of an end goes to koalad, the record is awaited, which is more exact. One that the batch system has
lost is missing too, if it was claimed: its node may be cut off, and its program run on there.
"""

from typing import Any, Dict, List, Optional

from koalapy_adapters.batch.protocol import (
    ENDED,
    HELD,
    LOST,
    NOT_STARTED,
    QUEUED,
    RUNNING,
    SUSPENDED,
    Capacity,
    JobStatus,
)
from koalapy_adapters.batch.text import is_launcher
from koalapy_adapters.kcm.attempts import cancel, wrapper_messages
from koalapy_adapters.kcm.state.actions import (
    SECOND,
    CancelJob,
    CapacityMeasured,
    DirectoryStatus,
    Inspect,
    Look,
    Looked,
)
from koalapy_adapters.kcm.state.attempt import MISSING, UNANSWERED, Attempt, Core, Stage
from koalapy_adapters.kcm.sweeps import feed, launcher_end
from koalapy_adapters.messages.kcm import BatchStatus, Failure, Measured, MeasureFailed, Report

RECORD_DELAYS = (SECOND // 2, 2 * SECOND)  # a record may show late on a network file system
SILENT = 60 * SECOND  # without a sign of its wrapper; several heartbeats, which may show late too
_OTHER_CAUSES = ("cancelled", "preempted", "lost", "walltime", "memory")  # endings that have reasons of their own
_NOT_SEEN = ("can't open file", "can't find '__main__' module")  # by Python, of the pushed file
_FULL = ("No space left on device", "Disk quota exceeded")
_LAST = 300  # characters of a batch job's output that are quoted


def measured(core: Core, now: int, outcome: CapacityMeasured) -> List[Any]:
    """One capacity call reports what is free and how all attempts stand."""
    capacity = outcome.capacity
    if capacity is not None:
        listed = capacity.allocated + capacity.pending
        core.poll_schedule.scavenging = any(is_launcher(tag) and tag in core.attempts for tag in listed)
    core.poll_schedule.measured(outcome.cost, outcome.error is not None)
    if capacity is None:
        return core.event_queue.put_measurement(now, MeasureFailed(outcome.started_at, outcome.error or {}))
    actions = core.event_queue.put_measurement(now, _measured(outcome.started_at, capacity))
    _note_twins(core, capacity.statuses)
    by_tag = _by_tag(core, capacity.statuses)
    for attempt in list(core.attempts.values()):
        actions += _listed(core, now, attempt, by_tag.get(attempt.tag), outcome.started_at)
    return actions + inspect_all(core) + feed.look_again(core)


def inspect_all(core: Core) -> List[Any]:
    """Look into the directories of all that may have ended without a word, and whether a newer KCM is there."""
    tags = [attempt.tag for attempt in core.attempts.values() if _may_have_ended(attempt)]
    for tag in tags:
        core.attempts[tag].inspecting = True
    return [Inspect(tags)]


def inspected(core: Core, now: int, attempt: Attempt, inspection: DirectoryStatus) -> List[Any]:
    """React to the status of the attempt's directory."""
    attempt.inspecting = False
    if attempt.outdated:
        return _look_for_record(attempt, attempt.unrecorded_end)
    first_seen = attempt.heartbeat == 0
    if inspection.heartbeat != attempt.heartbeat:
        attempt.heartbeat, attempt.sign_at = inspection.heartbeat, now
        if not first_seen:
            attempt.wrapper_sign_at = now
    cancel.inspected(now, attempt, inspection.start_lock)
    actions: List[Any] = feed.inspected(core, now, attempt, inspection)
    if inspection.record is not None and not attempt.connected:
        actions += wrapper_messages.reported(core, now, attempt, inspection.record)
    return actions + _confirm_end(core, now, attempt, inspection) + _report_silence(core, now, attempt)


def _report_silence(core: Core, now: int, attempt: Attempt) -> List[Any]:
    """Report to koalad a wrapper without a sign of life whose batch job runs, and of the first sign after it."""
    status = attempt.seen
    if (
        status is None
        or status.state not in (RUNNING, MISSING)
        or attempt.connected
        or attempt.ended
        or attempt.cleaned_up
    ):
        return []
    since = _last_sign(attempt) if now - attempt.wrapper_sign_at >= SILENT else None
    if since == attempt.silent_since:
        return []
    attempt.silent_since = since
    return launcher_end.report(core, now, attempt.tag, _batch_seen(now, attempt, status))


def _last_sign(attempt: Attempt) -> int:
    """By its heartbeat where this KCM itself has no sign of it."""
    return (
        min(attempt.wrapper_sign_at, attempt.heartbeat or attempt.wrapper_sign_at)
        if attempt.report is None
        else attempt.wrapper_sign_at
    )


def inspection_failed(now: int, attempt: Attempt) -> None:
    """The shared directory is out of reach: that there was no sign of the attempt means nothing."""
    attempt.inspecting = attempt.outdated = False
    attempt.sign_at = attempt.wrapper_sign_at = now


def looked(core: Core, now: int, attempt: Attempt, outcome: Looked) -> List[Any]:
    """React to what queue and accounting show of an attempt that the measurement did not list."""
    if outcome.error is not None:
        attempt.look_at = attempt.look_backoff.after(now)
        return []
    status = outcome.listed
    if status is None and outcome.accounted is not None and outcome.accounted.state == ENDED:
        status = outcome.accounted
    if status is not None and status.state == ENDED:
        return _look_for_record(attempt, status)
    if status is not None:
        return see(core, now, attempt, status)
    attempt.look_at = attempt.look_backoff.after(now)
    if attempt.connected:
        return []  # the batch system has lost it, but we have not
    return see(core, now, attempt, JobStatus(attempt.batch_id, attempt.tag, MISSING))


def see(core: Core, now: int, attempt: Attempt, status: JobStatus) -> List[Any]:
    """Report to koalad, if it is new, how the batch system sees the attempt."""
    attempt.note(status)
    attempt.unrecorded_end = attempt.record_due_at = None
    attempt.record_tries = 0
    if status.state != MISSING:
        attempt.look_at = None
    if status == attempt.seen:
        return []
    attempt.seen = status
    attempt.batch_id = attempt.batch_id or status.batch_id
    turned = feed.turned(core, now, attempt.tag, status.state == SUSPENDED)
    return launcher_end.report(core, now, attempt.tag, _batch_seen(now, attempt, status)) + turned


def tick(core: Core, now: int, attempt: Attempt) -> List[Any]:
    actions: List[Any] = []
    if attempt.record_due_at is not None and attempt.record_due_at <= now:
        attempt.record_due_at = None
        actions += _look_for_record(attempt, attempt.unrecorded_end)
    if attempt.look_at is not None and attempt.look_at <= now:
        attempt.look_at = None
        actions += [] if attempt.ended else _look(attempt)
    return actions


def has_ended(attempt: Optional[Attempt]) -> bool:
    """Return whether nothing more is to be expected of it, by all that is known."""
    if attempt is None or attempt.ended or attempt.cleaned_up or attempt.stage is Stage.OUT:
        return True
    return attempt.seen is not None and attempt.seen.state in (ENDED, MISSING)


def is_suspended(attempt: Optional[Attempt]) -> bool:
    """Return whether the attempt is suspended, and nothing shows since that it has ended."""
    if attempt is None or attempt.seen is None or attempt.unrecorded_end is not None:
        return False
    return attempt.seen.state == SUSPENDED


def _listed(core: Core, now: int, attempt: Attempt, status: Optional[JobStatus], started_at: int) -> List[Any]:
    if status is not None and status.state != ENDED:
        attempt.sign_at = now
        if attempt.cleaned_up:  # it came late, cannot run, and shall not stand in a queue
            return [CancelJob(attempt.tag, status.batch_id)] if started_at > attempt.cleaned_up_at else []
        return [] if attempt.ended else see(core, now, attempt, status)
    if status is None and attempt.submitted_at >= started_at:
        return []  # the call was under way before the attempt was in
    if attempt.stage in (Stage.KNOWN, Stage.IN) and not attempt.cleaned_up and not _seen_ended(attempt):
        attempt.unrecorded_end = status or JobStatus(attempt.batch_id, attempt.tag, MISSING)
        attempt.outdated = attempt.inspecting
    return []


def _look_for_record(attempt: Attempt, status: Optional[JobStatus]) -> List[Any]:
    """It is over by the batch system: look for a record that was not there before."""
    attempt.unrecorded_end, attempt.outdated = status, attempt.inspecting
    if attempt.inspecting:
        return []
    attempt.inspecting = True
    return [Inspect([attempt.tag])]


def _confirm_end(core: Core, now: int, attempt: Attempt, inspection: DirectoryStatus) -> List[Any]:
    """The batch system reports that it is over; a wrapper that is still connected, or the record, decides."""
    status = attempt.unrecorded_end
    if status is None or attempt.connected:
        return []
    if status.state == MISSING:
        attempt.unrecorded_end = None
        return [] if attempt.ended or attempt.look_at is not None else _look(attempt)
    began = inspection.start_lock == "taken" or never_began(
        attempt, status, inspection
    )  # perhaps; either may show late
    if not attempt.ended and began and attempt.record_tries < len(RECORD_DELAYS):
        attempt.record_due_at = now + RECORD_DELAYS[attempt.record_tries]
        attempt.record_tries += 1
        return []
    if status.ending in (LOST, NOT_STARTED) and inspection.start_lock == "taken" and not attempt.ended:
        attempt.look_at = attempt.look_backoff.after(now)
        return see(core, now, attempt, status._replace(state=MISSING))
    if never_began(attempt, status, inspection):
        return _report_failed_start(core, now, attempt, status, inspection)
    return see(core, now, attempt, status)


def _report_failed_start(
    core: Core, now: int, attempt: Attempt, status: JobStatus, inspection: DirectoryStatus
) -> List[Any]:
    """Its wrapper never began; that is no more than the batch system's word, and one may come late all the same."""
    attempt.note(status)
    attempt.unrecorded_end = attempt.record_due_at = None
    attempt.seen = status
    error = why_never_began(inspection.directory, status, inspection.output)
    ended = Report(
        attempt.tag,
        attempt.batch_id,
        "ended",
        [],
        ended_at=now,
        exit_status=status.exit_status,
        ending="failed",
        error=error,
    )
    return launcher_end.report(core, now, attempt.tag, ended)


def _look(attempt: Attempt) -> List[Any]:
    if attempt.looking or attempt.ending is not None or attempt.stage in UNANSWERED:
        return []
    attempt.looking = True
    return [Look(attempt.tag, attempt.batch_id)]


def _may_have_ended(attempt: Attempt) -> bool:
    if attempt.connected or attempt.ended or attempt.cleaned_up or attempt.inspecting or _seen_ended(attempt):
        return False
    if attempt.record_due_at is not None or attempt.stage not in (Stage.KNOWN, Stage.IN):
        return False
    waits = attempt.seen is not None and attempt.seen.state in (QUEUED, HELD)
    return attempt.unrecorded_end is not None or not waits


def _seen_ended(attempt: Attempt) -> bool:
    return attempt.seen is not None and attempt.seen.state == ENDED


def _note_twins(core: Core, statuses: Dict[str, JobStatus]) -> None:
    """A submit that took effect late has left a second batch job of its tag: from now on the id does not find all."""
    for status in statuses.values():
        attempt = core.attempts.get(status.name)
        if attempt is not None and status.state != ENDED and attempt.batch_id not in ("", status.batch_id):
            attempt.doubtful = True


def _by_tag(core: Core, statuses: Dict[str, JobStatus]) -> Dict[str, JobStatus]:
    """Choose one job for each tag: the one that lives, else the one with the known id."""
    chosen: Dict[str, JobStatus] = {}
    for status in statuses.values():
        attempt, other = core.attempts.get(status.name), chosen.get(status.name)
        if attempt is not None and (other is None or _rank(attempt, status) > _rank(attempt, other)):
            chosen[status.name] = status
    return chosen


def _rank(attempt: Attempt, status: JobStatus) -> int:
    return 2 * (status.state != ENDED) + (status.batch_id == attempt.batch_id)


def _measured(started_at: int, capacity: Capacity) -> Measured:
    fields = capacity._asdict()
    return Measured(measured_at=started_at, **{name: fields[name] for name in Measured._fields if name in fields})


def _batch_seen(now: int, attempt: Attempt, status: JobStatus) -> BatchStatus:
    fields = {name: value for name, value in status._asdict().items() if name in BatchStatus._fields}
    return BatchStatus(tag=attempt.tag, at=now, silent_since=attempt.silent_since, **fields)


def never_began(attempt: Attempt, status: JobStatus, inspection: DirectoryStatus) -> bool:
    """Return whether the batch job ended by itself before its wrapper took the start lock in its directory."""
    if attempt.ended or attempt.ending is not None or attempt.connected or status.state != ENDED:
        return False
    untouched = bool(inspection.directory) and not inspection.start_lock and inspection.record is None
    return untouched and status.ending not in _OTHER_CAUSES


def why_never_began(directory: str, status: JobStatus, output: Optional[str]) -> Dict[str, Any]:
    """A Failure as JSON: what the nodes do not see, or cannot start. `output` is None if the batch job left none."""
    last = _last_line(output or "")
    if output is None or any(words in output for words in _NOT_SEEN):
        return _failure(
            "not_shared",
            "The compute nodes do not see %s, or cannot write to it: the batch job left nothing there." % directory,
            "Name a directory that the head node and the compute nodes share with `shared:` in the grid file.",
            last,
        )
    if any(words in output for words in _FULL):
        return _failure(
            "shared_full",
            "The shared directory has no room for the attempt: %s" % last,
            "Free space or quota there, or name another directory with `shared:` in the grid file.",
            last,
        )
    ended = "" if status.exit_status is None else " (exit status %d)" % status.exit_status
    return _failure(
        "wrapper_not_started",
        "The batch job ended before koalapy's wrapper began%s%s" % (ended, ": " + last if last else "."),
        "See that the `python` of the grid file, Python 3.6 or later, starts on the compute nodes, and that they can"
        " write to %s." % directory,
        last,
    )


def _failure(code: str, message: str, advice: str, words: str) -> Dict[str, Any]:
    return dict(Failure(code, "cluster", message, advice, words=words)._asdict())


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][-_LAST:] if lines else ""
