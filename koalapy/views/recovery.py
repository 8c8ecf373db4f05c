"""The report of a koalad's recovery: what it found at its start, and what it has cleaned up since."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar, cast

from koalapy.answers import koalad as answers
from koalapy.model.change import Change, Snapshot
from koalapy.model.commands import CancelAttempt, CollectOutput, Command, ForgetAttempt, SubmitAttempt
from koalapy.model.counts import counted_as
from koalapy.model.errors import Reason
from koalapy.model.history import History, HistoryKind
from koalapy.model.identity import FIRST_LAUNCHER, AttemptId, JobId
from koalapy.model.job import Job
from koalapy.model.states import AttemptState, JobState
from koalapy.model.units import Instant, format_instant

Line = answers.RecoveryLine

KEPT = 200  # lines; older ones are dropped


class Recovery:
    """Follows the recovery from the snapshot at koalad's start through every commit.

    The driver's thread reports commits. `recovered` is the state in which koalad started, what is still open of it, and
    the newest lines. It is replaced, never changed, so that any thread may read it.
    """

    def __init__(self, now: Instant, snapshot: Snapshot) -> None:
        self._unreported = {each.id for job in snapshot.jobs for each in job.live}
        self._unreported |= {each.id for each in snapshot.launchers}
        self._at_barrier = {job.id for job in snapshot.jobs if _at_barrier(job)}
        self._outbox = {entry.number: entry.command for entry in snapshot.outbox}
        self._submitted = set(_attempts(self._outbox.values(), SubmitAttempt))
        self._cancelled = set(_attempts(self._outbox.values(), CancelAttempt))
        self._collected = {each.job for each in self._outbox.values() if isinstance(each, CollectOutput)}
        counts = Counter(each.state for each in snapshot.work)
        jobs = {str(state): counts[state] for state in JobState if not state.final}
        self.recovered: answers.Recovery = {
            "at": format_instant(now),
            "jobs": cast(answers.JobsRecovered, jobs),
            "jobs_at_barrier": sum(_at_barrier(job) for job in snapshot.jobs),
            "attempts": len(self._unreported),
            "attempts_unreported": len(self._unreported),
            "commands": len(self._outbox),
            "commands_unconfirmed": len(self._outbox),
            "pending_cancels": len(snapshot.pending_cancels),
            "lines": [],
            "lines_dropped": 0,
        }
        self._add(_beginning(now, self.recovered, jobs, snapshot, self._outbox.values()))

    def committed(self, now: Instant, change: Change) -> list[Line]:
        """Add the lines of a commit, and return them."""
        lines = [_made(now, "store_restored", _RESTORED)] if change.epoch_jump is not None else []
        lines += [line for past in change.history if (line := self._line_of(past, change)) is not None]
        lines += self._forgotten(now, change)
        self._add(lines)
        return lines

    def slept(self, now: Instant, reason: Reason) -> None:
        """Add a line on the sleep of koalad's host, after which all clusters are connected anew."""
        self._add([_made(now, "host_slept", f"{reason.message.rstrip('.')}: all clusters are connected anew.")])

    def _add(self, lines: Iterable[Line]) -> None:
        unreported, unconfirmed = len(self._unreported), len(self._outbox)
        before = self.recovered
        added = list(lines)
        if not added and unreported == before["attempts_unreported"] and unconfirmed == before["commands_unconfirmed"]:
            return
        together = [*before["lines"], *added]
        self.recovered = {
            **before,
            "attempts_unreported": unreported,
            "commands_unconfirmed": unconfirmed,
            "lines": together[-KEPT:],
            "lines_dropped": before["lines_dropped"] + max(0, len(together) - KEPT),
        }

    def _forgotten(self, now: Instant, change: Change) -> list[Line]:
        """Return a line for each cluster whose directories of past attempts were removed."""
        cleaned_up = {each.id for each in change.attempts if each.cleaned_up and each.detached_at is not None}
        for entry in change.sent:
            if isinstance(entry.command, ForgetAttempt) and entry.command.attempt in cleaned_up:
                self._outbox[entry.number] = entry.command
        confirmed = [command for number in change.confirmed if (command := self._outbox.pop(number, None))]
        counts = Counter(command.cluster for command in confirmed if isinstance(command, ForgetAttempt))
        return [_forgot(now, cluster, count) for cluster, count in sorted(counts.items())]

    # ---- lines of history

    def _line_of(self, line: History, change: Change) -> Line | None:
        reaction = self._reactions.get(line.kind)
        return reaction(self, line, change) if reaction else None

    def _on_found(self, line: History, change: Change) -> Line | None:
        attempt = _attempt(line)
        self._unreported.discard(attempt)
        details = line.details
        if details["found"] != "ended":
            how = found_as(details["by"], details["found"])
            return _line(line, "attempt_found", f"{_named(line)} was found again: {how}.")
        ended = next(
            (each for each in change.history if each.kind == HistoryKind.ATTEMPT_ENDED and _same(each, line)), None
        )
        status = None if ended is None else ended.details.get("exit_status")
        how = "" if status is None else f" with exit status {status}"
        return _line(line, "attempt_ended", f"{_named(line)} had ended meanwhile{how}.")

    def _on_recalled(self, line: History, change: Change) -> Line | None:
        text = f"{_named(line)} was made after the backup that was restored; its job continues with it."
        return _line(line, "attempt_recalled", text)

    def _on_ended(self, line: History, change: Change) -> Line | None:
        if not self._was_unreported(line):
            return None
        why = line.details.get("message") or "It was lost."
        return _line(line, "attempt_lost", f"{_named(line)} was not found again: {why}")

    def _on_submitted(self, line: History, change: Change) -> Line | None:
        if not self._was_unreported(line) or _attempt(line) not in self._submitted:
            return None
        return _line(line, "attempt_submitted", f"{_named(line)} is in its batch system; its submit was in doubt.")

    def _on_refused(self, line: History, change: Change) -> Line | None:
        if not self._was_unreported(line) or _attempt(line) not in self._submitted:
            return None
        text = f"{_named(line)} is not in its batch system; its submit was in doubt: {line.details['message']}"
        return _line(line, "attempt_refused", text)

    def _on_cleaned_up(self, line: History, change: Change) -> Line | None:
        self._unreported.discard(_attempt(line))
        if _attempt(line) not in self._cancelled:
            return None
        self._cancelled.discard(_attempt(line))
        return _line(line, "attempt_cancelled", f"{_named(line)} was cleaned up: nothing of it is left.")

    def _on_cancel_pending(self, line: History, change: Change) -> Line | None:
        self._unreported.discard(_attempt(line))
        return None

    def _on_cancel_completed(self, line: History, change: Change) -> Line | None:
        return _line(line, "cancel_completed", f"{_named(line)} was cancelled at last: nothing of it is left.")

    def _on_released(self, line: History, change: Change) -> Line | None:
        if not self._was_at_barrier(line):
            return None
        return _line(line, "job_released", f"Job {line.job}, which was at its barrier, was released.")

    def _on_stopping(self, line: History, change: Change) -> Line | None:
        if not self._was_at_barrier(line):
            return None
        why = line.details.get("message")
        text = f"Job {line.job}, which was at its barrier, was given back{f': {why}' if why else '.'}"
        return _line(line, "job_given_back", text)

    def _on_collected(self, line: History, change: Change) -> Line | None:
        if line.job not in self._collected:
            return None
        self._collected.discard(line.job)
        why = line.details.get("message")
        text = f"could not be fetched completely: {why}" if why else "was fetched to its destination."
        return _line(line, "output_collected", f"The output of job {line.job} {text}")

    def _was_unreported(self, line: History) -> bool:
        """Return whether this is the first sign of an attempt since the start."""
        attempt = _attempt(line)
        known = attempt in self._unreported
        self._unreported.discard(attempt)
        return known

    def _was_at_barrier(self, line: History) -> bool:
        """Return whether the job was at its barrier at the start. Only the first call for a job returns True."""
        was_there = line.job in self._at_barrier
        self._at_barrier.discard(line.job)
        return was_there

    _reactions: ClassVar[dict[str, Callable[..., Line | None]]] = {
        HistoryKind.ATTEMPT_RECALLED: _on_recalled,
        HistoryKind.ATTEMPT_FOUND: _on_found,
        HistoryKind.ATTEMPT_ENDED: _on_ended,
        HistoryKind.ATTEMPT_SUBMITTED: _on_submitted,
        HistoryKind.SUBMISSION_FAILED: _on_refused,
        HistoryKind.ATTEMPT_CLEANED_UP: _on_cleaned_up,
        HistoryKind.CANCEL_PENDING: _on_cancel_pending,
        HistoryKind.CANCEL_COMPLETED: _on_cancel_completed,
        HistoryKind.JOB_RELEASED: _on_released,
        HistoryKind.WORK_STOPPING: _on_stopping,
        HistoryKind.OUTPUT_COLLECTED: _on_collected,
    }


