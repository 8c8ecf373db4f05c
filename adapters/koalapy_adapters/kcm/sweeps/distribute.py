"""Numbers given to those who pull, and more of them asked for in time; what nobody is left to run goes back.

What is in store lasts until koalad has fed again, so that no slot waits for the wide area. It is no more than that:
what lies here is out of reach of other clusters.
"""

from typing import Any, List, Optional, Tuple

from koalapy_adapters.kcm.state.attempt import Core, Stage
from koalapy_adapters.kcm.state.inventory import UNUSED, Inventory, Launcher
from koalapy_adapters.kcm.sweeps import results
from koalapy_adapters.messages.kcm import ParametersWanted
from koalapy_adapters.messages.launcher import FeedParameters

MOST_WANTED = 20000  # numbers that are asked for at a time
MOST_IN_STORE = 10000  # numbers beyond what was pulled
IN_STORE = 2.0  # seconds of the measured rate, beyond a round trip
LONG = 10.0  # seconds that a parameter may take for there to be one in store for every slot


def move(core: Core, now: int, inventory: Inventory) -> List[Any]:
    """Give what there is to those who pull, and see that more comes in time."""
    inventory.add_unclaimed()
    actions = _serve(now, inventory) + _ask(core, now, inventory) + _watch_idle(core, now, inventory)
    core.sweeps.wait_for_inventory(inventory)
    return actions


def _serve(now: int, inventory: Inventory) -> List[Any]:
    actions = []
    for launcher, most in portions(inventory):
        ranges = inventory.give(launcher, most)
        launcher.wanted -= most
        launcher.given += most
        inventory.launchers.move_to_end(launcher.tag)
        inventory.rate.begin(now)
        actions.append(results.to_launcher(launcher.tag, FeedParameters(ranges)))
    return actions


def _ask(core: Core, now: int, inventory: Inventory) -> List[Any]:
    """One request at a time, unless more wait for work than it was for; none while a quarter of the store would do."""
    stock, unmet = in_store(inventory, now), inventory.unmet
    need = min(MOST_WANTED, unmet + stock - len(inventory.credit))
    if inventory.asked:
        overdue = inventory.ask_at is not None and inventory.ask_at <= now
        if need <= 0 and (overdue or not any(launcher.here for launcher in inventory.launchers.values())):
            return _request(core, now, inventory, 0)
        again = need > 0 and (overdue or unmet > inventory.asked)
        return _request(core, now, inventory, need) if again else []
    enough = need <= 0 or (need <= stock // 4 and not unmet)
    return [] if enough else _request(core, now, inventory, need)


def _request(core: Core, now: int, inventory: Inventory, wanted: int) -> List[Any]:
    if inventory.asked:
        inventory.trip.given_up()
    if wanted:
        inventory.trip.asked(now)
    inventory.asked = wanted
    inventory.ask_at = inventory.ask_backoff.after(now) if wanted else None
    return core.event_queue.put(now, ParametersWanted(inventory.sweep, wanted))


def _watch_idle(core: Core, now: int, inventory: Inventory) -> List[Any]:
    """Credit that nobody is left to run goes back."""
    if not inventory.credit or lives_beside(core, inventory):
        inventory.idle_at = None
    elif inventory.idle_at is None:
        inventory.idle_at = now + UNUSED
    elif inventory.idle_at <= now:
        inventory.idle_at = None
        return results.give_back(core, now, inventory, inventory.take_last(len(inventory.credit)))
    return []


def lives_beside(core: Core, inventory: Inventory, launcher: Optional[Launcher] = None) -> bool:
    """Return whether another Launcher of the sweep lives here, or will."""
    return any(_lives(core, each) for each in inventory.launchers.values() if each is not launcher)


def _lives(core: Core, launcher: Launcher) -> bool:
    attempt = core.attempts.get(launcher.tag)
    return attempt is not None and not launcher.finished and not launcher.ending and attempt.stage is not Stage.OUT


def portions(inventory: Inventory) -> List[Tuple[Launcher, int]]:
    """Divide the credit among the Launchers that wait for work, the longest waiting first.

    Each gets at most its share, by slots, of all numbers here, held or not. Near the end of a sweep, no Launcher then
    holds numbers that others could run; but its slots are filled.
    """
    waiting_for_work = inventory.waiting_for_work
    if not waiting_for_work or not inventory.credit:
        return []
    takers = [each for each in inventory.launchers.values() if _takes(each) and (each.wanted or each.held)]
    there = len(inventory.credit) + sum(len(each.held) for each in takers)
    slots = sum(_slots(each) for each in takers)
    found, left = [], len(inventory.credit)
    for launcher in waiting_for_work:
        share = max(_slots(launcher), -(-there * _slots(launcher) // slots))
        most = min(launcher.wanted, left, share - len(launcher.held))
        if most > 0:
            left -= most
            found.append((launcher, most))
    return found


def in_store(inventory: Inventory, now: int) -> int:
    """How many numbers the credit is to have beyond what was pulled."""
    slots = sum(_slots(each) for each in inventory.launchers.values() if _takes(each))
    if not slots or now < inventory.no_prefetch_until:
        return 0
    window = IN_STORE + inventory.trip.seconds
    if not inventory.rate.measured:
        age = max(window, inventory.rate.age(now))  # nothing has ended for so long: it cannot be going fast
        return max(1, int(slots * window / age))
    rate = inventory.rate.per_second(now)
    least = slots if rate * LONG >= slots else 1
    return min(MOST_IN_STORE, max(least, int(rate * window) + 1))


def _takes(each: Launcher) -> bool:
    return each.here and not each.still


def _slots(launcher: Launcher) -> int:
    return max(1, launcher.slots, launcher.running)
