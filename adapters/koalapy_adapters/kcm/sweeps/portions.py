"""How much of a sweep is given to whom, and how much of it is kept in store: pure arithmetic.

What is in store is to last until koalad has fed again, so that no slot waits for the wide area; but what lies here is
out of reach of other clusters, so it is no more than that.
"""

from typing import List, Tuple

from koalapy_adapters.kcm.state.inventory import Inventory, Launcher

IN_STORE = 2.0  # seconds of the measured rate, beyond a round trip
LONG = 10.0  # seconds that a parameter may take for there to be one in store for every slot
MOST = 10000  # in store


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
    return min(MOST, max(least, int(rate * window) + 1))


def _takes(each: Launcher) -> bool:
    return each.here and not each.still


def _slots(launcher: Launcher) -> int:
    return max(1, launcher.slots, launcher.running)
