"""The loop that both worlds run: take events, handle, commit, act, wake up.

It knows clock, store and links as protocols only. What it promises: nothing is done before it is committed; a command
stays in the outbox until its cluster has confirmed it, and is sent again, in doubt, whenever the cluster is connected
anew; an event is acknowledged only after it was committed; and after the host has slept nothing is decided on what
sessions of before have said.
"""

import functools
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from koalapy.engine import Engine
from koalapy.model.change import Change, EpochJump, OutboxEntry
from koalapy.model.commands import (
    CancelAttempt,
    CollectOutput,
    Command,
    ForgetAttempt,
    Hint,
    ReleaseAttempt,
    SubmitAttempt,
)
from koalapy.model.errors import KoalaError, Reason
from koalapy.model.events import (
    ClusterConnected,
    ClusterLost,
    ClusterMeasured,
    Event,
    MeasurementFailed,
    StoreRestored,
)
from koalapy.model.identity import JobId
from koalapy.model.records import Step
from koalapy.model.units import SECOND, Duration, Instant, format_duration

_KEPT = {ClusterConnected, ClusterLost, ClusterMeasured, MeasurementFailed}  # the last of each cluster
_REPORT = "Nothing of it was done. Report this, with koalad's log."
_QUARANTINED = "Nothing of it was taken up. koalad connects again after a while. Report this, with koalad's log."
_LINK_FAILED = "koalad connects again after a while, and says it again. Report this, with koalad's log."


@dataclass(frozen=True, slots=True)
class Delivery:
    """What the driver is handed: events, and the outbox entries that are confirmed with them.

    `acknowledge`: (cluster, epoch, number) of the KCM's newest event in it. `after` is called with the step once it
    is committed; `refused` instead, if its events make the engine fail. `session`: (cluster, epoch) of the session
    that it came over, None for what came over none.
    """

    events: tuple[Event, ...] = ()
    confirmed: tuple[int, ...] = ()
    acknowledge: tuple[str, int, int] | None = None
    after: Callable[[Step], None] | None = None
    session: tuple[str, int] | None = None
    refused: Callable[[Reason], None] | None = None


class Clock(Protocol):
    def now(self) -> Instant:
        """UTC; never runs backwards, and goes on while the host sleeps."""
        ...

    def slept(self) -> Duration:
        """How long the host has slept since this was asked last; 0 if it has not, or too shortly to matter."""
        ...


class Store(Protocol):
    def commit(self, change: Change) -> None:
        """Durable on return. Raises KoalaError, and then nothing of the change was applied.

        Where the error is `lasting` the change never will be.
        """
        ...


class Links(Protocol):
    """The ways to the clusters. No call blocks; what is lost on the way is sent again after the next connect.

    One that raises costs the session with its cluster.
    """

    def send(self, entry: OutboxEntry, doubt: bool) -> None: ...

    def hint(self, hint: Hint) -> None: ...

    def acknowledge(self, cluster: str, epoch: int, number: int) -> None: ...

    def end_sessions(self, reason: Reason) -> Mapping[str, int]:
        """End every session at once, to begin new ones; the epochs of those that were ended, by cluster."""
        ...


class Recorder(Protocol):
    """Whoever takes note of what the engine is given and of what it decides. No call changes anything."""

    def begin(self, engine: Engine) -> None:
        """This engine handles what comes from now on."""
        ...

    def handling(self, now: Instant, events: Sequence[Event]) -> None:
        """The engine is given these events: what koalad found out by itself too, and nothing of ended sessions."""
        ...

    def handled(self, step: Step) -> None: ...

    def failed(self, error: Exception) -> None:
        """The batch failed, in the engine or when it was to be committed."""
        ...


class NoRecorder:
    """Takes note of nothing."""

    def begin(self, engine: Engine) -> None: ...

    def handling(self, now: Instant, events: Sequence[Event]) -> None: ...

    def handled(self, step: Step) -> None: ...

    def failed(self, error: Exception) -> None: ...


Quarantine = Callable[[str, Reason, Exception], None]


@dataclass(frozen=True, slots=True)
class _Group:
    """Deliveries of one cluster, or of one user; `cluster` is None for a user's, and for none at all."""

    cluster: str | None
    deliveries: tuple[Delivery, ...]


