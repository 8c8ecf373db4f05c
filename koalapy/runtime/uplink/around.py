"""What is around a link: what it asks of koalad, and how it tells that it stands."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from koalapy_adapters.messages import Welcome

from koalapy.driver import Delivery
from koalapy.link.vetting import Verdict, trusting
from koalapy.model.errors import Reason
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.units import Instant
from koalapy.runtime.staging.intake import Intake

State = Literal["connected", "connecting", "unreachable"]
Known = Callable[[], Sequence[tuple[AttemptId, str]]]


@dataclass(frozen=True, slots=True)
class LinkStatus:
    """For `koala clusters`: how the connection stands, why if it does not, and what is at its other end."""

    cluster: str
    state: State
    reason: Reason | None = None
    host: str = ""
    version: str = ""
    cost: float = 0.0  # CPU seconds of batch commands in this session


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What a link asks of koalad. `next_epoch`, `known` and `doubtful` may block and are called at each connect; the
    rest returns at once. `put` hears of a key that a component's program has put; `vet` says what a Welcome of the
    session of this epoch is worth; `told` hears how the try of this number came out (see Link.retry), and of losses."""

    now: Callable[[], Instant]
    deliver: Callable[[Delivery], None]
    next_epoch: Callable[[], int]
    known: Known
    put: Callable[[AttemptId, str, str], None]
    connected: Callable[[], None] = lambda: None
    doubtful: Callable[[], Sequence[JobId]] = tuple
    vet: Callable[[int, Welcome], Verdict] = trusting
    intake: Intake = field(default_factory=Intake)
    told: Callable[[LinkStatus, int], None] = lambda status, number: None
