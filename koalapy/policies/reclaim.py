"""The order in which a runner gives up its Launchers on a cluster (CCGrid 2009, section 5.4).

A reclaim policy is `(launchers) -> launchers`: all of them, the first to give up first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from koalapy.model.counts import counted_as
from koalapy.model.units import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A Launcher, by its number.

    `running`: its running parameters; `pulled_at`: when the newest of them began. Both are as last reported: 0 and None
    before its first parameter. `started_at`: when its node was allocated.
    """

    launcher: int
    running: int
    pulled_at: Instant | None = None
    started_at: Instant | None = None


ReclaimPolicy = Callable[[Sequence[Candidate]], Sequence[Candidate]]


def newest_first(launchers: Sequence[Candidate]) -> Sequence[Candidate]:
    """Put the Launcher with the newest parameter first, so that less work is lost; idle ones come before all.

    This is the order of the paper.
    """
    return sorted(launchers, key=lambda each: (each.running > 0, -(each.pulled_at or 0), -each.launcher))


def oldest_first(launchers: Sequence[Candidate]) -> Sequence[Candidate]:
    """Put the Launcher with the oldest parameter first; idle ones come before all.

    This suits programs that write checkpoints, which lose no more if they have run for long.
    """
    return sorted(launchers, key=lambda each: (each.running > 0, each.pulled_at or 0, each.launcher))


def fewest_running(launchers: Sequence[Candidate]) -> Sequence[Candidate]:
    """Put the Launcher with the fewest running parameters first, the newest among equals.

    This suits nodes of different sizes.
    """
    return sorted(launchers, key=lambda each: (each.running, -(each.pulled_at or 0), -each.launcher))


def order_error(answer: Sequence[Candidate], launchers: Sequence[Candidate]) -> str:
    """Return the error in an answer, as the end of a sentence; '' if it is valid."""
    named = [each.launcher for each in answer]
    if sorted(named) != sorted(each.launcher for each in launchers):
        return f"it orders {counted_as(len(named), 'Launcher')}, not each of the {len(launchers)} once"
    return ""
