"""Which of a runner's Launchers on a cluster go first when it has to give up nodes there (CCGrid 2009, section 5.4).

A preemption policy is `(launchers) -> launchers`, all of them, the first to go first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from koalapy.model.counts import counted_as
from koalapy.model.units import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A Launcher, by its job's number. `running`: its parameters that run; `pulled_at`: when the newest of them began.

    Both are what was last heard of it: 0 and None before it has begun any. `started_at`: when its node was allocated.
    """

    launcher: int
    running: int
    pulled_at: Instant | None = None
    started_at: Instant | None = None


PreemptionPolicy = Callable[[Sequence[Candidate]], Sequence[Candidate]]


def newest_first(launchers: Sequence[Candidate]) -> Sequence[Candidate]:
    """The paper's: whoever pulled last goes first, so that less is lost; those that run nothing before all others."""
    return sorted(launchers, key=lambda each: (each.running > 0, -(each.pulled_at or 0), -each.launcher))


def oldest_first(launchers: Sequence[Candidate]) -> Sequence[Candidate]:
    """Whoever pulled first: for programs that write checkpoints, and lose no more for having run longer."""
    return sorted(launchers, key=lambda each: (each.running > 0, each.pulled_at or 0, each.launcher))


def fewest_running(launchers: Sequence[Candidate]) -> Sequence[Candidate]:
    """Whoever runs fewest parameters, the newest first among equals: for nodes of different sizes."""
    return sorted(launchers, key=lambda each: (each.running, -(each.pulled_at or 0), -each.launcher))


def order_error(answer: Sequence[Candidate], launchers: Sequence[Candidate]) -> str:
    """What is wrong with an answer, as the end of a sentence; '' if nothing is."""
    named = [each.launcher for each in answer]
    if sorted(named) != sorted(each.launcher for each in launchers):
        return f"it orders {counted_as(len(named), 'Launcher')}, not each of the {len(launchers)} once"
    return ""
