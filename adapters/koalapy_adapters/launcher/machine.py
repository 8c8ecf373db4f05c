"""The Launcher's decisions: event in, commands out. It reads no clock and does nothing itself.

    at work -> draining (its walltime nears) -> stopping (slots end) -> left

At work it holds what it has pulled: a parameter for every slot, and others for a tenth of a second (see pace). It
begins on trial. If the first parameters all fail at once, the node may be at fault. Such failures are withheld
until a parameter succeeds, or koalad finds that the program is to blame.
"""

from collections import deque
from typing import Any, Callable, Deque, Dict, List, NamedTuple, Optional, Set, Tuple, Type

from koalapy_adapters.clock import SECOND
from koalapy_adapters.launcher import events as e
from koalapy_adapters.launcher.journal import KILLED
from koalapy_adapters.launcher.pace import Pace
from koalapy_adapters.launcher.results import Results
from koalapy_adapters.launcher.trial import Trial
from koalapy_adapters.messages.launcher import (
    FeedParameters,
    LauncherTrusted,
    NodeSuspected,
    ParametersGivenUp,
    ParametersHeld,
    ProgressReported,
    PullParameters,
    ResultsCommitted,
)
from koalapy_adapters.ranges import numbers_of, ranges_of

AT_ONCE = SECOND  # a failure within this time may be the node's fault
POLL_EVERY = SECOND
STALE = SECOND  # parameters that wait for this long, while nothing ends, are returned
LEAVE_BEFORE = 2 * SECOND  # the end of the walltime; by then all slots are empty
TRIES = 2  # of a parameter whose slot is killed; after these the parameter is the cause

_SPANS_KEPT = 64  # of a parameter with more suspensions than these, some count as run time

AT_WORK, DRAINING, STOPPING, LEFT = "at work", "draining", "stopping", "left"


class Settings(NamedTuple):
    """The settings of one Launcher. `ends_at`: the end of its walltime. `drain`: nothing is begun so close to it."""

    host: str
    slots: int
    orphan_timeout: int
    grace: int
    ends_at: int
    drain: int

    @property
    def suspicious(self) -> int:
        """The number of parameters that must fail at once before the node is suspected."""
        return max(8, 3 * self.slots)


