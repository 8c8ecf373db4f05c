"""All that the KCM knows of sweeps: their supplies, their Launchers, and what koalad has yet to hear or acknowledge."""

from collections import deque
from typing import Deque, Dict, List, NamedTuple, Optional, Set, Tuple

from koalapy_adapters.kcm.state.inventory import Inventory, Launcher
from koalapy_adapters.kcm.state.timers import Timers


class UnacknowledgedEvent(NamedTuple):
    """An event that took numbers away from here. `ended`: the number of the ResultsReported that it completes, or 0."""

    event: int
    inventory: Inventory
    numbers: List[int]
    tag: str = ""
    ended: int = 0


class Sweeps:
    """By the sweep's id, and by the Launcher's tag."""

    def __init__(self) -> None:
        self.inventories: Dict[int, Inventory] = {}
        self.launchers: Dict[str, Launcher] = {}
        self.begun: Set[int] = set()  # sweeps that koalad fed here, and whose supplies were dropped since
        self.unacknowledged: Deque[UnacknowledgedEvent] = deque()  # not acknowledged yet, in order
        self.caught_up = False  # koalad has said of every sweep what is out, since this KCM began
        self._mark: Optional[int] = None
        self.doing: Dict[str, Tuple[int, int]] = {}  # what LaunchersSeen is to say next
        self.seen_at: Optional[int] = None  # when it is to be said
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
        """Whether koalad has just caught up. `last`: the number of the newest event when this one was acknowledged.

        What it says of sweeps follows on its being connected, and on the acknowledgements that it gives in one go with
        that; so it was said before it could acknowledge what happened after one of these had come.
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
        """Nothing more is to be heard of it. The supply of its sweep goes with its last Launcher, if nothing is out."""
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
