"""The replay of a journal: a copy of the engine handles the same events, and its decisions are compared."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import zip_longest
from typing import Any, NamedTuple

from koalapy.journal.journal import Batch, JournalState
from koalapy.journal.secrets import HIDDEN, Secrets
from koalapy.journal.state import copy_of
from koalapy.model.units import Instant


class Difference(NamedTuple):
    """The first difference. `batch` counts from 1; `expected` is in the journal, and `got` is the replay's."""

    batch: int
    now: Instant
    expected: str
    got: str


class Replayed(NamedTuple):
    """The result of a replay: the numbers of batches, events, commands and hints (`words`) that were replayed.

    `failure`: how the last batch failed in the replay as in the journal, '' if none did.
    """

    batches: int
    events: int
    commands: int
    words: int
    failure: str = ""
    difference: Difference | None = None


def replay(taken: JournalState, replaying: Callable[[int], None] = lambda batch: None) -> Replayed:
    """Replay the journal up to the first difference. `replaying` is called with the number of each batch, before it."""
    engine, batches = copy_of(taken.start), taken.batches
    events = commands = words = 0
    for number, batch in enumerate(batches, start=1):
        replaying(number)
        failure = ""
        try:
            step = engine.handle(batch.now, batch.events)
            got: list[Any] | None = [*step.commands, *step.hints]
        except Exception as error:
            failure, got = f"{type(error).__name__}: {error}", None
        engine.next_wakeup()
        found = _difference(number, batch, got, failure, taken.error)
        if found is not None or got is None or batch.commands is None:
            return Replayed(number, events, commands, words, failure if found is None else "", found)
        events, commands, words = events + len(batch.events), commands + len(batch.commands), words + len(batch.hints)
    return Replayed(len(batches), events, commands, words)


def _difference(number: int, batch: Batch, got: list[Any] | None, failure: str, error: str) -> Difference | None:
    if batch.commands is None or got is None:
        as_there = batch.commands is None and got is None and failure.partition(":")[0] == error.partition(":")[0]
        if as_there:
            return None
        expected = (
            f"the engine fails: {error}" if batch.commands is None else _as_lines([*batch.commands, *batch.hints])
        )
        return Difference(
            number, batch.now, expected, _as_lines(got) if got is not None else f"the engine fails: {failure}"
        )
    for one, other in zip_longest(map(_plain, [*batch.commands, *batch.hints]), map(_plain, got)):
        if one != other:
            return Difference(number, batch.now, one or "nothing more", other or "nothing more")
    return None


def _as_lines(values: list[Any]) -> str:
    return "; ".join(map(_plain, values)) or "nothing"


_NO_SECRETS = Secrets()


def _plain(value: Any, name: str = "") -> str:
    """Return a value as `SubmitAttempt(cluster='a', ...)`, with environments and secrets hidden.

    The texts of a journal are hidden already. What the engine derives from them is hidden again, so that it compares
    equal.
    """
    if name == "environment" and isinstance(value, tuple):
        return str({each[0]: HIDDEN for each in value})
    if is_dataclass(value) and not isinstance(value, type):
        shown = ", ".join(f"{each.name}={_plain(getattr(value, each.name), each.name)}" for each in fields(value))
        return f"{type(value).__name__}({shown})"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return "(" + ", ".join(map(_plain, value)) + ")"
    return repr(_NO_SECRETS.hide(value)) if isinstance(value, str) else str(value)
