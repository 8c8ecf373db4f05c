"""The KCM's decisions: a message or an outcome in, actions out. Time is an argument, and nothing is executed here."""

from typing import Any, Callable, Dict, Iterable, List, Optional

from koalapy_adapters.batch.text import is_launcher
from koalapy_adapters.kcm.attempts import cancel, cause, monitor, submit, suspend, wrapper_messages
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.kcm.state import cleanup
from koalapy_adapters.kcm.state.actions import SECOND
from koalapy_adapters.kcm.state.attempt import LOOKS, UNANSWERED, Attempt, Core, Limits
from koalapy_adapters.kcm.state.poll_schedule import PollSchedule
from koalapy_adapters.kcm.state.timers import Timers
from koalapy_adapters.kcm.sweeps import feed, launcher_end, launcher_messages, results
from koalapy_adapters.messages.kcm import Done, PutKey, Refused
from koalapy_adapters.messages.koalad import (
    Account,
    Acknowledge,
    Cancel,
    Clean,
    ClusterConfig,
    Diagnose,
    Dissolve,
    Examine,
    FeedSweep,
    Forget,
    Hello,
    RecallParameters,
    Release,
    SetSuspended,
    Submit,
    Tags,
    TrustLauncher,
    WatchCluster,
)
from koalapy_adapters.wrapper.relay.contact import SILENCE

ALLOCATION = "allocation"  # a batch system that serves nobody but this user, on nodes that are this user's


class Machine:
    """One KCM's mind: `handle` takes koalad's messages, but for Ping and files, and the outcomes of `actions`."""

    def __init__(self, now: int, hello: Hello, config: ClusterConfig, fingerprints: bool = False) -> None:
        limits = Limits(int(config.grace * SECOND), max(int(config.orphan_timeout * SECOND), SILENCE))
        own = config.batch == ALLOCATION
        self._core = Core(PollSchedule(config.poll, config.floor, fingerprints, own), limits, hello.epoch, own)
        for tag, batch_id in hello.known:
            self._core.attempts[tag] = Attempt(tag, now, batch_id)
        self._timers = Timers()

    def start(self, now: int) -> List[Any]:
        """The first actions: what ended while nobody listened."""
        return monitor.inspect_all(self._core) + self.tick(now)

    def handle(self, now: int, event: Any) -> List[Any]:
        """Raises KeyError for an event that is not the machine's."""
        actions = _HANDLERS[type(event)](self._core, now, event)
        self._set_timers(_touched(self._core, event))
        return actions + self.tick(now)

    def tick(self, now: int) -> List[Any]:
        """Return the actions that are due by now. The cost depends on the number of due attempts, not of all."""
        core = self._core
        actions = core.event_queue.tick(now)
        due_now = self._timers.expire(now)
        for attempt in [core.attempts[tag] for tag in due_now if tag in core.attempts]:
            actions += submit.tick(core, now, attempt) + cancel.tick(core, now, attempt)
            actions += monitor.tick(core, now, attempt) + cleanup.tick(now, attempt)
            actions += suspend.tick(now, attempt) + cause.tick(core, now, attempt)
        rang_at = core.poll_schedule.bell.due()
        if rang_at is not None and rang_at <= now:
            actions += _woken(core, now, do.Woken())
        actions += feed.tick(core, now) + cancel.check(core, now)
        self._set_timers(due_now)
        due = core.poll_schedule.due()
        if due is not None and due <= now:
            actions.append(do.Measure() if core.poll_schedule.start(now) else do.FingerprintQueue())
        return actions

    def wakeup(self) -> Optional[int]:
        """When `tick` has something to do, if nothing happens before."""
        core, polls = self._core, self._core.poll_schedule
        sweeps, cancels = core.sweeps.timers.next(), core.checks.due()
        dues = (self._timers.next(), sweeps, cancels, polls.bell.due(), core.event_queue.wakeup(), polls.due())
        return min((at for at in dues if at is not None), default=None)

    def has_ended(self, tag: str) -> bool:
        """Return whether nothing more is to be expected of this attempt."""
        return monitor.has_ended(self._core.attempts.get(tag))

    def is_suspended(self, tag: str) -> bool:
        """Return whether the batch system has suspended this attempt, as it was seen last."""
        return monitor.is_suspended(self._core.attempts.get(tag))

    def _set_timers(self, tags: Iterable[str]) -> None:
        """Set the timers of attempts that may wait for another instant than before."""
        attempts = self._core.attempts
        for tag in tags:
            attempt = attempts.get(tag)
            self._timers.set(tag, None if attempt is None else attempt.due())


