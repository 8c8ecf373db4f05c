"""Sweeps on this cluster: koalad feeds numbers of parameters, Launchers pull them, run them, and give some back.

What a KCM does not see of a sweep it asks its Launchers: after a feed that begins anew each of them says what it holds
and repeats what it has done, or has ended and left a journal; what none of them has is then given to whoever pulls.
A Launcher that is not connected keeps what it holds.
"""

from typing import Any, Callable, Dict, List

from koalapy_adapters.kcm import farewell, telling
from koalapy_adapters.kcm.actions import SECOND, Inspect, LauncherSaid, Sight
from koalapy_adapters.kcm.attempts import Attempt, Core, Stage
from koalapy_adapters.kcm.backoff import Backoff
from koalapy_adapters.kcm.numbers import each
from koalapy_adapters.kcm.sharing import in_store, portions
from koalapy_adapters.kcm.supply import UNUSED, Launcher, Supply
from koalapy_adapters.kcm.sweeps import is_launcher
from koalapy_adapters.messages import (
    Back,
    Doing,
    Ended,
    Feed,
    Give,
    Holding,
    Kept,
    LauncherSuspected,
    MessageError,
    ParametersWanted,
    Pull,
    Recall,
    Submit,
    Suspect,
    Trust,
    Trusted,
    from_json,
)

MODEST = 10 * SECOND  # after a Recall nothing is kept in store
MOST = 20000  # that are asked for at a time


# ---- what koalad says


def submitted(core: Core, now: int, event: Submit) -> None:
    """A Launcher of this sweep is to come."""
    sweep = event.program.get("sweep")
    if isinstance(sweep, dict) and isinstance(sweep.get("sweep"), int):
        launcher = core.sweeps.join(event.tag, sweep["sweep"])
        launcher.slots = int(sweep.get("slots") or 0)


def fed(core: Core, now: int, event: Feed) -> List[Any]:
    supply = core.sweeps.supply(event.sweep)
    if event.anew:
        return _fed_anew(core, now, supply, event)
    if not supply.begun:
        return []  # the feed that says all that is out follows
    _came(supply, now, supply.feed(event.ranges))
    return _move(core, now, supply)


def recalled(core: Core, now: int, event: Recall) -> List[Any]:
    """koalad needs them elsewhere: what Launchers have not begun is of no use to it here."""
    supply = core.sweeps.supply(event.sweep)
    supply.modest_until = now + MODEST
    supply.asked, supply.ask_at = 0, None
    return telling.give_back(core, now, supply, supply.take_last(event.most)) + _move(core, now, supply)


def trusted(core: Core, now: int, event: Trust) -> List[Any]:
    launcher = core.sweeps.launcher(event.tag)
    launcher.trusted = True
    return [telling.say(event.tag, Trusted())] if launcher.here else []


def _fed_anew(core: Core, now: int, supply: Supply, event: Feed) -> List[Any]:
    supply.begun = True
    before = len(supply.unplaced)
    supply.feed_anew(event.ranges)
    _came(supply, now, len(supply.unplaced) - before)
    actions: List[Any] = []
    for tag in event.launchers:
        launcher = core.sweeps.join(tag, supply.sweep)
        launcher.placed = launcher.placed or tag not in core.attempts
    for launcher in list(supply.launchers.values()):
        if not launcher.placed:
            supply.awaited[launcher.tag] = None
    for launcher in list(supply.launchers.values()):
        actions += _catch_up(core, now, supply, launcher)
    return actions + look(core, supply) + _move(core, now, supply)


def _catch_up(core: Core, now: int, supply: Supply, launcher: Launcher) -> List[Any]:
    """Hear what it said too early to be understood."""
    actions: List[Any] = []
    early, launcher.early = launcher.early, []
    for message in early:
        actions += _HEARD[type(message)](core, now, supply, launcher, message)
    return actions + farewell.named(core, now, launcher)


