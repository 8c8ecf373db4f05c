"""Notifications: at which changes of a job somebody is notified, how, and with what content (docs/notifications.md)."""

import re
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from koalapy.model.errors import Reason
from koalapy.model.identity import JobId
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration, Instant

MOST_RECIPIENTS = 16  # of one job
LONGEST_URL, LONGEST_ADDRESS, MOST_WORDS = 2_048, 254, 64
RETRY_AFTER = tuple(
    Duration(each) for each in (2 * SECOND, 10 * SECOND, MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR)
)
_PATH = re.compile(r"[/?#\\]")


class NotifyOn(StrEnum):
    """A change of a job that somebody can be notified of. A job has each of them once at most.

    `started`: its program started for the first time, or its sweep was admitted for the first time.
    """

    STARTED = "started"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDS = (NotifyOn.DONE, NotifyOn.FAILED, NotifyOn.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """An HTTP or HTTPS server that gets a POST. The URL may hold a secret, and is never shown whole."""

    url: str = field(repr=False)

    def __str__(self) -> str:
        scheme, _, rest = self.url.partition("://")
        place = _PATH.split(rest, maxsplit=1)[0]
        return f"webhook {scheme}://{place.rpartition('@')[2]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """A mail address, to which the sendmail of koalad's host delivers."""

    address: str

    def __str__(self) -> str:
        return f"mail to {self.address}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program on koalad's host and its arguments, which may hold secrets: only the program is shown."""

    words: tuple[str, ...] = field(repr=False)

    def __str__(self) -> str:
        return f"command {self.words[0]}"


Recipient = Webhook | Mail | Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Notify:
    """A recipient, and the changes of which it is notified."""

    to: Recipient
    on: tuple[NotifyOn, ...] = ENDS


class NotificationId(NamedTuple):
    """The id of a notification. `recipient`: its place in the job's list, from 0."""

    job: JobId
    on: NotifyOn
    recipient: int

    def __str__(self) -> str:
        return f"{self.job}.{self.on}.{self.recipient}"


class JobKind(StrEnum):
    """The subject of a notification."""

    JOB = "job"
    SWEEP = "sweep"
    FLOW = "flow"
    PILOT = "pilot"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """A notification with its whole content, as it was when the job changed at `at`.

    `reason`: why the job failed or was cancelled.
    """

    id: NotificationId
    to: Recipient
    name: str
    owner: str
    kind: JobKind
    at: Instant
    submitted_at: Instant
    started_at: Instant | None = None
    reason: Reason | None = None


class Outcome(StrEnum):
    """The outcome of one try to send a notification."""

    SENT = "sent"
    NOT_TAKEN = "not_taken"  # the recipient certainly has not got it, and another try may succeed
    REFUSED = "refused"  # the recipient certainly has not got it, and no other try would succeed
    UNKNOWN = "unknown"  # the recipient may have got it, so it is not sent again


def retry_after(tries: int) -> Duration | None:
    """Return the time until the next try, after so many that were not taken; None after the last one."""
    return RETRY_AFTER[tries - 1] if tries <= len(RETRY_AFTER) else None
