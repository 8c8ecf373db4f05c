"""Numbers given to those who pull, and more of them asked for in time; what nobody is left to run goes back."""

from typing import Any, List, Optional

from koalapy_adapters.kcm.state.actions import SECOND
from koalapy_adapters.kcm.state.attempt import Core, Stage
from koalapy_adapters.kcm.state.inventory import Launcher, Supply
from koalapy_adapters.kcm.sweeps import results
from koalapy_adapters.kcm.sweeps.portions import in_store, portions
from koalapy_adapters.messages import Give, ParametersWanted

UNUSED = SECOND  # after which credit that no Launcher is there for goes back
MOST = 20000  # that are asked for at a time


def move(core: Core, now: int, supply: Supply) -> List[Any]:
    """Give what there is to those who pull, and see that more comes in time."""
    supply.settle()
    actions = _serve(now, supply) + _ask(core, now, supply) + _watch_idle(core, now, supply)
    core.sweeps.wait_for_supply(supply)
    return actions


def _serve(now: int, supply: Supply) -> List[Any]:
    actions = []
    for launcher, most in portions(supply):
        ranges = supply.give(launcher, most)
        launcher.wanted -= most
        launcher.given += most
        supply.launchers.move_to_end(launcher.tag)
        supply.rate.begin(now)
        actions.append(results.say(launcher.tag, Give(ranges)))
    return actions


def _ask(core: Core, now: int, supply: Supply) -> List[Any]:
    """One question at a time, unless more are hungry than it was for; none while a quarter of the store would do."""
    stock, unmet = in_store(supply, now), supply.unmet
    need = min(MOST, unmet + stock - len(supply.credit))
    if supply.asked:
        overdue = supply.ask_at is not None and supply.ask_at <= now
        if need <= 0 and (overdue or not any(launcher.here for launcher in supply.launchers.values())):
            return _say_wanted(core, now, supply, 0)
        again = need > 0 and (overdue or unmet > supply.asked)
        return _say_wanted(core, now, supply, need) if again else []
    enough = need <= 0 or (need <= stock // 4 and not unmet)
    return [] if enough else _say_wanted(core, now, supply, need)


def _say_wanted(core: Core, now: int, supply: Supply, wanted: int) -> List[Any]:
    if supply.asked:
        supply.trip.given_up()
    if wanted:
        supply.trip.asked(now)
    supply.asked = wanted
    supply.ask_at = supply.ask_backoff.after(now) if wanted else None
    return core.outbox.put(now, ParametersWanted(supply.sweep, wanted))


def _watch_idle(core: Core, now: int, supply: Supply) -> List[Any]:
    """Credit that nobody is left to run goes back."""
    if not supply.credit or lives_beside(core, supply):
        supply.idle_at = None
    elif supply.idle_at is None:
        supply.idle_at = now + UNUSED
    elif supply.idle_at <= now:
        supply.idle_at = None
        return results.give_back(core, now, supply, supply.take_last(len(supply.credit)))
    return []


def lives_beside(core: Core, supply: Supply, launcher: Optional[Launcher] = None) -> bool:
    """Whether another Launcher of the sweep lives here, or will."""
    return any(_lives(core, each) for each in supply.launchers.values() if each is not launcher)


def _lives(core: Core, launcher: Launcher) -> bool:
    attempt = core.attempts.get(launcher.tag)
    return attempt is not None and not launcher.over and not launcher.ending and attempt.stage is not Stage.OUT
