"""How often the batch system is asked what is free: as seldom as the grid file allows, unless something waits on it, or
sweeps have nodes there, which others may want back.

A fingerprint of the queue shows whether somebody waits, for less than a measurement. Where the dialect has one, it is
taken at the fast pace; the cluster is measured at once when others' jobs have changed by it. Anything else that needs a
measurement waits until the budget has saved for one. In a sweep that is mostly our own Launchers, which begin and end
in bursts, and whose wrappers report that themselves. Measurements get a quarter of the budget, fingerprints the rest.
"""

from collections import deque
from typing import Deque, Dict, List, Optional

from koalapy_adapters.kcm.state.actions import SECOND

URGENT = SECOND
SOON = SECOND // 5
SOON_IN_OWN = SECOND // 50  # the same, of a queue that serves this user alone and on the nodes of an allocation
LAST_CALLS = 5  # of which the most expensive is the estimate for the next of its kind
PARTS = 4  # of what fingerprints could take, one is put by for the next measurement


class PollSchedule:
    """One call at a time; `poll` and `floor` in seconds. A batch system that fails is asked no faster than `poll`."""

    def __init__(self, poll: float, floor: float = 2.0, fingerprints: bool = False, own: bool = False) -> None:
        """`own`: the queue is an allocation's, where nobody else is to be spared."""
        self.urgent = False
        self._own = own
        self.bell = Debounce(SOON_IN_OWN if own else SOON)  # for what ends in the batch system
        self.scavenging = False  # Launchers hold nodes, or are to: no slower than the floor
        self._poll, self._floor = int(poll * SECOND), int(floor * SECOND)
        self._can_fingerprint = fingerprints  # whether the dialect knows how
        self._fingerprint: Optional[List[str]] = None  # what the last fingerprint saw
        self._unmeasured = False  # a fingerprint saw something else, or nothing at all
        self._budget = PollBudget(0)
        self._started_at: Optional[int] = None
        self._measured_at = 0
        self._running = False
        self._failed = False
        self._measures, self._fingerprints = _Prices(), _Prices()
        self._soon_at: Optional[int] = None

    def soon(self, now: int) -> None:
        """Something changed: measure within SOON; what else changes until then is seen by the same call."""
        if self._soon_at is None:
            self._soon_at = now + (SOON_IN_OWN if self._own else SOON)

    def due(self) -> Optional[int]:
        """When the next call may start; None while one runs."""
        if self._running:
            return None
        if self._started_at is None:
            return 0
        if self._unmeasured:
            return self._started_at
        if not self._fingerprinting():
            return max(self._wanted_at(), self._budget.even_at)
        return min(self._measure_due(), self._fingerprint_due(self._started_at))

    def start(self, now: int) -> bool:
        """A call begins. Whether it is to measure; else it is to take a fingerprint."""
        if self._started_at is None:
            self._budget = PollBudget(now)
        measures = (
            self._started_at is None or self._unmeasured or not self._fingerprinting() or now >= self._measure_due()
        )
        self._started_at, self._running = now, True
        if measures:
            self._measured_at, self._soon_at = now, None
        return measures

    def measured(self, cost: int, failed: bool) -> None:
        """It has ended; `cost` is its CPU time in microseconds, the commands' and the KCM's own."""
        if self._unmeasured and self._fingerprint is None and not failed:
            self._can_fingerprint = False  # that fails which nothing but fingerprints ask
        self._unmeasured, self._failed = False, failed
        self._ended(self._measures, cost)

    def fingerprinted(self, cost: int, seen: Optional[List[str]]) -> None:
        """The fingerprint has ended, and saw this; None: it failed. The first one has nothing to be compared with."""
        if self._fingerprint is None:
            self.soon(self._started_at or 0)
        self._unmeasured = seen is None or self._fingerprint not in (None, seen)
        self._fingerprint = seen
        self._ended(self._fingerprints, cost)

    def _ended(self, prices: "_Prices", cost: int) -> None:
        self._running = False
        prices.add(cost)
        self._budget.pay(self._started_at or 0, self._waiting(cost))

    def _waiting(self, cost: int) -> int:
        """Waiting that pays for this cost. The cost of scavenging includes the work of the batch system's servers."""
        if self._own:
            return 0
        return round(COST_FACTOR * MARGIN * cost * (SERVERS if self.scavenging else 1))

    def _fingerprinting(self) -> bool:
        return self._can_fingerprint and self.scavenging and not self._failed

    def _wanted_at(self) -> int:
        """When the next measurement is wanted, whether it can be paid or not."""
        hurries = [URGENT] * self.urgent + [self._floor] * (self.scavenging and not self._can_fingerprint)
        at = self._measured_at + (self._poll if self._failed else min([self._poll, *hurries]))
        return at if self._soon_at is None else min(at, self._soon_at)

    def _measure_due(self) -> int:
        """Between fingerprints, which go on after it."""
        return max(self._wanted_at(), self._budget.holds(self._put_by()))

    def _fingerprint_due(self, started_at: int) -> int:
        return max(started_at + self._floor, self._budget.puts_by(PARTS, self._measured_at, self._put_by()))

    def _put_by(self) -> int:
        """For a measurement, which is a look too: what it takes beyond a fingerprint."""
        return self._waiting(max(0, self._measures.dearest - self._fingerprints.dearest))


