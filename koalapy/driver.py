"""The loop that both worlds run: take events, handle, commit, act, wake up.

It knows clock, store and links as protocols only. What it promises: nothing is done before it is committed; a command
stays in the outbox until its cluster has confirmed it, and is sent again, in doubt, whenever the cluster is connected
anew; an event is acknowledged only after it was committed.
"""

from collections.abc import Callable, Iterable, Sequence
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
from koalapy.model.events import ClusterConnected, Event, StoreRestored
from koalapy.model.records import Step
from koalapy.model.units import Instant


@dataclass(frozen=True, slots=True)
class Delivery:
    """What the driver is handed: events, and the outbox entries that are confirmed with them.

    `acknowledge`: (cluster, epoch, number) of the KCM's newest event in it. `after` is called with the step once it
    is committed.
    """

    events: tuple[Event, ...] = ()
    confirmed: tuple[int, ...] = ()
    acknowledge: tuple[str, int, int] | None = None
    after: Callable[[Step], None] | None = None


class Clock(Protocol):
    def now(self) -> Instant:
        """UTC; never runs backwards."""
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

    def start(self) -> None:
        """What is bound to no cluster, and was under way when the last koalad ended, is done again."""
        for number, command in self._outbox.items():
            if isinstance(command, CollectOutput):
                self._links.send(OutboxEntry(number, command), True)

    def step(self, deliveries: Sequence[Delivery]) -> None:
        """Handle one batch, commit, act. Raises KoalaError if the commit fails: then call `retry` until it does not."""
        events = [event for delivery in deliveries for event in delivery.events]
        step = self.engine.handle(self._clock.now(), events)
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


def cluster_of(command: Command) -> str | None:
    """The cluster that a command goes to, None for one that goes to several."""
    if isinstance(command, SubmitComponent | ReleaseComponent | CancelComponent | ForgetComponent):
        return command.cluster
    return None