def found_as(by: str, found: str) -> str:
    """Describe the state in which the wrapper or the batch system reported a recovered attempt."""
    return _FOUND.get((by, found), f"{found}, by its {by}")


_FOUND = {
    ("wrapper", "started"): "its batch job has started",
    ("wrapper", "at_barrier"): "it waits at its barrier",
    ("wrapper", "released"): "it is released",
    ("wrapper", "running"): "it runs",
    ("batch system", "queued"): "it waits in the batch queue",
    ("batch system", "held"): "it is held in the batch queue",
    ("batch system", "running"): "its batch job runs",
    ("batch system", "suspended"): "its batch job is suspended",
}
_RESTORED = (
    "The store was restored from a backup, or another koalad used a copy of it: "
    "the clusters are asked which attempts ran since."
)
_COMMANDS = {
    "SubmitAttempt": "submit",
    "ReleaseAttempt": "release",
    "CancelAttempt": "cancel",
    "ForgetAttempt": "forget",
    "CollectOutput": "collect",
    "AnnounceNotification": "announce a notification",
    "SendNotification": "send a notification",
}


def _beginning(
    now: Instant, found: answers.Recovery, jobs: Mapping[str, int], snapshot: Snapshot, outbox: Iterable[Command]
) -> list[Line]:
    if not (any(jobs.values()) or found["commands"] or found["pending_cancels"]):
        return [_made(now, "nothing_recovered", "Nothing was under way when koalad started.")]
    states = ", ".join(f"{count} {state}" for state, count in jobs.items() if count) or "none"
    barrier = (
        f" ({counted_as(found['jobs_at_barrier'], 'job')} with components at a barrier)"
        if found["jobs_at_barrier"]
        else ""
    )
    lines = [_made(now, "queue_recovered", f"Jobs that were not final: {states}{barrier}.")]
    if sweeps := snapshot.sweeps:
        done, count = sum(len(each.done) for each in sweeps), sum(each.count for each in sweeps)
        parameters, launchers = counted_as(count, "parameter"), counted_as(len(snapshot.launchers), "Launcher")
        text = f"Sweeps: {len(sweeps)}, {done} of {parameters} done, with {launchers}."
        lines.append(_made(now, "sweeps_recovered", text))
    if found["commands"]:
        kinds = Counter(_COMMANDS.get(type(command).__name__, "other") for command in outbox)
        listed = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
        text = (
            f"Outbox: {counted_as(found['commands'], 'command')} sent again, in doubt, as clusters connect: {listed}."
        )
        lines.append(_made(now, "outbox_recovered", text))
    if found["pending_cancels"]:
        text = f"Pending cancels: {counted_as(found['pending_cancels'], 'attempt')} to be ended as clusters connect."
        lines.append(_made(now, "pending_cancels_recovered", text))
    return lines


