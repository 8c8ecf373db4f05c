"""The loop that koalad and the simulated world run: take events, handle them, commit, act, wake up.

The driver knows clock, store and links as protocols only. No command is carried out before its commit. A command stays
in the outbox until its cluster has confirmed it, and is sent again, in doubt, whenever the cluster connects anew. An
event is acknowledged only after it was committed. After the host has slept, no decision uses reports of earlier
sessions.
"""

import functools
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from koalapy.driver.last_known import LastKnown
from koalapy.driver.outbox import Outbox
from koalapy.engine import Engine
from koalapy.model.change import Change, EpochJump, OutboxEntry
from koalapy.model.commands import ClusterHint, Command, Hint, SubmitAttempt, destination_of
from koalapy.model.errors import KoalaError, Reason
from koalapy.model.events import (
    ClusterConnected,
    ClusterLeft,
    ClusterLost,
    Event,
    NeighbourEvent,
    NeighbourLeft,
    StoreRestored,
)
from koalapy.model.identity import is_site, origin_of_site
from koalapy.model.records import Step
from koalapy.model.units import SECOND, Duration, Instant, format_duration

_REPORT = "Nothing of it was done. Report this, with koalad's log."
_QUARANTINED = "Nothing of it was taken up. koalad connects again after a while. Report this, with koalad's log."
_LINK_FAILED = "koalad connects again after a while, and sends it again. Report this, with koalad's log."


@dataclass(frozen=True, slots=True)
class Delivery:
    """Events for the driver, with the numbers of the outbox entries that are confirmed with them.

    `acknowledge`: (cluster, epoch, number) of the newest KCM event among them. `after` is called with the step once it
    is committed; `refused` is called instead, if the events make the engine fail. `session`: (cluster, epoch) of the
    session that brought the events; None if no session did. `renews`: the driver then goes on with a new engine, since
    settings that hold for the whole grid have changed.
    """

    events: tuple[Event, ...] = ()
    confirmed: tuple[int, ...] = ()
    acknowledge: tuple[str, int, int] | None = None
    after: Callable[[Step], None] | None = None
    session: tuple[str, int] | None = None
    refused: Callable[[Reason], None] | None = None
    renews: bool = False


class Clock(Protocol):
    def now(self) -> Instant:
        """Return the present instant in UTC. It never runs backwards, and goes on while the host sleeps."""
        ...

    def slept(self) -> Duration:
        """Return how long the host has slept since the last call; 0 if it has not, or too shortly to matter."""
        ...


class Store(Protocol):
    def commit(self, change: Change) -> None:
        """Commit the change durably. Raises KoalaError if nothing of the change was applied.

        If the error is `lasting`, the same change can never be committed.
        """
        ...


class Links(Protocol):
    """The links to the clusters. No call blocks. An order that a link loses is sent again after its next connect.

    A call that raises ends the session with its cluster.
    """

    def send(self, entry: OutboxEntry, doubt: bool) -> None: ...

    def hint(self, hint: Hint) -> None: ...

    def acknowledge(self, cluster: str, epoch: int, number: int) -> None: ...

    def end_sessions(self, reason: Reason) -> Mapping[str, int]:
        """End every session at once, to begin new ones. Returns the epochs of the ended sessions, by cluster."""
        ...


class Recorder(Protocol):
    """A recorder of the engine's events and decisions. No call changes anything."""

    def begin(self, engine: Engine) -> None:
        """Record that this engine handles the events from now on."""
        ...

    def handling(self, now: Instant, events: Sequence[Event]) -> None:
        """Record the events that the engine is about to handle.

        koalad's own are included; those of ended sessions are not.
        """
        ...

    def handled(self, step: Step) -> None: ...

    def failed(self, error: Exception) -> None:
        """Record that the batch failed, in the engine or at its commit."""
        ...


class NoRecorder:
    """A recorder that records nothing."""

    def begin(self, engine: Engine) -> None: ...

    def handling(self, now: Instant, events: Sequence[Event]) -> None: ...

    def handled(self, step: Step) -> None: ...

    def failed(self, error: Exception) -> None: ...


Quarantine = Callable[[str, Reason, Exception], None]


@dataclass(frozen=True, slots=True)
class _Group:
    """Deliveries of one cluster or of one user. `cluster` is None for a user's, and for a group without deliveries."""

    cluster: str | None
    deliveries: tuple[Delivery, ...]


