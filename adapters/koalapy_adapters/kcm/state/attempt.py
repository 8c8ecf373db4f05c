"""The KCM's records of its attempts: the state that the machine's parts share."""

import enum
from typing import Any, Dict, List, NamedTuple, Optional

from koalapy_adapters.batch.protocol import JobStatus
from koalapy_adapters.batch.text import is_launcher
from koalapy_adapters.kcm.state.actions import SECOND
from koalapy_adapters.kcm.state.event_queue import EventQueue
from koalapy_adapters.kcm.state.inventory import Sweeps
from koalapy_adapters.kcm.state.poll_schedule import CancelStatusSchedule, PollSchedule
from koalapy_adapters.kcm.state.timers import Backoff
from koalapy_adapters.messages.kcm import Failure, PutKey, Report
from koalapy_adapters.messages.koalad import Release, Submit
from koalapy_adapters.messages.relay import Stop

MISSING = "missing"  # the state of a batch job that neither queue nor accounting know
LOOKS = 4  # without an answer of the accounting, after which it counts as one that keeps nothing
RESTARTED = "restarted"  # the ending that a second start of the wrapper reports, if there is no better one


class Stage(enum.Enum):
    """Where an attempt stands on its way into the batch system."""

    KNOWN = "known"  # koalad named it; whether it is in the batch system is for the poll to find
    LOOKING = "looking"  # in doubt: looked for before it is submitted
    CHECKING_LOCK = "checking_lock"  # nor in queue nor accounting: is there a claim?
    PREPARING = "preparing"
    SUBMITTING = "submitting"
    SEARCHING = "searching"  # its submit ended in doubt: looked for before it is answered
    WITHDRAWING = "withdrawing"  # its submit failed: revoked before that is reported
    IN = "in"  # the batch system has, or had, it
    OUT = "out"  # refused: it never ran and never will


# In these stages koalad waits for an answer to its Submit.
UNANSWERED = frozenset(
    (
        Stage.LOOKING,
        Stage.CHECKING_LOCK,
        Stage.PREPARING,
        Stage.SUBMITTING,
        Stage.SEARCHING,
        Stage.WITHDRAWING,
    )
)


