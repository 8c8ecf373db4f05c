"""Reactions to messages of Launchers. A Launcher that is not connected keeps what it holds."""

from typing import Any, Callable, Dict, List

from koalapy_adapters.kcm.state.actions import LauncherReported
from koalapy_adapters.kcm.state.attempt import Attempt, Core
from koalapy_adapters.kcm.state.inventory import Inventory, Launcher
from koalapy_adapters.kcm.sweeps import distribute, results
from koalapy_adapters.kcm.sweeps.distribute import in_store
from koalapy_adapters.messages import from_json
from koalapy_adapters.messages.fields import MessageError
from koalapy_adapters.messages.kcm import LauncherSuspected
from koalapy_adapters.messages.launcher import (
    LauncherTrusted,
    NodeSuspected,
    ParametersGivenUp,
    ParametersHeld,
    ProgressReported,
    PullParameters,
    ResultsCommitted,
    ResultsReported,
)
from koalapy_adapters.ranges import numbers_of


def received(core: Core, now: int, attempt: Attempt, event: LauncherReported) -> List[Any]:
    """React to a Launcher's message. An unknown message, of another release, is ignored."""
    try:
        message = from_json(event.body)
    except MessageError:
        return []
    if type(message) not in _REACTIONS:
        return []
    launcher = core.sweeps.launcher(attempt.tag)
    inventory = core.sweeps.inventory_of(launcher)
    if inventory is None:
        return _too_early(core, now, launcher, message)
    return understand(core, now, inventory, launcher, message) + distribute.move(core, now, inventory)


def understand(core: Core, now: int, inventory: Inventory, launcher: Launcher, message: Any) -> List[Any]:
    """Apply one message to the inventory; the distribution follows separately."""
    return _REACTIONS[type(message)](core, now, inventory, launcher, message)


def parted(core: Core, attempt: Attempt) -> None:
    """Its wrapper's connection is gone, or is another."""
    launcher = core.sweeps.launchers.get(attempt.tag)
    if launcher is not None:
        launcher.part()


def _too_early(core: Core, now: int, launcher: Launcher, message: Any) -> List[Any]:
    """Its sweep is unknown, or has not been fed yet: koalad is asked to, and the report is processed then."""
    launcher.early.append(message)
    inventory = core.sweeps.inventories.get(launcher.sweep)
    if inventory is None or not isinstance(message, PullParameters):
        return []
    launcher.wanted = message.wanted
    return distribute.move(core, now, inventory)


def _parameters_held(
    core: Core, now: int, inventory: Inventory, launcher: Launcher, message: ParametersHeld
) -> List[Any]:
    launcher.here = launcher.repeating = True
    launcher.slots = message.slots or launcher.slots
    launcher.wanted = launcher.given = 0
    holds = frozenset(numbers_of(message.ranges))
    launcher.unreported = {number for number in launcher.held if number not in holds}
    for number in numbers_of(message.ranges):
        inventory.claim(launcher, number)
    actions: List[Any] = [results.to_launcher(launcher.tag, ResultsCommitted(launcher.kept))] if launcher.kept else []
    return actions + ([results.to_launcher(launcher.tag, LauncherTrusted())] if launcher.trusted else [])


def _pull_parameters(
    core: Core, now: int, inventory: Inventory, launcher: Launcher, message: PullParameters
) -> List[Any]:
    _all_repeated(inventory, launcher)
    launcher.wanted = max(0, message.wanted - (launcher.given - message.given)) if launcher.here else 0
    return []


def _all_repeated(inventory: Inventory, launcher: Launcher) -> None:
    """Take back the numbers that it neither holds nor has done: they were lost on their way."""
    if not launcher.repeating:
        return
    launcher.repeating = False
    unreported = [number for number in launcher.held if number in launcher.unreported]
    inventory.put_first(inventory.returned(launcher, unreported))
    inventory.place(launcher)


def _results_reported(
    core: Core, now: int, inventory: Inventory, launcher: Launcher, message: ResultsReported
) -> List[Any]:
    if message.number <= launcher.newest_results:
        return []  # repeated; it is confirmed when koalad has it
    launcher.newest_results = message.number
    attempt = core.attempt(now, launcher.tag)
    rows = results.mapped(attempt, message.results)
    inventory.rate.add(now, len(rows))
    return results.gather(core, now, launcher, inventory, rows)


def _parameters_given_up(
    core: Core, now: int, inventory: Inventory, launcher: Launcher, message: ParametersGivenUp
) -> List[Any]:
    """Keep numbers that had not begun for other Launchers here, if they can use them; return the rest to koalad."""
    _all_repeated(inventory, launcher)
    begun = frozenset(numbers_of(message.begun))
    numbers = inventory.returned(launcher, numbers_of(message.ranges))
    idle = [number for number in numbers if number not in begun]
    room = (
        max(0, inventory.unmet + in_store(inventory, now) - len(inventory.credit))
        if distribute.lives_beside(core, inventory, launcher)
        else 0
    )
    inventory.put_first(idle[:room])
    unacknowledged = [number for number in numbers if number in begun] + idle[room:]
    return results.give_back(core, now, inventory, sorted(unacknowledged), begun) if unacknowledged else []


def _progress_reported(
    core: Core, now: int, inventory: Inventory, launcher: Launcher, message: ProgressReported
) -> List[Any]:
    launcher.running = message.running
    results.seen(core, now, launcher, message.newest_at + core.attempt(now, launcher.tag).offset)
    return []


def _node_suspected(
    core: Core, now: int, inventory: Inventory, launcher: Launcher, message: NodeSuspected
) -> List[Any]:
    if launcher.trusted:
        return [results.to_launcher(launcher.tag, LauncherTrusted())]
    if launcher.suspected:
        return []
    launcher.suspected = True
    return core.event_queue.put(now, LauncherSuspected(launcher.tag, message.host))


_REACTIONS: Dict[type, Callable[[Core, int, Inventory, Launcher, Any], List[Any]]] = {
    ParametersHeld: _parameters_held,
    PullParameters: _pull_parameters,
    ResultsReported: _results_reported,
    ParametersGivenUp: _parameters_given_up,
    ProgressReported: _progress_reported,
    NodeSuspected: _node_suspected,
}
