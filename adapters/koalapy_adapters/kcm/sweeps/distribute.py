"""Numbers given to those who pull, and more of them asked for in time; what nobody is left to run goes back."""

from typing import Any, List, Optional

from koalapy_adapters.kcm.state.actions import SECOND
from koalapy_adapters.kcm.state.attempt import Core, Stage
from koalapy_adapters.kcm.state.inventory import Inventory, Launcher
from koalapy_adapters.kcm.sweeps import results
from koalapy_adapters.kcm.sweeps.portions import in_store, portions
from koalapy_adapters.messages import FeedParameters, ParametersWanted

UNUSED = SECOND  # after which credit that no Launcher is there for goes back
MOST = 20000  # that are asked for at a time


def move(core: Core, now: int, inventory: Inventory) -> List[Any]:
    """Give what there is to those who pull, and see that more comes in time."""
    inventory.settle()
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
    """One question at a time, unless more are hungry than it was for; none while a quarter of the store would do."""
    stock, unmet = in_store(inventory, now), inventory.unmet
    need = min(MOST, unmet + stock - len(inventory.credit))
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
    return core.outbox.put(now, ParametersWanted(inventory.sweep, wanted))


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
    """Whether another Launcher of the sweep lives here, or will."""
    return any(_lives(core, each) for each in inventory.launchers.values() if each is not launcher)


def _lives(core: Core, launcher: Launcher) -> bool:
    attempt = core.attempts.get(launcher.tag)
    return attempt is not None and not launcher.over and not launcher.ending and attempt.stage is not Stage.OUT
