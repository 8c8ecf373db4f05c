"""A Launcher's end: it is reported only after all that the Launcher had done and held.

Before its Report, BatchSeen or Gone goes out, its journal is read: what is written there and koalad may not have goes
first as ParametersEnded, then what it held and had not done as ParametersReturned. Its directory stays until then.
"""

from typing import Any, List

from koalapy_adapters.batch.protocol import ENDED
from koalapy_adapters.batch.text import is_launcher
from koalapy_adapters.kcm.state.actions import JournalRead, ReadJournal
from koalapy_adapters.kcm.state.attempt import Attempt, Core
from koalapy_adapters.kcm.state.cleanup import forget
from koalapy_adapters.kcm.state.inventory import UNUSED, Inventory, Launcher
from koalapy_adapters.kcm.sweeps import results
from koalapy_adapters.messages.kcm import BatchStatus, CleanedUp, Report
from koalapy_adapters.ranges import ranges_of


def report(core: Core, now: int, tag: str, body: Any) -> List[Any]:
    """Report something of an attempt to koalad: at once, unless it is of a Launcher that has ended."""
    if not is_launcher(tag):
        return core.event_queue.put(now, body)
    launcher = core.sweeps.launcher(tag)
    if launcher.finished or not (launcher.ends or _is_end(body)):
        return core.event_queue.put(now, body)
    launcher.ends.append(body)
    return close(core, now, launcher)


def asked_to_forget(core: Core, now: int, attempt: Attempt, id: int) -> List[Any]:
    """koalad has recorded its end; its journal may still be wanted."""
    launcher = core.sweeps.launchers.get(attempt.tag)
    if launcher is None or launcher.finished:
        return forget(attempt, [id])
    launcher.forgets.append(id)
    return close(core, now, launcher)


def named(core: Core, now: int, launcher: Launcher) -> List[Any]:
    """koalad has stated that it may hold something. If its end was reported before, there is still its journal."""
    attempt = core.attempts.get(launcher.tag)
    if launcher.finished and not launcher.placed:
        launcher.finished = False  # so that its directory stays
        return _read(core, launcher)
    return close(core, now, launcher) if attempt is not None and launcher.ending else []


def close(core: Core, now: int, launcher: Launcher) -> List[Any]:
    """It has ended. What it held is known, or in its journal, or koalad has yet to state of which sweep it is."""
    inventory = core.sweeps.inventory_of(launcher)
    if launcher.reading or launcher.read_at is not None:
        return []
    if inventory is None:
        return _finish(core, now, launcher) if core.sweeps.caught_up else []
    actions = results.flush(core, now, launcher, inventory)
    if launcher.placed and not launcher.held:
        return actions + _finish(core, now, launcher)
    return actions + _read(core, launcher)


def journal_read(core: Core, now: int, outcome: JournalRead) -> List[Any]:
    launcher, attempt = core.sweeps.launchers.get(outcome.tag), core.attempts.get(outcome.tag)
    if launcher is None or attempt is None or not launcher.reading:
        return []
    launcher.reading = False
    inventory = core.sweeps.inventory_of(launcher)
    if outcome.error is not None or inventory is None:
        launcher.read_at = launcher.read_backoff.after(now)
        core.sweeps.wait_for_launcher(launcher)
        return []
    rows = [row for row in results.mapped(attempt, outcome.results) if _may_have(launcher, inventory, row[0])]
    actions = results.gather(core, now, launcher, inventory, rows) + results.flush(core, now, launcher, inventory)
    actions += _hand_back(core, now, launcher, inventory, outcome.there)
    inventory.place(launcher)
    return actions + _finish(core, now, launcher)


def tick(core: Core, now: int, launcher: Launcher) -> List[Any]:
    if launcher.read_at is not None and launcher.read_at <= now:
        launcher.read_at = None
        return _read(core, launcher)
    return []


def caught_up(core: Core, now: int) -> List[Any]:
    """koalad has named all the Launchers of which it needs more reports."""
    ending = [launcher for launcher in core.sweeps.launchers.values() if launcher.ending]
    return [action for launcher in ending for action in close(core, now, launcher)]


def _read(core: Core, launcher: Launcher) -> List[Any]:
    inventory = core.sweeps.inventories[launcher.sweep]
    wanted = set(launcher.held) if launcher.placed else inventory.unaccounted.union(launcher.held)
    launcher.reading = True
    return [ReadJournal(launcher.tag, ranges_of(sorted(wanted)))]


def _hand_back(core: Core, now: int, launcher: Launcher, inventory: Inventory, there: bool) -> List[Any]:
    """Give back what it held at its end. Counted as begun are the first, as many as it ran at a time."""
    held = inventory.returned(launcher, list(launcher.held))
    if not held:
        return []
    running = launcher.running or launcher.slots or len(held)
    return results.give_back(core, now, inventory, held, held[:running] if there else held)


def _finish(core: Core, now: int, launcher: Launcher) -> List[Any]:
    """Now its end may be reported."""
    ends, launcher.ends = launcher.ends, []
    ids, launcher.forgets = launcher.forgets, []
    launcher.finished, launcher.wanted = True, 0
    core.sweeps.doing.pop(launcher.tag, None)
    _look_at_credit(core, now, launcher)
    actions = [action for body in ends for action in core.event_queue.put(now, body)]
    attempt = core.attempts.get(launcher.tag)
    return actions + (forget(attempt, ids) if ids and attempt is not None else [])


def _look_at_credit(core: Core, now: int, launcher: Launcher) -> None:
    """It may have been the last that was there for it."""
    inventory = core.sweeps.inventory_of(launcher)
    if inventory is not None and inventory.credit and inventory.idle_at is None:
        inventory.idle_at = now + UNUSED
        core.sweeps.wait_for_inventory(inventory)


def _may_have(launcher: Launcher, inventory: Inventory, number: int) -> bool:
    return number in launcher.held or number in inventory.unaccounted


def _is_end(body: Any) -> bool:
    if isinstance(body, Report):
        return body.phase == "ended"
    return isinstance(body, CleanedUp) or (isinstance(body, BatchStatus) and body.state == ENDED)