def _came(supply: Supply, now: int, count: int) -> None:
    supply.asked = max(0, supply.asked - count)
    if count and not supply.asked:
        supply.trip.answered(now)
        supply.ask_at, supply.ask_backoff = None, Backoff(SECOND // 2, 10 * SECOND)


# ---- what Launchers say, and what is seen of them


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
    return _HEARD[type(message)](core, now, supply, launcher, message) + _move(core, now, supply)


def parted(core: Core, attempt: Attempt) -> None:
    """Its wrapper's connection is gone, or is another."""
    launcher = core.sweeps.launchers.get(attempt.tag)
    if launcher is not None:
        launcher.part()


def fresh(core: Core, now: int, attempt: Attempt) -> List[Any]:
    """It is about to be submitted, and surely never was: it can hold nothing."""
    return _settled(core, now, attempt.tag) if is_launcher(attempt.tag) else []


def sighted(core: Core, now: int, attempt: Attempt, sight: Sight) -> List[Any]:
    """Whose attempt nobody has claimed yet holds nothing, and neither does one that was revoked."""
    if not is_launcher(attempt.tag):
        return []
    unclaimed = bool(sight.directory) and sight.record is None and sight.claim in ("", "revoked")
    return _settled(core, now, attempt.tag) if unclaimed else []


def look(core: Core, supply: Supply) -> List[Any]:
    """See whether those that are awaited have begun at all."""
    tags = [tag for tag in supply.awaited if tag in core.attempts and not core.attempts[tag].connected]
    unseen = [tag for tag in tags if not core.attempts[tag].inspecting]
    for tag in unseen:
        core.attempts[tag].inspecting = True
    return [Inspect(unseen)] if unseen else []


def look_again(core: Core) -> List[Any]:
    return [action for supply in core.sweeps.supplies.values() for action in look(core, supply)]


def journal_read(core: Core, now: int, outcome: Any) -> List[Any]:
    actions = farewell.journal_read(core, now, outcome)
    launcher = core.sweeps.launchers.get(outcome.tag)
    supply = core.sweeps.supply_of(launcher) if launcher is not None else None
    return actions + (_move(core, now, supply) if supply is not None else [])


def _settled(core: Core, now: int, tag: str) -> List[Any]:
    """It holds nothing."""
    launcher = core.sweeps.launcher(tag)
    if launcher.placed or launcher.over or launcher.here:
        return []
    launcher.placed = True
    supply = core.sweeps.supplies.get(launcher.sweep)
    if supply is None:
        return []
    supply.place(launcher)
    return _move(core, now, supply) if supply.begun else []


def _too_early(core: Core, now: int, launcher: Launcher, message: Any) -> List[Any]:
    """Its sweep is unknown, or has not been fed yet: koalad is asked to, and it is heard then."""
    launcher.early.append(message)
    supply = core.sweeps.supplies.get(launcher.sweep)
    if supply is None or not isinstance(message, Pull):
        return []
    launcher.wanted = message.wanted
    return _move(core, now, supply)


def _holding(core: Core, now: int, supply: Supply, launcher: Launcher, message: Holding) -> List[Any]:
    launcher.here = launcher.repeating = True
    launcher.slots = message.slots or launcher.slots
    launcher.wanted = launcher.given = 0
    holds = frozenset(each(message.ranges))
    launcher.unsaid = {number for number in launcher.hands if number not in holds}
    for number in each(message.ranges):
        supply.claim(launcher, number)
    actions: List[Any] = [telling.say(launcher.tag, Kept(launcher.kept))] if launcher.kept else []
    return actions + ([telling.say(launcher.tag, Trusted())] if launcher.trusted else [])


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
    rows = telling.mapped(attempt, message.results)
    supply.rate.add(now, len(rows))
    return telling.gather(core, now, launcher, supply, rows)


def _back(core: Core, now: int, supply: Supply, launcher: Launcher, message: Back) -> List[Any]:
    """What had not begun others here may run, if they could use it; the rest is for koalad to place."""
    _all_repeated(supply, launcher)
    begun = frozenset(each(message.begun))
    numbers = supply.returned(launcher, each(message.ranges))
    idle = [number for number in numbers if number not in begun]
    room = max(0, supply.unmet + in_store(supply, now) - len(supply.credit)) if _others(core, supply, launcher) else 0
    supply.put_first(idle[:room])
    leaving = [number for number in numbers if number in begun] + idle[room:]
    return telling.give_back(core, now, supply, sorted(leaving), begun) if leaving else []


def _doing(core: Core, now: int, supply: Supply, launcher: Launcher, message: Doing) -> List[Any]:
    launcher.running = message.running
    telling.seen(core, now, launcher, message.newest_at + core.attempt(now, launcher.tag).offset)
    return []


def _suspect(core: Core, now: int, supply: Supply, launcher: Launcher, message: Suspect) -> List[Any]:
    if launcher.trusted:
        return [telling.say(launcher.tag, Trusted())]
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


# ---- giving and asking


def _move(core: Core, now: int, supply: Supply) -> List[Any]:
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
        actions.append(telling.say(launcher.tag, Give(ranges)))
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
    if not supply.credit or _others(core, supply, None):
        supply.idle_at = None
    elif supply.idle_at is None:
        supply.idle_at = now + UNUSED
    elif supply.idle_at <= now:
        supply.idle_at = None
        return telling.give_back(core, now, supply, supply.take_last(len(supply.credit)))
    return []


def _others(core: Core, supply: Supply, launcher: Any) -> bool:
    """Whether another Launcher of the sweep lives here, or will."""
    return any(_lives(core, each) for each in supply.launchers.values() if each is not launcher)


def _lives(core: Core, launcher: Launcher) -> bool:
    attempt = core.attempts.get(launcher.tag)
    return attempt is not None and not launcher.over and not launcher.ending and attempt.stage is not Stage.OUT


# ---- time


def tick(core: Core, now: int) -> List[Any]:
    """What is due by now."""
    actions: List[Any] = []
    for key in core.sweeps.alarms.ring(now):
        if key == telling.SEEN:
            actions += telling.say_seen(core, now)
        elif key in core.sweeps.launchers:
            actions += _tick_launcher(core, now, core.sweeps.launchers[key])
        elif int(key) in core.sweeps.supplies:
            actions += _move(core, now, core.sweeps.supplies[int(key)])
    return actions


def _tick_launcher(core: Core, now: int, launcher: Launcher) -> List[Any]:
    supply = core.sweeps.supply_of(launcher)
    actions: List[Any] = []
    if supply is not None and launcher.results_at is not None and launcher.results_at <= now:
        actions += telling.flush(core, now, launcher, supply)
    actions += farewell.tick(core, now, launcher)
    core.sweeps.wait_for_launcher(launcher)
    return actions
