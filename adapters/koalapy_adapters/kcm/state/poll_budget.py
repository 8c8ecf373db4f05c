"""What looks at the batch system may cost: an account of processor time, by which a look is paid for in waiting."""

from koalapy_adapters.kcm.state.actions import SECOND

COST_FACTOR = 100  # waiting that pays for processor time, which so is a hundredth of one processor in the long run
SERVERS = 1.6  # to processor time that is seen, what it is with that of servers, which is not: docs/benches.md
MARGIN = 1.15  # to waiting while sweeps have nodes, so that it is a hundredth of any minute too: see Account
SAVED = 3 * SECOND  # waiting that an account holds at most


class PollBudget:
    """A token bucket. Waiting fills it, up to SAVED; a look takes what it costs in waiting, and may overdraw it.

    So what is taken within any time is at most that time, SAVED, and what the last look overdraws. In a minute of a
    sweep that may be 1.15 minutes of waiting: 60 s, 3 s and 6 s, which is what a fingerprint and a measurement after it
    may take, of 32 ms of processor time together, as it is seen.
    """

    def __init__(self, now: int) -> None:
        """Empty."""
        self.even_at = now  # when nothing is owed or saved

    def pay(self, now: int, waiting: int) -> None:
        """Microseconds, for a look that began now."""
        self.even_at = max(self.even_at, now - SAVED) + waiting

    def holds(self, waiting: int) -> int:
        """From when on it holds this much, or SAVED."""
        return self.even_at + min(waiting, SAVED)

    def puts_by(self, parts: int, since: int, waiting: int) -> int:
        """From when on it holds one of so many parts of the time since then, or this much if that is sooner."""
        by_parts = (parts * self.even_at - since) // (parts - 1)
        return max(self.even_at, min(by_parts, self.holds(waiting)))