class Machine:
    """The Launcher's state. `handle` every event, `tick` at `next_wakeup` or later. Both return commands in order."""

    def __init__(self, settings: Settings, now: int) -> None:
        self._settings = settings
        self._state = AT_WORK
        self._held: Set[int] = set()  # pulled, and not done
        self._results = Results()
        self._pace = Pace(settings.slots)
        self._connected = False
        self._contact = now
        self._window = PullWindow()  # over this connection
        self._longest = 0
        self._suspensions = Suspensions()
        self._progress = now  # when something ended, or was queued, last
        self._looked = now
        self._doing = ProgressReported(0, 0)
        self._to_return: List[int] = []  # to be returned
        self._begun: List[int] = []
        self._lost: Dict[int, int] = {}  # how often a parameter's slot was killed
        self._trial = Trial(settings.suspicious)

    def handle(self, now: int, event: Any) -> List[Any]:
        """React to an event. Returns commands. Raises KeyError if it is no event of `events`."""
        react = _REACTIONS[type(event)]
        if self._state == LEFT:
            return []
        return react(self, now, event) + self._advance(now)

    def tick(self, now: int) -> List[Any]:
        """The commands that are due by `now`."""
        if self._state == LEFT:
            return []
        commands: List[Any] = []
        if now >= self._looked + POLL_EVERY:
            self._looked = now
            commands.append(e.Look())
        if self._orphaned_at() <= now or self._stop_at() <= now:
            commands += self._stop()
        elif self._state == AT_WORK and self._drain_at() <= now:
            commands += self._drain()
        return commands + self._advance(now)

    def next_wakeup(self) -> int:
        times = [self._looked + POLL_EVERY]
        if self._connected:
            times += self._results.due()
        if self._state in (AT_WORK, DRAINING):
            times += [self._stop_at(), self._orphaned_at()]
        if self._state == AT_WORK:
            times.append(self._drain_at())
        return min(times)

    # ---- what the KCM sends ------------------------------------------------------------------------------------------

    def _on_connected(self, now: int, event: e.Connected) -> List[Any]:
        self._connected, self._window = True, PullWindow()
        self._results.mark_unsent()
        messages_due: List[Any] = [ParametersHeld(ranges_of(sorted(self._held)), self._settings.slots)]
        messages_due += [NodeSuspected(self._settings.host)] if self._trial.suspected else []
        messages_due += [self._doing] if self._doing.running else []
        to_return, self._to_return = self._to_return, []
        return [*map(e.Send, messages_due), *self._give_back(to_return)]

    def _on_disconnected(self, now: int, event: e.Disconnected) -> List[Any]:
        if self._connected:
            self._connected, self._contact = False, now
        return []

    def _on_received(self, now: int, event: e.Received) -> List[Any]:
        message = event.message
        if isinstance(message, FeedParameters):
            return self._given_more(now, list(numbers_of(message.ranges)))
        if isinstance(message, ResultsCommitted):
            self._results.kept(message.number)
        elif isinstance(message, LauncherTrusted):
            return self._end_trial()
        return []

    def _given_more(self, now: int, numbers: List[int]) -> List[Any]:
        self._window.given(len(numbers))
        self._pace.given(now)
        new = [number for number in numbers if number not in self._held]
        self._held.update(new)
        if self._takes_more():
            self._progress = now
            return [e.Queue(new)]
        return [] if self._state == STOPPING else self._give_back(new)

    # ---- what the slots do -------------------------------------------------------------------------------------------

    def _on_finished(self, now: int, event: e.Finished) -> List[Any]:
        rows = [row for row in event.rows if row[e.NUMBER] in self._held]
        loose = [row for row in event.loose if row[e.NUMBER] in self._held]
        if rows or loose:
            self._note(now, rows + loose)
        self._take(rows)
        self._trial.failed(loose)
        if rows or not self._trial.on:
            return self._end_trial()  # one that still ran when all others had failed has succeeded
        if self._state == AT_WORK and self._trial.suspect():
            return [e.TakeBack(), *self._sent(NodeSuspected(self._settings.host))]
        return []

    def _note(self, now: int, rows: List[e.Row]) -> None:
        durations = [self._suspensions.ran(row[e.STARTED_AT], row[e.ENDED_AT]) for row in rows]
        self._pace.ran(len(durations), sum(durations))
        self._longest = max(self._longest, max(durations))
        self._progress = now

    def _take(self, rows: List[e.Row]) -> None:
        self._results.add(rows)
        self._held.difference_update(row[e.NUMBER] for row in rows)

    def _end_trial(self) -> List[Any]:
        """Release the failures of the trial: the program is at fault, and they are results like others."""
        commands: List[Any] = [e.EndTrial()] if self._trial.clear() else []
        return commands + self._release_failures()

    def _release_failures(self) -> List[Any]:
        failed = self._trial.release(self._held)
        self._take(failed)
        return [e.WriteJournal(failed)] if failed else []

    def _on_looked(self, now: int, event: e.Looked) -> List[Any]:
        commands: List[Any] = []
        doing = ProgressReported(event.running, event.newest_at)
        if doing != self._doing:
            self._doing = doing
            commands += self._sent(doing)
        if now < self._progress + STALE:
            return commands
        if event.running:
            self._pace.runs(now - self._progress)
        if event.waiting and event.running:
            return [*commands, e.TakeBack()]
        if not event.running and not event.waiting:
            return commands + self._idle(now)
        return commands

    def _idle(self, now: int) -> List[Any]:
        """React to a standstill: report failures that are too few to judge by, and queue lost parameters again."""
        failed = self._trial.numbers
        if failed and not self._trial.suspected:
            return self._release_failures()
        lost = sorted(self._held.difference(self._to_return, failed))
        if lost and self._takes_more():
            self._progress = now
            return [e.Queue(lost)]
        return []

    def _on_taken_back(self, now: int, event: e.TakenBack) -> List[Any]:
        return [] if self._state == STOPPING else self._give_back(event.numbers)

    def _give_back(self, numbers: List[int]) -> List[Any]:
        """Return these parameters; without a connection, at the next one. Until then they count as held."""
        if not self._connected:
            self._to_return += numbers
            return []
        self._held.difference_update(numbers)
        return [e.Send(ParametersGivenUp(ranges_of(sorted(numbers)), []))] if numbers else []

    def _on_slot_lost(self, now: int, event: e.SlotLost) -> List[Any]:
        number = event.number
        if number not in self._held or self._state == STOPPING:
            return []
        self._lost[number] = self._lost.get(number, 0) + 1
        if self._lost[number] < TRIES and self._takes_more():
            return [e.Queue([number])]
        if self._lost[number] < TRIES:
            return self._give_back([number])
        row = [number, 137, KILLED, self._settings.host, event.slot, event.started_at, now, 0, 0, 0, 0]
        self._take([row])
        return [e.WriteJournal([row])]

    def _on_resumed(self, now: int, event: e.Resumed) -> List[Any]:
        """Move the deadlines by the suspension, which began at the last look; looks are a second apart."""
        self._settings = self._settings._replace(ends_at=self._settings.ends_at + event.slept)
        self._suspensions.note(self._looked, now)
        self._contact = self._progress = self._looked = now
        return []

    # ---- the end -----------------------------------------------------------------------------------------------------

    def _on_signalled(self, now: int, event: e.Signalled) -> List[Any]:
        return self._stop()

    def _on_slots_stopped(self, now: int, event: e.SlotsStopped) -> List[Any]:
        """Leave. Parameters of slots that ended earlier were begun too: the signal to stop was sent to all."""
        self._begun = sorted(self._held.intersection([*event.begun, *self._lost]))
        return self._leave(now)

    def _drain(self) -> List[Any]:
        self._state = DRAINING
        return [e.TakeBack()]

    def _stop(self) -> List[Any]:
        if self._state == STOPPING:
            return []
        self._state = STOPPING
        return [e.TakeBack(), e.StopSlots(self._settings.grace)]

    def _leave(self, now: int) -> List[Any]:
        self._state = LEFT
        messages_due = self._results.due_batches(now, at_once=True) if self._connected else []
        back = ParametersGivenUp(ranges_of(sorted(self._held)), ranges_of(sorted(self._begun)))
        return [*map(e.Send, messages_due), *self._sent(back), e.Leave()]

    def _drain_at(self) -> int:
        """The instant after which no parameter is expected to end in time."""
        return self._stop_at() - max(self._settings.drain, self._longest + self._longest // 4)

    def _stop_at(self) -> int:
        return self._settings.ends_at - self._settings.grace - LEAVE_BEFORE

    def _orphaned_at(self) -> int:
        return self._settings.ends_at if self._connected else self._contact + self._settings.orphan_timeout

    # ---- what follows ------------------------------------------------------------------------------------------------

    def _advance(self, now: int) -> List[Any]:
        if self._state == LEFT:
            return []
        if self._state == DRAINING and not self._held:
            self._state = STOPPING
            return [e.StopSlots(0)]
        if not self._connected:
            return []
        return [e.Send(message) for message in self._results.due_batches(now)] + self._pull_more(now)

    def _pull_more(self, now: int) -> List[Any]:
        ahead = self._pace.ahead()
        slot_idle = len(self._held) + self._window.coming < self._settings.slots
        pull = self._window.next(self._wanted(ahead), ahead // 4, slot_idle)
        if pull is None:
            return []
        self._pace.pulled(now)
        return [e.Send(pull)]

    def _wanted(self, ahead: int) -> int:
        if not self._takes_more():
            return 0
        return max(0, self._settings.slots + ahead - (len(self._held) - self._trial.withheld))

    def _takes_more(self) -> bool:
        return self._state == AT_WORK and not self._trial.suspected

    def _sent(self, message: Any) -> List[Any]:
        return [e.Send(message)] if self._connected else []


class PullWindow:
    """The parameters pulled over one connection, and those still to come.

    FeedParameters and PullParameters may cross: each PullParameters states how many had come when it was sent.
    """

    def __init__(self) -> None:
        self._given = 0
        self._last: Optional[PullParameters] = None

    def given(self, count: int) -> None:
        """Count parameters that have come."""
        self._given += count

    @property
    def coming(self) -> int:
        """The number of pulled parameters that may still come."""
        if self._last is None:
            return 0
        return max(0, self._last.wanted - (self._given - self._last.given))

    def next(self, wanted: int, step: int, slot_idle: bool) -> Optional[PullParameters]:
        """The next PullParameters, or None if nothing new is to be pulled.

        Few parameters are not pulled singly, unless a slot has nothing to do. The first PullParameters of a connection
        also states that everything has been repeated.
        """
        coming = self.coming
        more = wanted - coming >= max(1, step) or (wanted > coming and slot_idle)
        if self._last is not None and not more and coming <= 2 * wanted:
            return None
        self._last = PullParameters(wanted, self._given)
        return self._last


class Suspensions:
    """The spans in which the batch job was suspended, which do not count as run time. All in microseconds."""

    def __init__(self) -> None:
        self._spans: Deque[Tuple[int, int]] = deque(maxlen=_SPANS_KEPT)

    def note(self, since: int, until: int) -> None:
        self._spans.append((since, until))

    def ran(self, started_at: int, ended_at: int) -> int:
        """The part of that time in which the batch job was not suspended."""
        stood = sum(max(0, min(until, ended_at) - max(since, started_at)) for since, until in self._spans)
        return max(0, ended_at - started_at - stood)


_REACTIONS: Dict[Type[Any], Callable[[Machine, int, Any], List[Any]]] = {
    e.Connected: Machine._on_connected,
    e.Disconnected: Machine._on_disconnected,
    e.Received: Machine._on_received,
    e.Finished: Machine._on_finished,
    e.Looked: Machine._on_looked,
    e.TakenBack: Machine._on_taken_back,
    e.SlotLost: Machine._on_slot_lost,
    e.SlotsStopped: Machine._on_slots_stopped,
    e.Signalled: Machine._on_signalled,
    e.Resumed: Machine._on_resumed,
}
