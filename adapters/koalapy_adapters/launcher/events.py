"""Events of the Launcher's machine, in the past tense, and its commands, in the imperative: plain values.

A row is a result as in messages.ParametersEnded. All instants are the node's clock.
"""

from typing import Any, List, NamedTuple

Row = List[Any]
NUMBER, STATUS, ENDING, STARTED_AT, ENDED_AT = 0, 1, 2, 5, 6  # fields of a row


# ---- events ----------------------------------------------------------------------------------------------------------


class Connected(NamedTuple):
    """The wrapper forwards messages to a KCM from now on."""


class Disconnected(NamedTuple):
    """The wrapper forwards nothing any more. The last messages may be lost."""


class Received(NamedTuple):
    """A message from the KCM: FeedParameters, ResultsCommitted or LauncherTrusted."""

    message: Any


class Finished(NamedTuple):
    """Slots have run these parameters. `loose`: failures during the trial, which are in no journal yet."""

    rows: List[Row]
    loose: List[Row]


class Looked(NamedTuple):
    """The number of parameters that run and that wait for a slot; the newest that runs began at `newest_at`."""

    running: int
    waiting: int
    newest_at: int


class TakenBack(NamedTuple):
    """No slot has taken these parameters from the queue, and none will."""

    numbers: List[int]


class SlotLost(NamedTuple):
    """A slot was killed. It had run parameter `number` since `started_at`, or none (0)."""

    slot: int
    number: int
    started_at: int


class SlotsStopped(NamedTuple):
    """All slots have ended on request. They were running the parameters `begun`."""

    begun: List[int]


class Signalled(NamedTuple):
    """The Launcher has received a signal to end."""


class Resumed(NamedTuple):
    """The batch system has resumed the suspended job, or the host has woken up after `slept` microseconds.

    The time of that sleep does not count towards the walltime.
    """

    slept: int = 0


# ---- commands --------------------------------------------------------------------------------------------------------


class Send(NamedTuple):
    """Send a message to the KCM."""

    message: Any


class Queue(NamedTuple):
    """Queue these parameters for the slots, in this order. Finished follows."""

    numbers: List[int]


class TakeBack(NamedTuple):
    """Take back the queued parameters that no slot has. TakenBack follows."""


class Look(NamedTuple):
    """Look at slots and queue. Looked follows."""


class EndTrial(NamedTuple):
    """Let the slots write every result into the journal from now on."""


class WriteJournal(NamedTuple):
    """Write these rows into the journal: they are results after all."""

    rows: List[Row]


class StopSlots(NamedTuple):
    """Send SIGTERM to what runs, and SIGKILL after `grace` microseconds. SlotsStopped follows."""

    grace: int


class Leave(NamedTuple):
    """Exit when the messages sent so far are on their way."""
