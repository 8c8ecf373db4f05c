"""Facts: what `attempts` derives from events for an attempt's owner, each in the past tense.

`owner`: the kind of that owner, by which the engine finds its reactions.
"""

from dataclasses import dataclass

from koalapy.model.attempt import OwnerKind
from koalapy.model.errors import Reason
from koalapy.model.fast_frozen import fast_frozen
from koalapy.model.identity import AttemptId
from koalapy.model.units import Instant


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class CameToBarrier:
    """The attempt's wrapper is at its barrier; it may report that again."""

    attempt: AttemptId
    owner: OwnerKind


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The attempt's program has started."""

    attempt: AttemptId
    owner: OwnerKind


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The attempt's batch job will never start, for this reason; nothing has been cancelled yet."""

    attempt: AttemptId
    owner: OwnerKind
    reason: Reason


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The attempt has ended; `reason` None: its program ended well, or it was cancelled on request.

    `released`: its program may have run. `held_since`: since when it was at its barrier, if it was until now.
    `refused`: the batch system did not accept its submission.
    """

    attempt: AttemptId
    owner: OwnerKind
    reason: Reason | None
    released: bool
    ended_at: Instant
    held_since: Instant | None = None
    refused: bool = False


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class LetGo:
    """The Launcher is cleaned up or detached, so its owner waits for nothing of it any more; this happens once.

    The attempts of jobs have no such fact: the run list's step examines them itself.
    """

    attempt: AttemptId
    owner: OwnerKind
    owner_id: int


Fact = CameToBarrier | Started | Refused | Ended | LetGo
