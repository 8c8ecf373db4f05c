"""Events of the Launcher's machine, in the past tense, and its commands, in the imperative: plain values.

A row is a result as in messages.ParametersEnded. All instants are the node's clock.
"""

from typing import Any, List, NamedTuple

Row = List[Any]
NUMBER, STATUS, ENDING, STARTED_AT, ENDED_AT = 0, 1, 2, 5, 6  # fields of a row


# ---- events ----------------------------------------------------------------------------------------------------------


class Connected(NamedTuple):
    """The wrapper carries what is said to a KCM from now on."""


class Disconnected(NamedTuple):
    """It carries nothing any more; what was said last may have been lost."""


class Received(NamedTuple):
    """A message from the KCM: FeedParameters, ResultsCommitted or LauncherTrusted."""

    message: Any


class Finished(NamedTuple):
    """Slots have run these. `loose`: failures of the probation, which are in no journal yet."""

    rows: List[Row]
    loose: List[Row]


class Looked(NamedTuple):
    """The number of parameters that run and that wait for a slot; the newest that runs began at `newest_at`."""

    running: int
    waiting: int
    newest_at: int


class TakenBack(NamedTuple):
    """No slot has got these, nor will."""

    numbers: List[int]


class SlotLost(NamedTuple):
    """A slot was killed. It ran this parameter since then, or none (0)."""

    slot: int
    number: int
    started_at: int


class SlotsStopped(NamedTuple):
    """All slots have ended, as they were asked to; they were running these."""

    begun: List[int]


class Signalled(NamedTuple):
    """Somebody wants the Launcher to end."""


class Resumed(NamedTuple):
    """The batch system let the job go on, which it had suspended; or its host woke up, which had `slept` so long.

    Microseconds. They are not counted to the walltime.
    """

    slept: int = 0


# ---- commands --------------------------------------------------------------------------------------------------------


class Send(NamedTuple):
    """To the KCM."""

    message: Any


class Queue(NamedTuple):
    """Let the slots run these, in this order. -> Finished"""

    numbers: List[int]


class TakeBack(NamedTuple):
    """Take from the queue what no slot has got. -> TakenBack"""


class Look(NamedTuple):
    """-> Looked"""


class EndProbation(NamedTuple):
    """Slots write every result into the journal from now on."""


class WriteJournal(NamedTuple):
    """These rows are results after all."""

    rows: List[Row]


class StopSlots(NamedTuple):
    """SIGTERM to what runs, SIGKILL after the grace, microseconds. -> SlotsStopped"""

    grace: int


class Leave(NamedTuple):
    """When what was said is on its way."""
