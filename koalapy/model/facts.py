"""Facts: what `attempts` derives from events for an attempt's owner, each in the past tense."""

from dataclasses import dataclass

from koalapy.model.attempt import Owner
from koalapy.model.errors import Reason
from koalapy.model.fast_frozen import fast_frozen
from koalapy.model.identity import AttemptId
from koalapy.model.units import Instant


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class CameToBarrier:
    """The attempt's wrapper is at its barrier; it may report that again."""

    attempt: AttemptId
    owner: Owner


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The attempt's program has started."""

    attempt: AttemptId
    owner: Owner


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The attempt's batch job will never start, for this reason; nothing has been cancelled yet."""

    attempt: AttemptId
    owner: Owner
    reason: Reason


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The attempt has ended; `reason` None: its program ended well, or it was cancelled on request.

    `released`: its program may have run. `held_since`: since when it was at its barrier, if it was until now.
    """

    attempt: AttemptId
    owner: Owner
    reason: Reason | None
    released: bool
    ended_at: Instant
    held_since: Instant | None = None


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class LetGo:
    """The pilot is cleaned up or detached, so its owner waits for nothing of it any more; this happens once.

    The attempts of jobs have no such fact: the run list's step examines them itself.
    """

    attempt: AttemptId
    owner: Owner


Fact = CameToBarrier | Started | Refused | Ended | LetGo