class Ending:
    """A cancel under way. Timers are None while their action runs or is not needed."""

    def __init__(self, now: int, asking: bool) -> None:
        self.asking = asking  # a look or a check of this attempt runs
        self.void: Optional[bool] = None  # True: won; False: a wrapper holds the claim
        self.void_at: Optional[int] = None
        self.void_backoff = Backoff(SECOND // 4, 30 * SECOND)
        self.cancel_at: Optional[int] = None
        self.force_at: Optional[int] = None  # when a forced cancel is sent beside it, by the user's wish
        self.cancelling = 0  # the batch system's cancels that run
        self.cancels = 0  # that were sent so far
        self.refused: Optional[Dict[str, Any]] = None  # what the last of them failed with
        self.began_at = now
        self.stuck = False  # koalad knows that they are in vain
        self.cancel_backoff = Backoff(2 * SECOND, 60 * SECOND)
        self.check_at: Optional[int] = None
        self.check_backoff = Backoff(SECOND // 20, 5 * SECOND, growth=30)
        self.listed = True  # until the batch system reports that it is not
        self.ended = False  # the batch system reports that it has ended
        self.statuses: List[JobStatus] = []  # its last report, of a job that it may not list any more


class Attempt:
    """One attempt of this store, as far as this KCM knows it."""

    def __init__(self, tag: str, now: int, batch_id: str = "") -> None:
        self.tag = tag
        self.batch_id = batch_id
        # its submit
        self.stage = Stage.KNOWN
        self.request: Optional[Submit] = None
        self.asked: List[int] = []  # ids of Submits that wait for the answer
        self.busy = False  # an action of its submit runs
        self.retry_at: Optional[int] = None
        self.retry = Backoff(SECOND, 30 * SECOND)
        self.tries = 0
        self.doubtful = not batch_id  # more than the one batch job of batch_id may exist
        self.undoubted = False  # this KCM is the first that was asked to submit it
        self.restarted = False  # the batch system started it again: its last report is of the last start
        self.error: Optional[Dict[str, Any]] = None
        self.submitted_at = now
        # its wrapper
        self.connected = False
        self.of_first: Optional[bool] = None  # whether the claim's holder is connected; None: unknown
        self.closed = False  # the last connection of the claim's holder was closed by its own side
        self.offset = 0  # the KCM's clock minus the node's
        self.report: Optional[Report] = None
        self.release: Optional[Release] = None
        self.release_ids: List[int] = []
        self.keys: Dict[str, PutKey] = {}
        self.stop: Optional[Stop] = None
        # what is seen of it from outside
        self.seen: Optional[JobStatus] = None
        self.unrecorded_end: Optional[JobStatus] = None  # over by the batch system; has it a record?
        self.record_due_at: Optional[int] = None
        self.record_tries = 0
        self.look_at: Optional[int] = None  # missing: ask the accounting again
        self.look_backoff = Backoff(5 * SECOND, 300 * SECOND)
        self.looking = False
        self.unaccounted = 0  # looks in a row that the accounting did not answer
        self.inspecting = False
        self.outdated = False  # what is being looked at may have changed since
        self.heartbeat = 0
        self.sign_at = now  # when there was a sign of it, or none could be had
        self.wrapper_sign_at = now  # when its wrapper gave a sign of life, or none could be seen
        self.silent_since: Optional[int] = None  # as reported to koalad
        # its end, which is not reported to koalad before the batch system is asked for its cause; see `cause`
        self.cause_until: Optional[int] = None
        self.cause_at: Optional[int] = None
        self.cause_backoff = Backoff(SECOND // 2, 5 * SECOND)
        # suspended by koalad's wish
        self.suspend_requested: Optional[bool] = None  # None: done, or never asked
        self.suspending = False  # an action for it runs
        self.suspend_at: Optional[int] = None
        self.suspend_backoff = Backoff(SECOND, 30 * SECOND)
        # its end by koalad's wish
        self.cancelled = False  # koalad asked for a Gone
        self.cleaned_up = False
        self.cleaned_up_at = 0
        self.ending: Optional[Ending] = None
        self.clean_ids: List[int] = []  # ids of Cleans, until nothing of it is left
        self.forget_ids: List[int] = []  # ids of Forgets, and of Cleans whose directory is being removed
        self.forget_at: Optional[int] = None
        self.forget_backoff = Backoff(SECOND, 60 * SECOND)

    @property
    def ended(self) -> bool:
        """Return whether the wrapper, by message or record, reported its end; or a second start did."""
        return self.report is not None and self.report.phase == "ended"

    @property
    def surely_ended(self) -> bool:
        """Return whether the very start that won the claim reported that it has ended."""
        return self.ended and self.report is not None and not is_restart(self.report)

    @property
    def elsewhere(self) -> bool:
        """Return whether the program may run on nodes of which only the wrapper, on the first one, could see the end.

        A Launcher has one node.
        """
        if self.report is None:
            return not is_launcher(self.tag)
        released = self.report.released_at is not None or self.release is not None
        return released and len(self.report.nodes) > 1

    @property
    def missed(self) -> bool:
        """Return whether the attempt was reported to koalad as missing, and nothing since."""
        return self.seen is not None and self.seen.state == MISSING

    def note(self, status: Optional[JobStatus]) -> None:
        """How the batch system sees it."""
        self.restarted = self.restarted or (status is not None and status.restarts > 0)

    def due(self) -> Optional[int]:
        """When it is to be examined again. Computed whenever it may have changed; most attempts wait for no moment."""
        end = self.ending
        if (
            end is None
            and self.retry_at is self.record_due_at is self.look_at is self.forget_at is self.suspend_at is None
            and self.cause_until is None
        ):
            return None
        timers = [self.retry_at, self.record_due_at, self.look_at, self.forget_at, self.suspend_at]
        timers += [self.cause_until, self.cause_at]
        if end is not None:
            timers += [end.void_at, end.cancel_at, end.force_at, None if end.asking else end.check_at]
        return min((at for at in timers if at is not None), default=None)


class Limits(NamedTuple):
    """Time limits of the cluster, in microseconds.

    `orphan_timeout`: the longest that a wrapper may need to notice that it is cut off, and to begin to end its program.
    """

    grace: int
    orphan_timeout: int


class Core:
    """All that the machine's parts share."""

    def __init__(self, poll_schedule: PollSchedule, limits: Limits, epoch: int, own: bool = False) -> None:
        """`own`: see PollSchedule."""
        self.attempts: Dict[str, Attempt] = {}
        self.event_queue = EventQueue()
        self.poll_schedule = poll_schedule
        self.limits = limits
        self.epoch = epoch
        self.own = own
        self.sweeps = Sweeps()
        self.checks = CancelStatusSchedule(own)

    def attempt(self, now: int, tag: str) -> Attempt:
        """The attempt of this tag, made known if it was not."""
        if tag not in self.attempts:
            self.attempts[tag] = Attempt(tag, now)
        return self.attempts[tag]


def is_restart(report: Report) -> bool:
    """Return whether a second start reports it, that runs nothing and knows nothing of the first."""
    return report.phase == "ended" and report.ending == RESTARTED


def failure(code: str, whose: str, message: str, advice: str = "") -> Dict[str, Any]:
    """An error of the KCM's own, as it goes on the wire."""
    return dict(Failure(code, whose, message, advice)._asdict())