class Driver:
    """Drives one engine. Everything but the constructor is called from one thread.

    Whatever the events of one cluster, or of one user, make fail costs that cluster or user. The engine is then made
    anew of what is committed, and of what is known of every cluster; and the batch is handled again group by group. A
    cluster that fails again is quarantined: what it said is dropped, and said again over its next session, for it was
    not acknowledged.
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
        """`outbox`: the snapshot's; `next_number`: above every number used before; `committed`: after each.

        `renew`: an engine of what the store holds now; without it whatever fails is raised. `quarantine`: end the
        session with a cluster, and connect again after a while that grows; returns at once.
        """
        self.engine = engine
        self._store = store
        self._links = links
        self._clock = clock
        self._outbox: dict[int, Command] = {}
        self._unconfirmed: dict[JobId, dict[int, None]] = {}  # of each job, its numbers in the outbox
        self._put_into_outbox(outbox)
        self._next_number = max([next_number, *(number + 1 for number in self._outbox)])
        self._committed = committed
        self._renew, self._quarantine = renew, quarantine
        self._recorder = recorder or NoRecorder()
        self._recorder.begin(engine)
        self._uncommitted: tuple[Change, Sequence[Delivery], Step] | None = None
        self._ended: dict[str, int] = {}  # the epoch of each cluster's newest session that is not heard any more
        self._known: dict[str, tuple[Event, ...]] = {}  # of each cluster what a new engine must be told
        self._sessions: dict[str, int] = {}  # the epoch of each cluster's newest session that was heard
        self._groups: deque[_Group] = deque()  # of a batch that failed, what is yet to be handled again
        self._acting = False  # what is committed is being done: nothing of it may be handled again
        self._group: _Group | None = None  # the one that is handled now
        self._accepted: dict[str, None] = {}  # clusters whose groups were

    def start(self) -> None:
        """What is bound to no cluster, and was under way when the last koalad ended, is done again."""
        for number, command in self._outbox.items():
            if isinstance(command, CollectOutput):
                self._links.send(OutboxEntry(number, command), True)

    def step(self, deliveries: Sequence[Delivery]) -> None:
        """Handle one batch, commit, act. Raises KoalaError if the commit fails: then call `retry` until it does not."""
        now = self._clock.now()
        lost = [Delivery((event,)) for event in self._lost_asleep()]
        heard = [*lost, *(each for each in deliveries if not self._is_of_ended(each))]
        self._guarded(heard, lambda: self._handle(now, heard))

    def _handle(self, now: Instant, deliveries: Sequence[Delivery]) -> None:
        events = [event for delivery in deliveries for event in delivery.events]
        self._recorder.handling(now, events)
        step = self.engine.handle(now, events)
        self._recorder.handled(step)
        if self._group is not None:
            self.engine.summaries(now)  # numbers that nothing reckons with yet are found out
        jump = self._epoch_jump([event for event in events if isinstance(event, StoreRestored)])
        confirmed = [number for delivery in deliveries for number in delivery.confirmed if number in self._outbox]
        self._uncommitted = self._change(step, confirmed, jump), deliveries, step
        self._commit()

    def retry(self) -> None:
        """Commit what could not be committed, and act. Nothing happens where everything is. Raises as `step`."""
        self._guarded(() if self._uncommitted is None else self._uncommitted[1], self._commit)

    def _commit(self) -> None:
        if self._uncommitted is None:
            return
        change, deliveries, step = self._uncommitted
        if not change.empty:
            self._store.commit(change)
        self._uncommitted = None
        self._learn(deliveries)
        self._acting = True
        self._act(change, deliveries, step)
        self._acting = False

    # ---- what costs one cluster or user

    def _guarded(self, deliveries: Sequence[Delivery], act: Callable[[], None]) -> None:
        """Act, and then what is left of a batch that failed. Raises KoalaError for a commit that may yet succeed."""
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
        """Begin anew without what failed alone; all that failed together is handled again, group by group."""
        group, self._uncommitted = self._group, None
        if group is not None:
            self._refuse(group, error)
        assert self._renew is not None
        before, self.engine = self.engine, self._renew()
        self.engine.inherit(before)
        self._recorder.begin(self.engine)
        again = [_Group(None, ())]  # fails only if the engine does without any event
        if group is None:
            again += self._apart(deliveries)
        else:
            again += [_Group(cluster, (Delivery(self._known[cluster]),)) for cluster in self._accepted]
        self._groups.extendleft(reversed(again))

    def _apart(self, deliveries: Sequence[Delivery]) -> list[_Group]:
        """Users first, each delivery by itself: so a cluster whose numbers break a user's request is found out."""
        users = [_Group(None, (each,)) for each in deliveries if _speaker(each) is None]
        names = dict.fromkeys([*self._known, *(name for each in deliveries if (name := _speaker(each)) is not None)])
        of_clusters = []
        for name in names:
            said = tuple(each for each in deliveries if _speaker(each) == name)
            of_clusters.append(_Group(name, (Delivery(self._known.get(name, ())), *said)))
        return users + of_clusters

    def _refuse(self, group: _Group, error: Exception) -> None:
        """Raises the error where nobody is to blame."""
        what = f"{type(error).__name__}: {str(error)[:200]}"
        cluster = group.cluster
        if cluster is None:
            if not group.deliveries:
                raise error
            refused = group.deliveries[0].refused
            if refused is not None:
                refused(Reason("not_understood", "ours", f"koalad failed over this request ({what}).", _REPORT))
            return
        if self._known.get(cluster) and isinstance(self._known[cluster][0], ClusterLost) and not group.deliveries[1:]:
            raise error
        reason = Reason("quarantined", "ours", f"What the cluster said made koalad fail ({what}).", _QUARANTINED)
        self._ended[cluster] = self._sessions.get(cluster, 0)
        for each in group.deliveries:
            if each.session is not None:
                self._ended[cluster] = max(self._ended[cluster], each.session[1])
        self._known[cluster] = (ClusterLost(cluster=cluster, reason=reason),)
        self._accepted[cluster] = None
        self._quarantine(cluster, reason, error)

    def _learn(self, deliveries: Sequence[Delivery]) -> None:
        """Keep of each cluster what it would have to say again to an engine that is new."""
        for delivery in deliveries:
            if delivery.session is not None:
                self._sessions[delivery.session[0]] = delivery.session[1]
            for event in delivery.events:
                if type(event) not in _KEPT:
                    continue
                if isinstance(event, ClusterLost):
                    self._known[event.cluster] = (event,)
                elif isinstance(event, ClusterConnected):
                    before = self._known.get(event.cluster, ())
                    recalled = [each for each in before if isinstance(each, ClusterConnected) and each.recalled]
                    self._known[event.cluster] = (*recalled[-1:], event)
                elif isinstance(event, ClusterMeasured | MeasurementFailed):
                    before = self._known.get(event.cluster, ())
                    kept = [each for each in before if not isinstance(each, ClusterMeasured | MeasurementFailed)]
                    self._known[event.cluster] = (*kept, event)

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
        clusters = sorted(self.engine.core.information.reachable | ended.keys())
        return [ClusterLost(cluster=cluster, reason=reason) for cluster in clusters]

    def _is_of_ended(self, delivery: Delivery) -> bool:
        """Neither handled nor acknowledged nor confirmed: it counts as lost with its session, and is said again."""
        if delivery.session is None:
            return False
        cluster, epoch = delivery.session
        return epoch <= self._ended.get(cluster, -1)

    def _epoch_jump(self, restored: list[StoreRestored]) -> EpochJump | None:
        if not restored:
            return None
        jump = EpochJump(max(event.epoch for event in restored), max(event.last_number for event in restored))
        self._next_number = max(self._next_number, jump.last_number + 1)
        return jump

    def _change(self, step: Step, confirmed: list[int], jump: EpochJump | None) -> Change:
        sent = tuple(self._numbered(command) for command in step.commands)
        superseded = [number for entry in sent for number in self._superseded_by(entry)]
        superseded += self._left_behind(step.removed)
        return Change(
            jobs=step.jobs,
            debts=step.debts,
            settled=step.settled,
            counters=step.counters,
            history=step.history,
            sent=sent,
            confirmed=tuple(dict.fromkeys([*confirmed, *superseded])),
            epoch_jump=jump,
            results=step.results,
            learned=step.learned,
            usage=step.usage,
            accounted=step.accounted,
            new=step.new,
            removed=step.removed,
        )

    def _numbered(self, command: Command) -> OutboxEntry:
        self._next_number += 1
        return OutboxEntry(self._next_number - 1, command)

    def _superseded_by(self, entry: OutboxEntry) -> list[int]:
        """A cancel supersedes whatever was to be sent to its attempt before it."""
        if not isinstance(entry.command, CancelAttempt):
            return []
        attempt = entry.command.attempt
        return [
            number
            for number, command in self._outbox_of_job(attempt.job)
            if isinstance(command, SubmitAttempt | ReleaseAttempt | CancelAttempt) and command.attempt == attempt
        ]

    def _left_behind(self, removed: tuple[JobId, ...]) -> list[int]:
        """What is yet to be said of directories of pruned jobs: their clusters were given up."""
        return [
            number
            for job in removed
            for number, command in self._outbox_of_job(job)
            if isinstance(command, ForgetAttempt)
        ]

    def _act(self, change: Change, deliveries: Sequence[Delivery], step: Step) -> None:
        for number in change.confirmed:
            self._drop_from_outbox(number)
        again = self._outbox_of(
            {event.cluster for each in deliveries for event in each.events if isinstance(event, ClusterConnected)}
        )
        self._put_into_outbox(change.sent)
        failed: set[str] = set()
        for delivery in deliveries:
            if (told := delivery.acknowledge) is not None:
                self._over_link(told[0], failed, self._links.acknowledge, *told)
        for entry in again:
            self._over_link(cluster_of(entry.command), failed, self._links.send, entry, True)
        for entry in change.sent:
            doubt = self._is_doubtful(entry.command)
            self._over_link(cluster_of(entry.command), failed, self._links.send, entry, doubt)
        for hint in step.hints:
            self._over_link(hint.cluster, failed, self._links.hint, hint)
        for delivery in deliveries:
            if delivery.after is not None:
                delivery.after(step)
        self._committed(change)

    def _over_link(self, cluster: str | None, failed: set[str], call: Callable[..., None], *arguments: object) -> None:
        """Make this call; one that raises ends the session with its cluster, and no other call is made over that.

        What is committed stays so, and is sent again over the next session. Without a cluster to blame it is raised.
        """
        if cluster in failed:
            return
        try:
            call(*arguments)
        except Exception as error:
            if cluster is None or self._renew is None:
                raise
            failed.add(cluster)
            self._ended[cluster] = max(self._ended.get(cluster, -1), self._sessions.get(cluster, -1))
            what = f"{type(error).__name__}: {str(error)[:200]}"
            reason = Reason("link_failed", "ours", f"koalad's link to the cluster failed ({what}).", _LINK_FAILED)
            self._quarantine(cluster, reason, error)

    def _is_doubtful(self, command: Command) -> bool:
        """A store that was restored from a backup does not know what was submitted after it."""
        below = self.engine.records.counters.doubtful_below
        return isinstance(command, SubmitAttempt) and command.attempt.job < below

    # ---- the outbox

    def _put_into_outbox(self, entries: Iterable[OutboxEntry]) -> None:
        for entry in entries:
            self._outbox[entry.number] = entry.command
            self._unconfirmed.setdefault(_job_of(entry.command), {})[entry.number] = None

    def _drop_from_outbox(self, number: int) -> None:
        """Nothing happens to a number that was confirmed before."""
        command = self._outbox.pop(number, None)
        if command is None:
            return
        job = _job_of(command)
        del self._unconfirmed[job][number]
        if not self._unconfirmed[job]:
            del self._unconfirmed[job]

    def _outbox_of_job(self, job: JobId) -> Iterable[tuple[int, Command]]:
        """What is not confirmed of the job, oldest first."""
        return ((number, self._outbox[number]) for number in self._unconfirmed.get(job, ()))

    def _outbox_of(self, clusters: set[str]) -> list[OutboxEntry]:
        """What these clusters have not confirmed, oldest first; most steps connect no cluster and look at nothing."""
        if not clusters:
            return []
        return [
            OutboxEntry(number, command)
            for number, command in sorted(self._outbox.items(), key=lambda item: item[0])
            if cluster_of(command) in clusters
        ]


def host_slept(duration: Duration) -> Reason:
    """Why every session was ended; to whole seconds."""
    slept = format_duration(Duration(duration // SECOND * SECOND))
    return Reason("host_slept", "transient", f"koalad's host slept for {slept}.", "koalad connects again by itself.")


def _speaker(delivery: Delivery) -> str | None:
    """The cluster that a delivery is of; None for a user's, and for what koalad found out by itself."""
    if delivery.session is not None:
        return delivery.session[0]
    if delivery.acknowledge is not None:
        return delivery.acknowledge[0]
    return next((str(event.cluster) for event in delivery.events if hasattr(event, "cluster")), None)


def _job_of(command: Command) -> JobId:
    return command.job if isinstance(command, CollectOutput) else command.attempt.job


def cluster_of(command: Command) -> str | None:
    """The cluster that a command goes to, None for one that goes to several."""
    if isinstance(command, SubmitAttempt | ReleaseAttempt | CancelAttempt | ForgetAttempt):
        return command.cluster
    return None
