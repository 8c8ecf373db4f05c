"""All that the KCM knows of sweeps: the parameters of each on this cluster, and their holders.

Each number is in one place only. It comes with FeedSweep and leaves with ParametersEnded or ParametersReturned. In
between it is in the credit, which the KCM distributes; or one Launcher holds it. After a feed that began anew it may be
unaccounted for: a Launcher that has not reported yet may hold it, or may have run it.
"""

import math
from collections import OrderedDict, deque
from typing import Any, Deque, Dict, Iterable, List, NamedTuple, Optional, Set, Tuple

from koalapy_adapters.kcm.state.actions import SECOND
from koalapy_adapters.kcm.state.timers import Backoff, Timers
from koalapy_adapters.ranges import Ranges, numbers_of, ranges_of

UNUSED = SECOND  # after which credit that no Launcher is there for goes back
_MEMORY = 2.0  # seconds after which what happened counts for a third
_YOUNG = 0.1  # seconds, below which a rate would be chance
_FIRST_TRIP = 0.1  # seconds


class Launcher:
    """One Launcher, as far as this KCM knows it."""

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self.sweep = 0  # until somebody has reported it
        self.slots = 0
        # what it has, and requests
        self.here = False  # it has reported over this connection what it holds
        self.still = False  # suspended: what it pulled others may run meanwhile
        self.placed = False  # all that it holds is in `held`
        self.held: "OrderedDict[int, None]" = OrderedDict()
        self.unreported: Set[int] = set()  # given to it, and not in its report: it repeats what it has done
        self.repeating = False
        self.wanted = 0
        self.given = 0  # over this connection
        self.early: List[Any] = []  # its report before its sweep was fed for the first time
        # what it has done
        self.results: List[List[Any]] = []  # not reported to koalad yet
        self.results_at: Optional[int] = None
        self.newest_results = 0  # number of its newest ResultsReported
        self.kept = 0  # up to this one koalad has them
        # how it does
        self.running = 0
        self.trusted = self.suspected = False
        # its end
        self.ends: List[Any] = []  # what is to be reported to koalad of its end, when its journal has been read
        self.forgets: List[int] = []  # ids of Forgets that wait for that too
        self.reading = False
        self.read_at: Optional[int] = None
        self.read_backoff = Backoff(SECOND, 30 * SECOND)
        self.finished = False  # all has been reported to koalad, or nothing of it will be

    @property
    def ending(self) -> bool:
        """Return whether the Launcher has ended, and that is not reported yet."""
        return not self.finished and bool(self.ends or self.forgets)

    def part(self) -> None:
        """Its connection is gone: its reports count no longer, but for what it holds."""
        self.here = self.repeating = False
        self.wanted = self.given = 0
        self.unreported.clear()
        self.early.clear()