class Driver:
    """The driver of one engine. Everything but the constructor is called from one thread.

    If events of one cluster or user make the engine fail, only that cluster or user is affected. The driver makes a new
    engine from what is committed, and from what is known of every cluster. Then the driver handles the batch again,
    group by group. A cluster that fails again is quarantined. Its events are dropped; the KCM reports them again over
    its next session, since they were not acknowledged.
    """

    def __init__(
        self,
        engine: Engine,
        store: Store,
        links: Links,
        clock: Clock,
        outbox: Iterable[OutboxEntry] = (),
        next_number: int = 1,
        committed: Callable[[Change], None] = lambda change: None,
        renew: Callable[[], Engine] | None = None,
        quarantine: Quarantine = lambda cluster, reason, error: None,
        recorder: Recorder | None = None,
    ) -> None:
        """Make a driver; nothing is sent before `start` or `step`.

        `outbox`: entries of the snapshot. `next_number`: greater than every number used before. `committed`: called
        with each change after its commit. `renew`: returns a new engine of the store's present contents; without it
        every failure is raised. `quarantine`: ends the session with a cluster and returns at once; each time, the next
        connect is delayed for longer.
        """
        self.engine = engine
        self._store = store
        self._links = links
        self._clock = clock
        self._outbox = Outbox(outbox, next_number)
        self._committed = committed
        self._renew, self._quarantine = renew, quarantine
        self._recorder = recorder or NoRecorder()
        self._recorder.begin(engine)
        self._uncommitted: tuple[Step, Sequence[Delivery]] | None = None
        self._known = LastKnown()
        self._groups: deque[_Group] = deque()  # groups of a failed batch that are yet to be handled again
        self._acting = False  # a committed step is being carried out, and must not be handled again
        self._group: _Group | None = None  # the group that is handled now
        self._accepted: dict[str, None] = {}  # clusters whose groups were handled
        self._renewing = False  # a committed delivery renews the engine

    def start(self) -> None:
        """Send the unconfirmed commands that belong to no single cluster again, in doubt, those to neighbours too."""
        for entry in self._outbox.to_no_single_cluster():
            self._links.send(entry, True)

    def step(self, deliveries: Sequence[Delivery]) -> None:
        """Handle one batch, commit and act. Raises KoalaError if the commit fails; call `retry` until it succeeds."""
        now = self._clock.now()
        lost = [Delivery((event,)) for event in self._lost_asleep()]
        current = [*lost, *(each for each in deliveries if not self._is_of_ended(each))]
        self._guarded(current, lambda: self._handle(now, current))
        self._go_on_anew()

    def _handle(self, now: Instant, deliveries: Sequence[Delivery]) -> None:
        events = [event for delivery in deliveries for event in delivery.events]
        self._recorder.handling(now, events)
        step = self.engine.handle(now, events)
        self._recorder.handled(step)
        if self._group is not None:
            self.engine.summaries(now)  # raises for measurements that would make a later decision fail
        step.epoch_jump = self._epoch_jump([event for event in events if isinstance(event, StoreRestored)])
        confirmed = [number for delivery in deliveries for number in delivery.confirmed if number in self._outbox]
        left = [event.name for event in events if isinstance(event, ClusterLeft)]
        confirmed += [entry.number for entry in self._outbox.to_clusters(left)]
        parted = [event.neighbour for event in events if isinstance(event, NeighbourLeft)]
        confirmed += [entry.number for entry in self._outbox.to_neighbours(parted)]
        self._number(step, confirmed)
        self._uncommitted = step, deliveries
        self._commit()

    def retry(self) -> None:
        """Commit the change whose commit failed, and act; nothing happens without one. Raises as `step` does."""
        self._guarded(() if self._uncommitted is None else self._uncommitted[1], self._commit)
        self._go_on_anew()

    def _commit(self) -> None:
        if self._uncommitted is None:
            return
        step, deliveries = self._uncommitted
        if not step.empty:
            self._store.commit(step)
        self._uncommitted = None
        for each in deliveries:
            self._known.learn(each.events, each.session, self.engine.core.departed)
            self._renewing |= each.renews
        self._acting = True
        self._act(deliveries, step)
        self._acting = False

    # ---- failures, which affect one cluster or user only

    def _guarded(self, deliveries: Sequence[Delivery], act: Callable[[], None]) -> None:
        """Act, then handle the remaining groups of a batch that failed.

        Raises KoalaError for a commit that may yet succeed. Raises any error after a commit, and every error without
        `renew`.
        """
        while True:
            try:
                act()
            except Exception as error:
                passing = isinstance(error, KoalaError) and not error.lasting and self._uncommitted is not None
                if not passing:
                    self._recorder.failed(error)
                if passing or self._acting or self._renew is None:
                    raise
                self._fail(deliveries, error)
            else:
                if self._group is not None and self._group.cluster is not None:
                    self._accepted[self._group.cluster] = None
            if not self._groups:
                self._group, self._accepted = None, {}
                return
            group = self._group = self._groups.popleft()
            deliveries = [each for each in group.deliveries if not self._is_of_ended(each)]
            act = functools.partial(self._handle, self._clock.now(), deliveries)

    def _fail(self, deliveries: Sequence[Delivery], error: Exception) -> None:
        """Go on with a new engine after a failure.

        A group that failed by itself is refused. A batch that failed as a whole is handled again, group by group.
        """
        group, self._uncommitted = self._group, None
        if group is not None:
            self._refuse(group, error)
        self._replace_engine()
        again = [_Group(None, ())]  # fails only if the engine fails without any event
        if group is None:
            again += self._apart(deliveries)
        else:
            again += [_Group(cluster, (Delivery(self._known.of(cluster)),)) for cluster in self._accepted]
        self._groups.extendleft(reversed(again))

    def _go_on_anew(self) -> None:
        """Go on with a new engine if a committed delivery renews it. Raises as `step` does.

        Its first decision knows all clusters. With a part of them, jobs would pass others that wait for the rest.
        """
        if not self._renewing:
            return
        self._renewing = False
        self._replace_engine()
        known = [Delivery(self._known.of(cluster)) for cluster in self._known.clusters]
        self._guarded(known, lambda: self._handle(self._clock.now(), known))

    def _replace_engine(self) -> None:
        """Make a new engine of what is committed. It inherits what no store keeps and no cluster reports again."""
        assert self._renew is not None
        before, self.engine = self.engine, self._renew()
        self.engine.inherit(before)
        self._recorder.begin(self.engine)

    def _apart(self, deliveries: Sequence[Delivery]) -> list[_Group]:
        """Split deliveries into groups: first each delivery of a user by itself, then one group for each cluster.

        Thereby a cluster whose measurements make the request of a user fail is identified.
        """
        users = [_Group(None, (each,)) for each in deliveries if _origin(each) is None]
        origins = [name for each in deliveries if (name := _origin(each)) is not None]
        names = dict.fromkeys([*self._known.clusters, *origins])
        of_clusters = []
        for name in names:
            theirs = tuple(each for each in deliveries if _origin(each) == name)
            of_clusters.append(_Group(name, (Delivery(self._known.of(name)), *theirs)))
        return users + of_clusters

    def _refuse(self, group: _Group, error: Exception) -> None:
        """Refuse the group that made the engine fail. Raises the error if neither a user nor a cluster is to blame."""
        what = f"{type(error).__name__}: {str(error)[:200]}"
        cluster = group.cluster
        if cluster is None:
            if not group.deliveries:
                raise error
            refused = group.deliveries[0].refused
            if refused is not None:
                refused(Reason("not_understood", "ours", f"koalad failed over this request ({what}).", _REPORT))
            return
        if self._known.is_lost(cluster) and not group.deliveries[1:]:
            raise error
        who = "neighbour" if is_site(cluster) else "cluster"
        reason = Reason("quarantined", "ours", f"A report of the {who} made koalad fail ({what}).", _QUARANTINED)
        sessions = [each.session for each in group.deliveries if each.session is not None]
        self._known.quarantine(cluster, reason, [epoch for _, epoch in sessions])
        self._accepted[cluster] = None
        self._quarantine(cluster, reason, error)

    def next_wakeup(self) -> Instant | None:
        return self.engine.next_wakeup()

    def _lost_asleep(self) -> list[Event]:
        """End all sessions if the host has slept. Returns a ClusterLost for each cluster in reach.

        A component may have left its barrier meanwhile, and reports over old connections may be outdated.
        """
        slept = self._clock.slept()
        if not slept:
            return []
        reason = host_slept(slept)
        ended = self._links.end_sessions(reason)
        self._known.end(ended)
        clusters = sorted(self.engine.core.information.reachable | ended.keys())
        clusters = [cluster for cluster in clusters if not is_site(cluster)]
        return [ClusterLost(cluster=cluster, reason=reason) for cluster in clusters]

    def _is_of_ended(self, delivery: Delivery) -> bool:
        """Return whether a delivery came over an ended session.

        Such a delivery is neither handled nor acknowledged nor confirmed. It counts as lost with its session, and the
        KCM reports it again.
        """
        return delivery.session is not None and self._known.has_ended(delivery.session)

    def _epoch_jump(self, restored: list[StoreRestored]) -> EpochJump | None:
        if not restored:
            return None
        jump = EpochJump(max(event.epoch for event in restored), max(event.last_number for event in restored))
        self._outbox.skip_past(jump.last_number)
        return jump

    def _number(self, step: Step, confirmed: list[int]) -> None:
        """Number the step's commands, which are sent as entries of the outbox, and confirm what needs no sending."""
        step.sent = self._outbox.number(step.commands)
        superseded = [number for entry in step.sent for number in self._outbox.superseded_by(entry)]
        superseded += self._outbox.left_behind_by(step.removed)
        step.confirmed = tuple(dict.fromkeys([*confirmed, *superseded]))

    def _act(self, deliveries: Sequence[Delivery], step: Step) -> None:
        self._outbox.drop(step.confirmed)
        connected = {
            event.cluster for each in deliveries for event in each.events if isinstance(event, ClusterConnected)
        }
        again = self._outbox.to_clusters(connected)
        self._outbox.put(step.sent)
        failed: set[str] = set()
        for delivery in deliveries:
            if (newest := delivery.acknowledge) is not None:
                self._by_link(newest[0], failed, self._links.acknowledge, *newest)
        for entry in again:
            self._by_link(destination_of(entry.command), failed, self._links.send, entry, True)
        for entry in step.sent:
            doubt = self._is_doubtful(entry.command)
            self._by_link(destination_of(entry.command), failed, self._links.send, entry, doubt)
        for hint in step.hints:
            self._by_link(hint.cluster if isinstance(hint, ClusterHint) else None, failed, self._links.hint, hint)
        for delivery in deliveries:
            if delivery.after is not None:
                delivery.after(step)
        self._committed(step)

    def _by_link(self, cluster: str | None, failed: set[str], call: Callable[..., None], *arguments: object) -> None:
        """Make this call of a link; end the session with its cluster if it raises, and skip further calls there.

        Committed commands are sent again over the next session. Raises the error if no cluster is to blame, or without
        `renew`.
        """
        if cluster in failed:
            return
        try:
            call(*arguments)
        except Exception as error:
            if cluster is None or self._renew is None:
                raise
            failed.add(cluster)
            self._known.end_newest(cluster)
            what = f"{type(error).__name__}: {str(error)[:200]}"
            reason = Reason("link_failed", "ours", f"koalad's link to the cluster failed ({what}).", _LINK_FAILED)
            self._quarantine(cluster, reason, error)

    def _is_doubtful(self, command: Command) -> bool:
        """Return whether a Submit is in doubt: a restored store does not know what was submitted after its backup."""
        below = self.engine.records.counters.doubtful_below
        return isinstance(command, SubmitAttempt) and command.attempt.job < below


def host_slept(duration: Duration) -> Reason:
    """Return the reason for the end of every session after a sleep, which is given in whole seconds."""
    slept = format_duration(Duration(duration // SECOND * SECOND))
    return Reason("host_slept", "transient", f"koalad's host slept for {slept}.", "koalad connects again by itself.")


def _origin(delivery: Delivery) -> str | None:
    """Return the cluster or site that a delivery comes from; None for a delivery of a user or of koalad itself."""
    if delivery.session is not None:
        return delivery.session[0]
    if delivery.acknowledge is not None:
        return delivery.acknowledge[0]
    for event in delivery.events:
        if isinstance(event, NeighbourEvent):
            return origin_of_site(event.neighbour)
        if hasattr(event, "cluster"):
            return str(event.cluster)
    return None
