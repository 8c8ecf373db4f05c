"""Sweeps on this cluster: koalad feeds numbers of parameters, Launchers pull them, run them, and give some back.

A KCM asks its Launchers for what it does not know of a sweep. After a feed that begins anew, each of them reports what
it holds and repeats what it has done; or it has ended, and its journal is read. The rest goes to those that pull.
"""

from typing import Any, List

from koalapy_adapters.batch.text import is_launcher
from koalapy_adapters.kcm.state.actions import SECOND, DirectoryStatus, Inspect
from koalapy_adapters.kcm.state.attempt import Attempt, Core
from koalapy_adapters.kcm.state.inventory import Inventory, Launcher
from koalapy_adapters.kcm.state.timers import Backoff
from koalapy_adapters.kcm.sweeps import distribute, launcher_end, launcher_messages, results
from koalapy_adapters.messages.koalad import FeedSweep, RecallParameters, Submit, TrustLauncher
from koalapy_adapters.messages.launcher import LauncherTrusted

MODEST = 10 * SECOND  # after RecallParameters nothing is kept in store


# ---- what koalad sends


def submitted(core: Core, now: int, event: Submit) -> None:
    """A Launcher of this sweep is to come."""
    sweep = event.program.get("sweep")
    if isinstance(sweep, dict) and isinstance(sweep.get("sweep"), int):
        launcher = core.sweeps.join(event.tag, sweep["sweep"])
        launcher.slots = int(sweep.get("slots") or 0)


def fed(core: Core, now: int, event: FeedSweep) -> List[Any]:
    inventory = core.sweeps.inventory(event.sweep)
    if event.anew:
        return _fed_anew(core, now, inventory, event)
    if not inventory.begun:
        return []  # the feed that states all that is out follows
    _came(inventory, now, inventory.feed(event.ranges))
    return distribute.move(core, now, inventory)


def recalled(core: Core, now: int, event: RecallParameters) -> List[Any]:
    """koalad needs them elsewhere: what Launchers have not begun is of no use to it here."""
    inventory = core.sweeps.inventory(event.sweep)
    inventory.no_prefetch_until = now + MODEST
    inventory.asked, inventory.ask_at = 0, None
    return results.give_back(core, now, inventory, inventory.take_last(event.most)) + distribute.move(
        core, now, inventory
    )


def trusted(core: Core, now: int, event: TrustLauncher) -> List[Any]:
    launcher = core.sweeps.launcher(event.tag)
    launcher.trusted = True
    return [results.to_launcher(event.tag, LauncherTrusted())] if launcher.here else []


def _fed_anew(core: Core, now: int, inventory: Inventory, event: FeedSweep) -> List[Any]:
    inventory.begun = True
    before = len(inventory.unaccounted)
    inventory.feed_anew(event.ranges)
    _came(inventory, now, len(inventory.unaccounted) - before)
    actions: List[Any] = []
    for tag in event.launchers:
        launcher = core.sweeps.join(tag, inventory.sweep)
        launcher.placed = launcher.placed or tag not in core.attempts
    for launcher in list(inventory.launchers.values()):
        if not launcher.placed:
            inventory.awaited[launcher.tag] = None
    for launcher in list(inventory.launchers.values()):
        actions += _catch_up(core, now, inventory, launcher)
    return actions + look(core, inventory) + distribute.move(core, now, inventory)


def _catch_up(core: Core, now: int, inventory: Inventory, launcher: Launcher) -> List[Any]:
    """Process a report that came too early to be understood."""
    actions: List[Any] = []
    early, launcher.early = launcher.early, []
    for message in early:
        actions += launcher_messages.understand(core, now, inventory, launcher, message)
    return actions + launcher_end.named(core, now, launcher)


def _came(inventory: Inventory, now: int, count: int) -> None:
    inventory.asked = max(0, inventory.asked - count)
    if count and not inventory.asked:
        inventory.trip.answered(now)
        inventory.ask_at, inventory.ask_backoff = None, Backoff(SECOND // 2, 10 * SECOND)


# ---- what is seen of Launchers from outside


def fresh(core: Core, now: int, attempt: Attempt) -> List[Any]:
    """It is about to be submitted, and surely never was: it can hold nothing."""
    return _holds_nothing(core, now, attempt.tag) if is_launcher(attempt.tag) else []


def inspected(core: Core, now: int, attempt: Attempt, inspection: DirectoryStatus) -> List[Any]:
    """React to a directory. A Launcher whose start lock is free or void holds nothing."""
    if not is_launcher(attempt.tag):
        return []
    unclaimed = bool(inspection.directory) and inspection.record is None and inspection.start_lock in ("", "void")
    return _holds_nothing(core, now, attempt.tag) if unclaimed else []


def turned(core: Core, now: int, tag: str, still: bool) -> List[Any]:
    """The batch system suspends it, or lets it go on."""
    launcher = core.sweeps.launchers.get(tag)
    if launcher is None or launcher.still == still:
        return []
    launcher.still = still
    inventory = core.sweeps.inventory_of(launcher)
    return distribute.move(core, now, inventory) if inventory is not None else []


def look(core: Core, inventory: Inventory) -> List[Any]:
    """See whether those that are awaited have begun at all."""
    tags = [tag for tag in inventory.awaited if tag in core.attempts and not core.attempts[tag].connected]
    unseen = [tag for tag in tags if not core.attempts[tag].inspecting]
    for tag in unseen:
        core.attempts[tag].inspecting = True
    return [Inspect(unseen)] if unseen else []


def look_again(core: Core) -> List[Any]:
    return [action for inventory in core.sweeps.inventories.values() for action in look(core, inventory)]


def journal_read(core: Core, now: int, outcome: Any) -> List[Any]:
    actions = launcher_end.journal_read(core, now, outcome)
    launcher = core.sweeps.launchers.get(outcome.tag)
    inventory = core.sweeps.inventory_of(launcher) if launcher is not None else None
    return actions + (distribute.move(core, now, inventory) if inventory is not None else [])


def _holds_nothing(core: Core, now: int, tag: str) -> List[Any]:
    """Note that the Launcher holds nothing."""
    launcher = core.sweeps.launcher(tag)
    if launcher.placed or launcher.finished or launcher.here:
        return []
    launcher.placed = True
    inventory = core.sweeps.inventories.get(launcher.sweep)
    if inventory is None:
        return []
    inventory.place(launcher)
    return distribute.move(core, now, inventory) if inventory.begun else []


# ---- time


def tick(core: Core, now: int) -> List[Any]:
    """Return the actions that are due by now."""
    actions: List[Any] = []
    for key in core.sweeps.timers.expire(now):
        if key == results.SEEN:
            actions += results.report_running(core, now)
        elif key in core.sweeps.launchers:
            actions += _tick_launcher(core, now, core.sweeps.launchers[key])
        elif int(key) in core.sweeps.inventories:
            actions += distribute.move(core, now, core.sweeps.inventories[int(key)])
    return actions


def _tick_launcher(core: Core, now: int, launcher: Launcher) -> List[Any]:
    inventory = core.sweeps.inventory_of(launcher)
    actions: List[Any] = []
    if inventory is not None and launcher.results_at is not None and launcher.results_at <= now:
        actions += results.flush(core, now, launcher, inventory)
    actions += launcher_end.tick(core, now, launcher)
    core.sweeps.wait_for_launcher(launcher)
    return actions