class _Prices:
    """Recent costs of one kind of call, in microseconds."""

    def __init__(self) -> None:
        self._costs: Deque[int] = deque(maxlen=LAST_CALLS)

    def add(self, cost: int) -> None:
        self._costs.append(cost)

    @property
    def dearest(self) -> int:
        return max(self._costs, default=0)


COST_FACTOR = 100  # waiting that pays for processor time, which so is a hundredth of one processor in the long run
SERVERS = 1.6  # to processor time that is seen, what it is with that of servers, which is not: docs/benches.md
MARGIN = 1.15  # to waiting, so that it is a hundredth of any minute too, a sweep's first one included: see PollBudget
SAVED = 3 * SECOND  # waiting that a budget holds at most


class PollBudget:
    """A token bucket. Waiting fills it, up to SAVED; a look takes what it costs in waiting, and may overdraw it.

    So what is taken within any time is at most that time, SAVED, and what the last look overdraws. In a minute
    that may be 1.15 minutes of waiting: 60 s, 3 s and 6 s. These 6 s pay for a fingerprint and a measurement
    after it, of 32 ms of processor time together, as it is seen.
    """

    def __init__(self, now: int) -> None:
        """Empty."""
        self.even_at = now  # when the account is balanced

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


class Debounce:
    """Passed on at once, and once more after SOON for all triggers meanwhile: most of a thousand ends are no news."""

    def __init__(self, soon: int = SOON) -> None:
        self._soon = soon
        self._quiet_until = 0
        self._rang = False  # and was not passed on

    def expire(self, now: int) -> bool:
        """Return whether the request is passed on now."""
        self._rang = now < self._quiet_until
        if not self._rang:
            self._quiet_until = now + self._soon
        return not self._rang

    def due(self) -> Optional[int]:
        """When what was not passed on is to be."""
        return self._quiet_until if self._rang else None


FIRST = SECOND // 20  # between the first two checks
GROWTH = 3, 2  # of what lies between two, from each to the next
LULL = 2 * SECOND  # with nobody who waits, after which it begins with the first again


class CancelStatusSchedule:
    """One check at a time, of all who wait for it by then. `own`: see PollSchedule."""

    def __init__(self, own: bool = False) -> None:
        self._own = own
        self._waiting: Dict[str, None] = {}  # tags, in order
        self._running = False
        self._ended_at = self._gap = 0

    def want(self, now: int, tag: str) -> None:
        """The next one is to ask about this attempt too."""
        if not self._waiting and not self._running and now - self._ended_at >= LULL:
            self._gap = 0
        self._waiting[tag] = None

    def due(self) -> Optional[int]:
        """When the next one may begin; None while one runs, or nobody waits."""
        return self._ended_at + self._gap if self._waiting and not self._running else None

    def take(self) -> List[str]:
        """The tags of all who wait; from now on nobody does."""
        tags = list(self._waiting)
        self._waiting.clear()
        return tags

    def begin(self) -> None:
        self._running = True

    def finish(self, now: int, cost: int) -> None:
        """It has ended; `cost` is its CPU time in microseconds, which decides how seldom they become in the end."""
        more, less = GROWTH
        self._gap = min(max(FIRST, self._gap * more // less), max(URGENT, COST_FACTOR * cost))
        if self._own:
            self._gap = SOON_IN_OWN
        self._running, self._ended_at = False, now
