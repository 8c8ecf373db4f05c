"""The use of processors between users and sites, in processor-microseconds."""

from collections import Counter

from koalapy.model.units import Instant


class Usage:
    """The processor time of this site's users, and of each neighbour's link, in processor-microseconds.

    `by_user`: of this site's users, on any site's processors. `lent`, `borrowed`: over each neighbour's link.
    """

    def __init__(self) -> None:
        self.by_user: Counter[str] = Counter()
        self.lent: Counter[str] = Counter()
        self.borrowed: Counter[str] = Counter()

    def charge(
        self, user: str, sender: str | None, target: str | None, processors: int, since: Instant, now: Instant
    ) -> None:
        """Charge for a lease that has ended, whether it was used or not (section 4.3, on cancelling)."""
        amount = processors * (now - since)
        if sender is None:
            self.by_user[user] += amount
        else:
            self.lent[sender] += amount
        if target is not None:
            self.borrowed[target] += amount
