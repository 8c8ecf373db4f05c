"""The loop that both worlds run: take events, handle, commit, act, wake up.

It knows clock, store and links as protocols only. What it promises: nothing is done before it is committed; a command
stays in the outbox until its cluster has confirmed it, and is sent again, in doubt, whenever the cluster is connected
anew; an event is acknowledged only after it was committed; and after the host has slept nothing is decided on what
sessions of before have said.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from koalapy.engine import Engine
from koalapy.model.change import Change, Leap, OutboxEntry
from koalapy.model.commands import (
    CancelComponent,
    CollectOutput,
    Command,
    ForgetComponent,
    ReleaseComponent,
    SubmitComponent,
    Word,
)
from koalapy.model.errors import Reason
from koalapy.model.events import ClusterConnected, ClusterLost, Event, StoreRestored
from koalapy.model.records import Step
from koalapy.model.units import SECOND, Duration, Instant, format_duration


@dataclass(frozen=True, slots=True)
class Delivery:
    """What the driver is handed: events, and the outbox entries that are confirmed with them.

    `acknowledge`: (cluster, epoch, number) of the KCM's newest event in it. `after` is called with the step once it
    is committed. `session`: (cluster, epoch) of the session that it came over, None for what came over none.
    """

    events: tuple[Event, ...] = ()
    confirmed: tuple[int, ...] = ()
    acknowledge: tuple[str, int, int] | None = None
    after: Callable[[Step], None] | None = None
    session: tuple[str, int] | None = None


class Clock(Protocol):
    def now(self) -> Instant:
        """UTC; never runs backwards, and goes on while the host sleeps."""
        ...

    def slept(self) -> Duration:
        """How long the host has slept since this was asked last; 0 if it has not, or too shortly to matter."""
        ...


class Store(Protocol):
    def commit(self, change: Change) -> None:
        """Durable on return. Raises KoalaError, and then nothing of the change was applied."""
        ...


class Links(Protocol):
    """The ways to the clusters. No call blocks; what is lost on the way is sent again after the next connect."""

    def send(self, entry: OutboxEntry, doubt: bool) -> None: ...

    def say(self, word: Word) -> None: ...

    def acknowledge(self, cluster: str, epoch: int, number: int) -> None: ...

    def end_sessions(self, reason: Reason) -> Mapping[str, int]:
        """End every session at once, to begin new ones; the epochs of those that were ended, by cluster."""
        ...


class Driver:
    """Drives one engine. Everything but the constructor is called from one thread."""

    def __init__(
        self,
        engine: Engine,
        store: Store,
        links: Links,
        clock: Clock,
        outbox: Iterable[OutboxEntry] = (),
        next_number: int = 1,
        committed: Callable[[Change], None] = lambda change: None,
    ) -> None:
        """`outbox`: the snapshot's; `next_number`: above every number used before; `committed`: after each."""
        self.engine = engine
        self._store = store
        self._links = links
        self._clock = clock
        self._outbox = {entry.number: entry.command for entry in outbox}
        self._next_number = max([next_number, *(number + 1 for number in self._outbox)])
        self._committed = committed
        self._uncommitted: tuple[Change, Sequence[Delivery], Step] | None = None
        self._ended: dict[str, int] = {}  # the epoch of each cluster's newest session that the host's sleep has ended

    def start(self) -> None:
        """What is bound to no cluster, and was under way when the last koalad ended, is done again."""
        for number, command in self._outbox.items():
            if isinstance(command, CollectOutput):
                self._links.send(OutboxEntry(number, command), True)

    def step(self, deliveries: Sequence[Delivery]) -> None:
        """Handle one batch, commit, act. Raises KoalaError if the commit fails: then call `retry` until it does not."""
        now = self._clock.now()
        lost = self._lost_asleep()
        deliveries = [each for each in deliveries if not self._is_of_ended(each)]
        events = [*lost, *(event for delivery in deliveries for event in delivery.events)]
        step = self.engine.handle(now, events)
        leap = self._leap([event for event in events if isinstance(event, StoreRestored)])
        confirmed = [number for delivery in deliveries for number in delivery.confirmed if number in self._outbox]
        self._uncommitted = self._change(step, confirmed, leap), deliveries, step
        self.retry()

    def retry(self) -> None:
        """Commit what could not be committed, and act. Nothing happens where everything is."""
        if self._uncommitted is None:
            return
        change, deliveries, step = self._uncommitted
        if not change.empty:
            self._store.commit(change)
        self._uncommitted = None
        self._act(change, deliveries, step)

    def next_wakeup(self) -> Instant | None:
        return self.engine.next_wakeup()

    def _lost_asleep(self) -> list[Event]:
        """Every cluster counts as out of reach after the host has slept.

        Who has come to a barrier may have left it meanwhile, and what old connections bring may be as old as they are.
        """
        slept = self._clock.slept()
        if not slept:
            return []
        reason = host_slept(slept)
        ended = self._links.end_sessions(reason)
        self._ended |= ended
        clusters = sorted(self.engine.known.reachable | ended.keys())
        return [ClusterLost(cluster=cluster, reason=reason) for cluster in clusters]

    def _is_of_ended(self, delivery: Delivery) -> bool:
        """Neither handled nor acknowledged nor confirmed: it counts as lost with its session, and is said again."""
        if delivery.session is None:
            return False
        cluster, epoch = delivery.session
        return epoch <= self._ended.get(cluster, -1)

    def _leap(self, restored: list[StoreRestored]) -> Leap | None:
        if not restored:
            return None
        leap = Leap(max(event.epoch for event in restored), max(event.last_number for event in restored))
        self._next_number = max(self._next_number, leap.last_number + 1)
        return leap

    def _change(self, step: Step, confirmed: list[int], leap: Leap | None) -> Change:
        sent = tuple(self._numbered(command) for command in step.commands)
        superseded = [number for entry in sent for number in self._superseded_by(entry)]
        return Change(
            jobs=step.jobs,
            debts=step.debts,
            settled=step.settled,
            counters=step.counters,
            history=step.history,
            sent=sent,
            confirmed=tuple(dict.fromkeys([*confirmed, *superseded])),
            leap=leap,
            results=step.results,
            learned=step.learned,
            new=step.new,
        )

    def _numbered(self, command: Command) -> OutboxEntry:
        self._next_number += 1
        return OutboxEntry(self._next_number - 1, command)

    def _superseded_by(self, entry: OutboxEntry) -> list[int]:
        """A cancel supersedes whatever was to be sent to its attempt before it."""
        if not isinstance(entry.command, CancelComponent):
            return []
        attempt = entry.command.attempt
        return [
            number
            for number, command in self._outbox.items()
            if isinstance(command, SubmitComponent | ReleaseComponent | CancelComponent) and command.attempt == attempt
        ]

    def _act(self, change: Change, deliveries: Sequence[Delivery], step: Step) -> None:
        for number in change.confirmed:
            self._outbox.pop(number, None)
        again = self._outbox_of(
            {event.cluster for each in deliveries for event in each.events if isinstance(event, ClusterConnected)}
        )
        self._outbox |= {entry.number: entry.command for entry in change.sent}
        for delivery in deliveries:
            if delivery.acknowledge is not None:
                self._links.acknowledge(*delivery.acknowledge)
        for entry in again:
            self._links.send(entry, True)
        for entry in change.sent:
            self._links.send(entry, self._is_doubtful(entry.command))
        for word in step.words:
            self._links.say(word)
        for delivery in deliveries:
            if delivery.after is not None:
                delivery.after(step)
        self._committed(change)

    def _is_doubtful(self, command: Command) -> bool:
        """A store that was restored from a backup does not know what was submitted after it."""
        below = self.engine.records.counters.doubtful_below
        return isinstance(command, SubmitComponent) and command.attempt.job < below

    def _outbox_of(self, clusters: set[str]) -> list[OutboxEntry]:
        """What these clusters have not confirmed, oldest first."""
        return [
            OutboxEntry(number, command)
            for number, command in sorted(self._outbox.items(), key=lambda item: item[0])
            if cluster_of(command) in clusters
        ]


def host_slept(duration: Duration) -> Reason:
    """Why every session was ended; to whole seconds."""
    slept = format_duration(Duration(duration // SECOND * SECOND))
    return Reason("host_slept", "transient", f"koalad's host slept for {slept}.", "koalad connects again by itself.")


def cluster_of(command: Command) -> str | None:
    """The cluster that a command goes to, None for one that goes to several."""
    if isinstance(command, SubmitComponent | ReleaseComponent | CancelComponent | ForgetComponent):
        return command.cluster
    return None