class Inventory:
    """One sweep's."""

    def __init__(self, sweep: int) -> None:
        self.sweep = sweep
        self.begun = False  # by the first feed that stated all that is out
        self.launchers: "OrderedDict[str, Launcher]" = OrderedDict()  # who was given least lately first
        self.credit: "OrderedDict[int, None]" = OrderedDict()
        self.unaccounted: Set[int] = set()
        self.awaited: Dict[str, None] = {}  # tags of those that may hold or have done what is unplaced
        self.unacknowledged: Set[int] = set()  # done or back: reported to koalad, which has not acknowledged it
        self.rate = Rate()
        self.trip = RoundTrip()
        self.asked = 0  # for so many more, which have not come
        self.ask_at: Optional[int] = None  # again, if Launchers wait for work then
        self.ask_backoff = Backoff(SECOND // 2, 10 * SECOND)
        self.no_prefetch_until = 0  # koalad has asked for numbers back: keep none in store
        self.idle_at: Optional[int] = None  # when the credit goes back, if there is no Launcher until then
        self._holder: Dict[int, Launcher] = {}

    def feed(self, ranges: Ranges) -> int:
        """Numbers that are ours to give; how many are new."""
        new = [number for number in numbers_of(ranges) if not self._is_out(number)]
        self.credit.update((number, None) for number in new)
        return len(new)

    def feed_anew(self, ranges: Ranges) -> None:
        """All that is out, of which we know a part; the rest is unplaced."""
        self.unaccounted.update(number for number in numbers_of(ranges) if not self._is_out(number))

    def claim(self, launcher: Launcher, number: int) -> bool:
        """The Launcher reports that it holds the number. False where it is another's, or not out at all."""
        if self._holder.get(number) is launcher:
            return True
        if number in self.unaccounted:
            self.unaccounted.discard(number)
        elif number in self.credit:
            del self.credit[number]
        else:
            return False
        self._grasp(launcher, number)
        return True

    def give(self, launcher: Launcher, most: int) -> Ranges:
        """The first of the credit, into its hands."""
        numbers = [self.credit.popitem(last=False)[0] for _ in range(min(most, len(self.credit)))]
        for number in numbers:
            self._grasp(launcher, number)
        return ranges_of(numbers)

    def returned(self, launcher: Launcher, numbers: Iterable[int]) -> List[int]:
        """Take these numbers from the Launcher, those that it held; the caller must put them somewhere."""
        mine = [number for number in numbers if self._holder.get(number) is launcher]
        for number in mine:
            self._drop(number)
        return mine

    def done(self, number: int) -> None:
        """Wherever it was."""
        if number in self._holder:
            self._drop(number)
        self.credit.pop(number, None)
        self.unaccounted.discard(number)
        self.unacknowledged.add(number)

    def put_first(self, numbers: Iterable[int]) -> None:
        """Into the credit, before all others: they have waited already."""
        for number in reversed(list(numbers)):
            self.credit[number] = None
            self.credit.move_to_end(number, last=False)

    def take_last(self, most: int) -> List[int]:
        """The last of the credit, at most so many; they must go somewhere."""
        numbers = [self.credit.popitem()[0] for _ in range(max(0, min(most, len(self.credit))))]
        return numbers[::-1]

    def place(self, launcher: Launcher) -> None:
        """All that it holds is known."""
        launcher.placed = True
        self.awaited.pop(launcher.tag, None)

    def add_unclaimed(self) -> None:
        """Add to the credit what no Launcher holds, once it is known of all Launchers what they hold."""
        if self.begun and not self.awaited and self.unaccounted:
            self.put_first(sorted(self.unaccounted))
            self.unaccounted.clear()

    @property
    def waiting_for_work(self) -> List[Launcher]:
        """Launchers that want more, the one that has waited longest first."""
        return [each for each in self.launchers.values() if each.wanted > 0 and not each.still]

    @property
    def unmet(self) -> int:
        return sum(launcher.wanted for launcher in self.launchers.values() if not launcher.still)

    @property
    def is_empty(self) -> bool:
        """Return whether the inventory has no Launcher, and no number of it is to be reported or acknowledged."""
        return not (
            self.launchers or self.credit or self.unaccounted or self.awaited or self.unacknowledged or self._holder
        )

    def _is_out(self, number: int) -> bool:
        return (
            number in self._holder
            or number in self.credit
            or number in self.unaccounted
            or number in self.unacknowledged
        )

    def _grasp(self, launcher: Launcher, number: int) -> None:
        launcher.held[number] = None
        self._holder[number] = launcher

    def _drop(self, number: int) -> None:
        launcher = self._holder.pop(number)
        del launcher.held[number]
        launcher.unreported.discard(number)


class Rate:
    """A mean over the last seconds, in which what is older counts less. It begins with the first `begin`."""

    def __init__(self) -> None:
        self._weight = 0.0
        self._at: Optional[int] = None
        self._since: Optional[int] = None

    def begin(self, now: int) -> None:
        """From now on something may end."""
        if self._since is None:
            self._since = self._at = now

    def add(self, now: int, count: int) -> None:
        self.begin(now)
        self._weight = self._faded(now) + count
        self._at = now

    @property
    def measured(self) -> bool:
        """Return whether anything has ended yet."""
        return self._weight > 0.0

    def per_second(self, now: int) -> float:
        age = max(_YOUNG, self.age(now))
        return self._faded(now) / (_MEMORY * (1.0 - math.exp(-age / _MEMORY)))

    def age(self, now: int) -> float:
        """Seconds since `begin`; 0 before."""
        return 0.0 if self._since is None else max(0, now - self._since) / SECOND

    def _faded(self, now: int) -> float:
        if self._at is None:
            return 0.0
        return self._weight * math.exp(-max(0, now - self._at) / SECOND / _MEMORY)


class RoundTrip:
    """How long it takes from asking koalad until it has fed, in seconds: the slower of late, for a queue may form."""

    def __init__(self) -> None:
        self.seconds = _FIRST_TRIP
        self._asked_at: Optional[int] = None

    def asked(self, now: int) -> None:
        if self._asked_at is None:
            self._asked_at = now

    def answered(self, now: int) -> None:
        if self._asked_at is not None:
            took, self._asked_at = max(0, now - self._asked_at) / SECOND, None
            self.seconds = max(took, 0.7 * self.seconds + 0.3 * took)

    def given_up(self) -> None:
        """koalad had nothing: how long that takes means nothing."""
        self._asked_at = None


class UnacknowledgedEvent(NamedTuple):
    """An event that took numbers away from here. `ended`: the number of the ResultsReported that it completes, or 0."""

    event: int
    inventory: Inventory
    numbers: List[int]
    tag: str = ""
    ended: int = 0


class Sweeps:
    """All sweeps with something here, by their ids, and their Launchers by tag."""

    def __init__(self) -> None:
        self.inventories: Dict[int, Inventory] = {}
        self.launchers: Dict[str, Launcher] = {}
        self.begun: Set[int] = set()  # sweeps that koalad fed here, and whose inventories were dropped since
        self.unacknowledged: Deque[UnacknowledgedEvent] = deque()  # not acknowledged yet, in order
        self.caught_up = False  # koalad has stated for every sweep what is out, since this KCM began
        self._mark: Optional[int] = None
        self.doing: Dict[str, Tuple[int, int]] = {}  # what LaunchersSeen is to report next
        self.seen_at: Optional[int] = None  # when it is to be sent
        self.quiet_until = 0  # no other one before
        self.timers = Timers()  # by tags, sweeps as text, and SEEN

    def inventory(self, sweep: int) -> Inventory:
        if sweep not in self.inventories:
            self.inventories[sweep] = Inventory(sweep)
            self.inventories[sweep].begun = sweep in self.begun
        return self.inventories[sweep]

    def launcher(self, tag: str) -> Launcher:
        if tag not in self.launchers:
            self.launchers[tag] = Launcher(tag)
        return self.launchers[tag]

    def inventory_of(self, launcher: Launcher) -> Optional[Inventory]:
        """Return the Launcher's inventory; None while its sweep is unknown or not fed: its messages must wait."""
        inventory = self.inventories.get(launcher.sweep)
        return inventory if inventory is not None and inventory.begun else None

    def join(self, tag: str, sweep: int) -> Launcher:
        """The Launcher, which is this sweep's."""
        launcher = self.launcher(tag)
        launcher.sweep = sweep
        self.inventory(sweep).launchers.setdefault(tag, launcher)
        return launcher

    def acknowledged(self, number: int, last: int) -> bool:
        """Return whether koalad has just caught up.

        `last`: the number of the newest event when this one was acknowledged.

        Its reports of sweeps follow on its being connected, and on the acknowledgements that it gives in one go with
        that; so it was sent before it could acknowledge what happened after one of these had come.
        """
        if self.caught_up:
            return False
        if self._mark is None:
            self._mark = last + 1
            return False
        self.caught_up = number >= self._mark
        return self.caught_up

    def wait_for_launcher(self, launcher: Launcher) -> None:
        """It may wait for another moment than before."""
        timers = (launcher.results_at, launcher.read_at)
        self.timers.set(launcher.tag, min((at for at in timers if at is not None), default=None))

    def wait_for_inventory(self, inventory: Inventory) -> None:
        timers = (inventory.ask_at, inventory.idle_at)
        self.timers.set(str(inventory.sweep), min((at for at in timers if at is not None), default=None))

    def drop(self, tag: str) -> None:
        """Forget a Launcher. The inventory of its sweep goes with its last Launcher, if it is empty."""
        launcher = self.launchers.pop(tag, None)
        self.doing.pop(tag, None)
        self.timers.set(tag, None)
        inventory = self.inventories.get(launcher.sweep) if launcher is not None else None
        if inventory is None:
            return
        inventory.launchers.pop(tag, None)
        if inventory.is_empty:
            del self.inventories[inventory.sweep]
            self.timers.set(str(inventory.sweep), None)
            if inventory.begun:
                self.begun.add(inventory.sweep)
