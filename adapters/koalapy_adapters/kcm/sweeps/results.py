"""Events about sweeps for koalad: results, returned numbers, requests; and the reaction to their acknowledgement.

Many small results make one event. Until koalad has acknowledged an event, its numbers count as leaving: a feed that was
sent before may still name them.
"""

from typing import Any, Dict, Iterable, List

from koalapy_adapters.kcm.state.actions import SECOND, SendToWrapper
from koalapy_adapters.kcm.state.attempt import Attempt, Core
from koalapy_adapters.kcm.state.inventory import Inventory, Launcher, UnacknowledgedEvent
from koalapy_adapters.launcher.journal import ENDINGS
from koalapy_adapters.messages import to_json
from koalapy_adapters.messages.fields import passes
from koalapy_adapters.messages.kcm import RESULT, LaunchersSeen, ParametersEnded, ParametersReturned
from koalapy_adapters.messages.launcher import ResultsCommitted
from koalapy_adapters.messages.relay import ToLauncher
from koalapy_adapters.ranges import MANY, numbers_of, ranges_of

GATHER = SECOND // 12  # results wait so long for others
ROWS = 1500  # results of one event; a MiB has room for twice as many
SEEN = "seen"  # the alarm of LaunchersSeen
SEEN_EVERY = SECOND
_FIELDS, _ENDING, _HOST, _STARTED, _ENDED = 11, 2, 3, 5, 6
_LONGEST = 255  # characters of a host's name


def to_launcher(tag: str, message: Any) -> SendToWrapper:
    """To the Launcher."""
    return SendToWrapper(tag, ToLauncher(to_json(message)))


def mapped(attempt: Attempt, rows: Iterable[Any]) -> List[List[Any]]:
    """Results with instants of the KCM's clock; those that are none are left out."""
    ours = (_mapped(row, attempt.offset) for row in rows if _is_row(row))
    return [row for row in ours if passes(RESULT, row)]


def gather(core: Core, now: int, launcher: Launcher, inventory: Inventory, rows: List[List[Any]]) -> List[Any]:
    """Results of a Launcher, to be reported soon; at once if they are many."""
    for row in rows:
        inventory.done(row[0])
    launcher.results += rows
    if len(launcher.results) >= ROWS:
        return flush(core, now, launcher, inventory)
    if launcher.results_at is None:
        launcher.results_at = now + GATHER
        core.sweeps.wait_for_launcher(launcher)
    return []


def flush(core: Core, now: int, launcher: Launcher, inventory: Inventory) -> List[Any]:
    """Report what was gathered."""
    actions: List[Any] = []
    rows, launcher.results, launcher.results_at = launcher.results, [], None
    for start in range(0, len(rows), ROWS):
        some = rows[start : start + ROWS]
        actions += core.event_queue.put(now, ParametersEnded(inventory.sweep, launcher.tag, some))
        whole = launcher.newest_results if start + ROWS >= len(rows) else 0
        numbers = [row[0] for row in some]
        core.sweeps.unacknowledged.append(
            UnacknowledgedEvent(core.event_queue.last, inventory, numbers, launcher.tag, whole)
        )
    return actions


def give_back(core: Core, now: int, inventory: Inventory, numbers: List[int], begun: Iterable[int] = ()) -> List[Any]:
    """Numbers that nobody here has any more; `begun` are among them. At least one event, an empty one if need be."""
    inventory.unacknowledged.update(numbers)
    started = frozenset(begun)
    actions: List[Any] = []
    ranges = ranges_of(numbers)
    for start in range(0, max(1, len(ranges)), MANY):
        some = ranges[start : start + MANY]
        theirs = list(numbers_of(some))
        of_these = ranges_of(number for number in theirs if number in started)
        actions += core.event_queue.put(now, ParametersReturned(inventory.sweep, some, of_these))
        core.sweeps.unacknowledged.append(UnacknowledgedEvent(core.event_queue.last, inventory, theirs))
    return actions


def acknowledged(core: Core, number: int) -> List[Any]:
    """koalad has committed all events up to this number: the Launchers may forget what was in them."""
    kept: Dict[str, int] = {}
    while core.sweeps.unacknowledged and core.sweeps.unacknowledged[0].event <= number:
        unacknowledged = core.sweeps.unacknowledged.popleft()
        unacknowledged.inventory.unacknowledged.difference_update(unacknowledged.numbers)
        if unacknowledged.ended:
            kept[unacknowledged.tag] = unacknowledged.ended
    actions = []
    for tag, ended in kept.items():
        launcher = core.sweeps.launchers.get(tag)
        if launcher is not None:
            launcher.kept = ended
            actions.append(to_launcher(tag, ResultsCommitted(ended)))
    return actions


def seen(core: Core, now: int, launcher: Launcher, newest_at: int) -> None:
    """How many parameters run, for the next LaunchersSeen."""
    sweeps = core.sweeps
    sweeps.doing[launcher.tag] = (launcher.running, newest_at)
    if sweeps.seen_at is None:
        sweeps.seen_at = max(now, sweeps.quiet_until)
        sweeps.timers.set(SEEN, sweeps.seen_at)


def report_running(core: Core, now: int) -> List[Any]:
    sweeps = core.sweeps
    doing, sweeps.doing, sweeps.seen_at = sweeps.doing, {}, None
    sweeps.quiet_until = now + SEEN_EVERY
    launchers = [[tag, running, newest_at] for tag, (running, newest_at) in doing.items()]
    return core.event_queue.put(now, LaunchersSeen(launchers)) if launchers else []


def _is_row(row: Any) -> bool:
    if not isinstance(row, list) or len(row) != _FIELDS:
        return False
    if not isinstance(row[_HOST], str) or row[_ENDING] not in ENDINGS:
        return False
    return all(isinstance(row[at], int) for at in (_STARTED, _ENDED))


def _mapped(row: List[Any], offset: int) -> List[Any]:
    copy = list(row)
    copy[_HOST] = copy[_HOST][:_LONGEST].encode("ascii", "replace").decode()  # so that ROWS of them fit into a frame
    for at in (_STARTED, _ENDED):
        copy[at] += offset
    return copy
