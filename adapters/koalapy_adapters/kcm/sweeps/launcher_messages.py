"""What Launchers say, and what follows from it. A Launcher that is not connected keeps what it holds."""

from typing import Any, Callable, Dict, List

from koalapy_adapters.kcm.state.actions import LauncherSaid
from koalapy_adapters.kcm.state.attempt import Attempt, Core
from koalapy_adapters.kcm.state.inventory import Launcher, Supply
from koalapy_adapters.kcm.state.ranges import each
from koalapy_adapters.kcm.sweeps import distribute, results
from koalapy_adapters.kcm.sweeps.portions import in_store
from koalapy_adapters.messages import (
    Back,
    Doing,
    Ended,
    Holding,
    Kept,
    LauncherSuspected,
    MessageError,
    Pull,
    Suspect,
    Trusted,
    from_json,
)


def said(core: Core, now: int, attempt: Attempt, event: LauncherSaid) -> List[Any]:
    """What is no message of a Launcher is passed over: of another release, it means nothing to this one."""
    try:
        message = from_json(event.body)
    except MessageError:
        return []
    if type(message) not in _HEARD:
        return []
    launcher = core.sweeps.launcher(attempt.tag)
    supply = core.sweeps.supply_of(launcher)
    if supply is None:
        return _too_early(core, now, launcher, message)
    return understand(core, now, supply, launcher, message) + distribute.move(core, now, supply)


def understand(core: Core, now: int, supply: Supply, launcher: Launcher, message: Any) -> List[Any]:
    """What one message changes; who is given what then is another matter."""
    return _HEARD[type(message)](core, now, supply, launcher, message)


def parted(core: Core, attempt: Attempt) -> None:
    """Its wrapper's connection is gone, or is another."""
    launcher = core.sweeps.launchers.get(attempt.tag)
    if launcher is not None:
        launcher.part()


def _too_early(core: Core, now: int, launcher: Launcher, message: Any) -> List[Any]:
    """Its sweep is unknown, or has not been fed yet: koalad is asked to, and it is heard then."""
    launcher.early.append(message)
    supply = core.sweeps.supplies.get(launcher.sweep)
    if supply is None or not isinstance(message, Pull):
        return []
    launcher.wanted = message.wanted
    return distribute.move(core, now, supply)


def _holding(core: Core, now: int, supply: Supply, launcher: Launcher, message: Holding) -> List[Any]:
    launcher.here = launcher.repeating = True
    launcher.slots = message.slots or launcher.slots
    launcher.wanted = launcher.given = 0
    holds = frozenset(each(message.ranges))
    launcher.unsaid = {number for number in launcher.hands if number not in holds}
    for number in each(message.ranges):
        supply.claim(launcher, number)
    actions: List[Any] = [results.say(launcher.tag, Kept(launcher.kept))] if launcher.kept else []
    return actions + ([results.say(launcher.tag, Trusted())] if launcher.trusted else [])


def _pull(core: Core, now: int, supply: Supply, launcher: Launcher, message: Pull) -> List[Any]:
    _all_repeated(supply, launcher)
    launcher.wanted = max(0, message.wanted - (launcher.given - message.given)) if launcher.here else 0
    return []


def _all_repeated(supply: Supply, launcher: Launcher) -> None:
    """What it neither holds nor has done was lost on its way to it."""
    if not launcher.repeating:
        return
    launcher.repeating = False
    supply.put_first(supply.returned(launcher, [number for number in launcher.hands if number in launcher.unsaid]))
    supply.place(launcher)


def _ended(core: Core, now: int, supply: Supply, launcher: Launcher, message: Ended) -> List[Any]:
    if message.number <= launcher.heard:
        return []  # repeated; it is told when koalad has it
    launcher.heard = message.number
    attempt = core.attempt(now, launcher.tag)
    rows = results.mapped(attempt, message.results)
    supply.rate.add(now, len(rows))
    return results.gather(core, now, launcher, supply, rows)


def _back(core: Core, now: int, supply: Supply, launcher: Launcher, message: Back) -> List[Any]:
    """What had not begun others here may run, if they could use it; the rest is for koalad to place."""
    _all_repeated(supply, launcher)
    begun = frozenset(each(message.begun))
    numbers = supply.returned(launcher, each(message.ranges))
    idle = [number for number in numbers if number not in begun]
    room = (
        max(0, supply.unmet + in_store(supply, now) - len(supply.credit))
        if distribute.lives_beside(core, supply, launcher)
        else 0
    )
    supply.put_first(idle[:room])
    leaving = [number for number in numbers if number in begun] + idle[room:]
    return results.give_back(core, now, supply, sorted(leaving), begun) if leaving else []


def _doing(core: Core, now: int, supply: Supply, launcher: Launcher, message: Doing) -> List[Any]:
    launcher.running = message.running
    results.seen(core, now, launcher, message.newest_at + core.attempt(now, launcher.tag).offset)
    return []


def _suspect(core: Core, now: int, supply: Supply, launcher: Launcher, message: Suspect) -> List[Any]:
    if launcher.trusted:
        return [results.say(launcher.tag, Trusted())]
    if launcher.suspected:
        return []
    launcher.suspected = True
    return core.outbox.put(now, LauncherSuspected(launcher.tag, message.host))


_HEARD: Dict[type, Callable[[Core, int, Supply, Launcher, Any], List[Any]]] = {
    Holding: _holding,
    Pull: _pull,
    Ended: _ended,
    Back: _back,
    Doing: _doing,
    Suspect: _suspect,
}
