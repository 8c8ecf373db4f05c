"""Messages between koalad and the wrappers: reports one way, releases and stops the other, keys both ways."""

from typing import Any, Dict, List, Optional

from koalapy_adapters.kcm.attempts import cancel, cause
from koalapy_adapters.kcm.state.actions import Inspect, OtherVersion, Send, SendToWrapper, WrapperConnected
from koalapy_adapters.kcm.state.attempt import RESTARTED, Attempt, Core, failure, is_restart
from koalapy_adapters.kcm.sweeps import launcher_end, launcher_messages
from koalapy_adapters.messages import is_sound, read
from koalapy_adapters.messages.fields import MessageError
from koalapy_adapters.messages.kcm import Done, PutKey, Refused, Report
from koalapy_adapters.messages.koalad import Release

AT_BARRIER = "at_barrier"
INSTANTS = ("began_at", "at_barrier_at", "released_at", "started_at", "ended_at")
ENDED = failure(
    "attempt_ended", "ours", "The attempt has ended without having been released.", "Submit it as a new attempt."
)
OTHER_VERSION = failure(
    "other_version",
    "ours",
    "The wrapper of this attempt is of another version of koalapy than koalad, and is not let in. Its program was not "
    "started. The batch job is cancelled, and the component is tried again with this version.",
    "Nothing needs to be done.",
)


def entered(core: Core, now: int, attempt: Attempt, outcome: WrapperConnected) -> List[Any]:
    """A wrapper has connected, perhaps again: it is sent all that it may have missed."""
    attempt.connected, attempt.of_first = True, None
    launcher_messages.parted(core, attempt)
    attempt.offset = now - outcome.clock
    attempt.sign_at = attempt.wrapper_sign_at = now
    missed: List[Any] = [*attempt.keys.values()]
    missed += [message for message in (attempt.release, attempt.stop) if message is not None]
    return [SendToWrapper(attempt.tag, message) for message in missed]


def of_other_version(core: Core, now: int, attempt: Attempt, outcome: OtherVersion) -> List[Any]:
    """It can never be released, so it is over; a program that was released before goes on, and its record counts.

    As of a second start, nothing is known of its own end.
    """
    released = outcome.released or (attempt.report is not None and attempt.report.released_at is not None)
    if released or attempt.ended or attempt.connected:
        return []
    ended = {"batch_id": attempt.batch_id, "phase": "ended", "nodes": [], "ending": RESTARTED, "error": OTHER_VERSION}
    return reported(core, now, attempt, ended)


def reported(core: Core, now: int, attempt: Attempt, report: Dict[str, Any]) -> List[Any]:
    """A report, from the wrapper's mouth or its record; only what is new goes on, as all is of one that was missing."""
    mapped = _mapped(attempt, report)
    if attempt.connected and mapped is not None:  # from its mouth
        attempt.of_first = not is_restart(mapped)
    if mapped is None or (mapped == attempt.report and not attempt.missed and attempt.silent_since is None):
        return []
    if attempt.ended:
        return _improve_end(attempt, mapped)
    attempt.report, attempt.silent_since = mapped, None
    if attempt.missed:
        attempt.seen = None  # should it be missing again, that is news
    _note_restart(attempt)
    attempt.batch_id = attempt.batch_id or mapped.batch_id
    attempt.sign_at = attempt.wrapper_sign_at = now
    actions: List[Any] = []
    if cause.is_open(core, attempt, mapped):
        cause.ask(now, attempt)
    else:
        actions = launcher_end.report(core, now, attempt.tag, mapped)
    actions += _answer_release(attempt)
    if attempt.ended:
        core.poll_schedule.soon(now)
        cancel.wrapper_silent(attempt, now)
    if mapped.phase == AT_BARRIER and attempt.release is not None and attempt.connected:
        actions.append(SendToWrapper(attempt.tag, attempt.release))  # before its barrier the wrapper had no use for it
    return actions


def _improve_end(attempt: Attempt, report: Report) -> List[Any]:
    """An end was reported already; whether it is safe is in the report of the start that won the claim."""
    if not attempt.surely_ended and report.phase == "ended":
        attempt.report = report
    return []


def _note_restart(attempt: Attempt) -> None:
    """A second start reported: there may even be two batch jobs of this tag."""
    if attempt.ended and not attempt.surely_ended:
        attempt.restarted = attempt.doubtful = True


def left(core: Core, now: int, attempt: Attempt, closed: bool) -> List[Any]:
    """Its connection is gone; whether it ended is in its record."""
    attempt.connected, attempt.sign_at, attempt.wrapper_sign_at = False, now, now
    _note_closing(attempt, closed)
    launcher_messages.parted(core, attempt)
    if attempt.ended:
        return []
    core.poll_schedule.soon(now)
    cancel.wrapper_silent(attempt, now)
    if attempt.look_at is not None:
        attempt.look_at = now
    return [Inspect([attempt.tag])]


def _note_closing(attempt: Attempt, closed: bool) -> None:
    """The end of a second start means nothing for the first; one that never reported may be either."""
    if attempt.of_first is not False:
        attempt.closed = closed and (attempt.closed or attempt.of_first is True)


def release(attempt: Attempt, message: Release) -> List[Any]:
    """Let it out of its barrier, now or when it connects; answered when it reports that it is out."""
    attempt.release_ids.append(message.id)
    answers = _answer_release(attempt)
    if answers:
        return answers
    attempt.release = message
    return [SendToWrapper(attempt.tag, message)] if attempt.connected else []


def put_from_wrapper(attempt: Attempt, key: str, value: str) -> List[Any]:
    return [Send(PutKey(attempt.tag, key, value))]


def put_from_koalad(attempt: Attempt, message: PutKey) -> List[Any]:
    """Kept for the next connection too: what was written to one that then broke may not have arrived."""
    attempt.keys[message.key] = message
    return [SendToWrapper(attempt.tag, message)] if attempt.connected else []


def _answer_release(attempt: Attempt) -> List[Any]:
    report = attempt.report
    if report is None or not attempt.release_ids:
        return []
    if report.released_at is not None:
        answers: List[Any] = [Done(id) for id in attempt.release_ids]
    elif attempt.ended:
        answers = [Refused(id, ENDED) for id in attempt.release_ids]
    else:
        return []
    attempt.release, attempt.release_ids = None, []
    return [Send(answer) for answer in answers]


def _mapped(attempt: Attempt, report: Dict[str, Any]) -> Optional[Report]:
    """With instants of the KCM's clock; one that was mapped before stays as it was, whatever the clocks do."""
    try:
        checked: Report = read(Report, dict(report, tag=attempt.tag))
    except MessageError:
        return None  # of a wrapper that is broken, or of another time; the batch system will report how it ended
    if attempt.report is not None and not checked.nodes:
        checked = checked._replace(nodes=attempt.report.nodes)  # a second start does not know them
    for name in INSTANTS:
        before = getattr(attempt.report, name) if attempt.report is not None else None
        if before is not None:
            checked = checked._replace(**{name: before})
        elif getattr(checked, name) is not None:
            checked = checked._replace(**{name: getattr(checked, name) + attempt.offset})
    return checked if is_sound(checked) else None