def _at_barrier(job: Job) -> bool:
    return job.state is JobState.CLAIMING and any(each.state is AttemptState.AT_BARRIER for each in job.live)


def _attempts(commands: Iterable[Command], kind: type[SubmitAttempt | CancelAttempt]) -> Iterable[AttemptId]:
    return (command.attempt for command in commands if isinstance(command, kind))


def _attempt(line: History) -> AttemptId:
    """Return the attempt of a line about a component. Lines of an older koalapy may not name one."""
    return AttemptId(line.job, line.details["component"], line.details.get("attempt", 0))


def _same(one: History, other: History) -> bool:
    return _attempt(one) == _attempt(other)


def _named(line: History) -> str:
    batch_id = line.details.get("batch_id")
    who = f"{'Launcher' if line.job >= FIRST_LAUNCHER else 'Attempt'} {_attempt(line)}"
    return f"{who} on {line.details['cluster']}" + (f" (batch job {batch_id})" if batch_id else "")


def _line(line: History, kind: answers.RecoveryKind, text: str) -> Line:
    attempt = _attempt(line) if "component" in line.details else None
    return _made(line.at, kind, text, line.job, attempt, line.details.get("cluster"))


def _made(
    at: Instant,
    kind: answers.RecoveryKind,
    text: str,
    job: JobId | None = None,
    attempt: AttemptId | None = None,
    cluster: str | None = None,
) -> Line:
    return {
        "at": format_instant(at),
        "kind": kind,
        "text": text,
        "job": job,
        "attempt": str(attempt) if attempt else None,
        "cluster": cluster,
    }


def _forgot(now: Instant, cluster: str, count: int) -> Line:
    directories = "The directory of a past attempt" if count == 1 else f"{count} directories of past attempts"
    text = f"{directories} on {cluster} {'was' if count == 1 else 'were'} forgotten."
    return _made(now, "directories_forgotten", text, cluster=cluster)
