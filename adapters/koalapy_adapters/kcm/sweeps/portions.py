"""How much of a sweep is given to whom, and how much of it is kept in store: pure arithmetic.

What is in store is to last until koalad has fed again, so that no slot waits for the wide area; but what lies here is
out of reach of other clusters, so it is no more than that.
"""

from typing import List, Tuple

from koalapy_adapters.kcm.state.inventory import Launcher, Supply

IN_STORE = 2.0  # seconds of the measured rate, beyond a round trip
LONG = 10.0  # seconds that a parameter may take for there to be one in store for every slot
MOST = 10000  # in store


def portions(supply: Supply) -> List[Tuple[Launcher, int]]:
    """What each hungry Launcher is to be given of the credit, who has waited longest first.

    No more than its share by slots of all that there is, in store and in hands, so that near the end of a sweep none
    sits on what others could run; but its slots are filled.
    """
    hungry = supply.hungry
    if not hungry or not supply.credit:
        return []
    takers = [each for each in supply.launchers.values() if _takes(each) and (each.wanted or each.hands)]
    there = len(supply.credit) + sum(len(each.hands) for each in takers)
    slots = sum(_slots(each) for each in takers)
    found, left = [], len(supply.credit)
    for launcher in hungry:
        share = max(_slots(launcher), -(-there * _slots(launcher) // slots))
        most = min(launcher.wanted, left, share - len(launcher.hands))
        if most > 0:
            left -= most
            found.append((launcher, most))
    return found


def in_store(supply: Supply, now: int) -> int:
    """How many numbers the credit is to have beyond what was pulled."""
    slots = sum(_slots(each) for each in supply.launchers.values() if _takes(each))
    if not slots or now < supply.modest_until:
        return 0
    window = IN_STORE + supply.trip.seconds
    if not supply.rate.measured:
        age = max(window, supply.rate.age(now))  # nothing has ended for so long: it cannot be going fast
        return max(1, int(slots * window / age))
    rate = supply.rate.per_second(now)
    least = slots if rate * LONG >= slots else 1
    return min(MOST, max(least, int(rate * window) + 1))


def _takes(each: Launcher) -> bool:
    return each.here and not each.still


def _slots(launcher: Launcher) -> int:
    return max(1, launcher.slots, launcher.running)