def _touched(core: Core, event: Any) -> Iterable[str]:
    """The tags of the attempts that an event changes: of most events one, and all where that is unknown."""
    if isinstance(event, _OF_NONE):
        return ()
    if isinstance(event, PutKey):
        return (event.space,)
    return (event.tag,) if hasattr(event, "tag") else getattr(event, "tags", core.attempts)


def _submit(core: Core, now: int, event: Submit) -> List[Any]:
    """One that was named before may have been sent before, even if koalad's word is that it was not."""
    doubt = event.doubt or event.tag in core.attempts
    core.poll_schedule.scavenging |= is_launcher(event.tag)
    feed.submitted(core, now, event)
    return submit.asked(core, now, core.attempt(now, event.tag), event, doubt)


def _forget(core: Core, now: int, event: Forget) -> List[Any]:
    return launcher_end.asked_to_forget(core, now, core.attempt(now, event.tag), event.id)


def _acknowledge(core: Core, now: int, event: Acknowledge) -> List[Any]:
    if core.sweeps.acknowledged(event.number, core.event_queue.last):
        return _acknowledged(core, now, event) + launcher_end.caught_up(core, now)
    return _acknowledged(core, now, event)


def _acknowledged(core: Core, now: int, event: Acknowledge) -> List[Any]:
    return core.event_queue.acknowledge(now, event.number) + results.acknowledged(core, event.number)


def _watch(core: Core, now: int, event: WatchCluster) -> List[Any]:
    core.poll_schedule.urgent = event.urgent
    return []


def _fingerprinted(core: Core, now: int, event: do.QueueFingerprinted) -> List[Any]:
    core.poll_schedule.fingerprinted(event.cost, event.seen)
    return []


def _listed(core: Core, now: int, event: do.Listed) -> List[Any]:
    answer = Done(event.id, False, event.details) if event.error is None else Refused(event.id, event.error)
    return [do.Send(answer)]


def _inspected(core: Core, now: int, event: do.Inspected) -> List[Any]:
    if event.epoch > core.epoch:
        return [do.Quit("a newer KCM is at work on this cluster")]
    actions: List[Any] = []
    for tag in event.tags:
        attempt = core.attempts.get(tag)
        if attempt is not None:
            actions += _seen_inside(core, now, attempt, event)
    return actions


def _seen_inside(core: Core, now: int, attempt: Attempt, event: do.Inspected) -> List[Any]:
    """React to a directory's status. A submit accepts only its own inspection: another one may be older."""
    inspection = event.statuses.get(attempt.tag, do.DirectoryStatus())
    if event.submitting:
        if not submit.waits_for_inspection(attempt):
            return []
        failed = event.error is not None
        return (
            submit.inspection_failed(core, now, attempt) if failed else submit.inspected(core, now, attempt, inspection)
        )
    if event.error is not None:
        monitor.inspection_failed(now, attempt)
        return []
    return monitor.inspected(core, now, attempt, inspection)


def _looked(core: Core, now: int, event: do.Looked) -> List[Any]:
    attempt = core.attempts.get(event.tag)
    if attempt is None:
        return []
    attempt.unaccounted = attempt.unaccounted + 1 if event.unaccounted else 0
    if attempt.unaccounted >= LOOKS:
        event = event._replace(error=None)
    if event.submitting:
        return submit.looked(core, now, attempt, event) if attempt.busy else []
    was_looking, attempt.looking = attempt.looking, False
    if attempt.ending is not None:
        return cancel.looked(core, now, attempt, event)
    if attempt.cause_until is not None:
        return cause.looked(core, now, attempt, event)
    return monitor.looked(core, now, attempt, event) if was_looking and attempt.stage not in UNANSWERED else []


def _start_lock_taken(core: Core, now: int, event: do.StartLockTaken) -> List[Any]:
    attempt = core.attempts.get(event.tag)
    if attempt is None:
        return []
    if attempt.ending is not None:
        return cancel.start_lock_taken(core, now, attempt, event)
    return submit.start_lock_taken(core, now, attempt, event) if attempt.busy else []


def _woken(core: Core, now: int, event: do.Woken) -> List[Any]:
    if not core.poll_schedule.bell.expire(now):
        return []
    core.poll_schedule.soon(now)
    for attempt in core.attempts.values():
        cancel.wake(core, now, attempt)
    return monitor.inspect_all(core)


def _of_attempt(handler: Callable[[Core, int, Attempt, Any], List[Any]]) -> Callable[[Core, int, Any], List[Any]]:
    """For what concerns one attempt, whether it was known or not."""
    return lambda core, now, event: handler(core, now, core.attempt(now, event.tag), event)


def _of_known(handler: Callable[[Core, int, Attempt, Any], List[Any]]) -> Callable[[Core, int, Any], List[Any]]:
    """For the outcomes of actions: one whose attempt was forgotten meanwhile is of no use."""

    def handle(core: Core, now: int, event: Any) -> List[Any]:
        attempt = core.attempts.get(event.tag)
        return [] if attempt is None else handler(core, now, attempt, event)

    return handle


_OF_NONE = (
    Acknowledge,
    WatchCluster,
    Tags,
    Examine,
    Account,
    do.Listed,
    do.Woken,
    do.QueueFingerprinted,
    FeedSweep,
    RecallParameters,
    do.LauncherReported,
)

_HANDLERS: Dict[type, Callable[[Core, int, Any], List[Any]]] = {
    Submit: _submit,
    Cancel: _of_attempt(cancel.asked),
    Release: _of_attempt(lambda core, now, attempt, event: wrapper_messages.release(attempt, event)),
    PutKey: lambda core, now, event: wrapper_messages.put_from_koalad(core.attempt(now, event.space), event),
    Forget: _forget,
    SetSuspended: _of_known(suspend.asked),
    WatchCluster: _watch,
    Acknowledge: _acknowledge,
    FeedSweep: feed.fed,
    RecallParameters: feed.recalled,
    TrustLauncher: feed.trusted,
    Tags: lambda core, now, event: [do.ListTags(event.id, event.after)],
    Account: lambda core, now, event: [do.AccountJobs(event.id, event.jobs, event.since)],
    Examine: lambda core, now, event: [do.ExamineTags(event.id, event.tags)],
    Clean: _of_attempt(cancel.clean),
    Diagnose: lambda core, now, event: [do.DiagnoseHead(event.id, event.check)],
    Dissolve: lambda core, now, event: [do.DissolveStore(event.id)],
    do.Prepared: _of_known(submit.prepared),
    do.JobSubmitted: _of_known(submit.submitted),
    do.Looked: _looked,
    do.StartLockTaken: _start_lock_taken,
    do.JobCancelled: _of_known(cancel.cancelled),
    do.JobsChecked: cancel.checked,
    do.JobSuspended: _of_known(suspend.done),
    do.Inspected: _inspected,
    do.CapacityMeasured: monitor.measured,
    do.QueueFingerprinted: _fingerprinted,
    do.Removed: cleanup.removed,
    do.JournalRead: feed.journal_read,
    do.Listed: _listed,
    do.WrapperConnected: _of_attempt(wrapper_messages.entered),
    do.OtherVersion: _of_attempt(wrapper_messages.of_other_version),
    do.WrapperReported: _of_attempt(
        lambda core, now, attempt, event: wrapper_messages.reported(core, now, attempt, event.report)
    ),
    do.LauncherReported: _of_attempt(launcher_messages.received),
    do.WrapperPut: _of_attempt(
        lambda core, now, attempt, event: wrapper_messages.put_from_wrapper(attempt, event.key, event.value)
    ),
    do.WrapperDisconnected: _of_known(
        lambda core, now, attempt, event: wrapper_messages.left(core, now, attempt, event.closed)
    ),
    do.Woken: _woken,
}
