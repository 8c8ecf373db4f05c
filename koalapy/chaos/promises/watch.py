"""The observer of a world: it is called with every event, and runs the checkers that it concerns."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from koalapy.chaos.promises import quiescence
from koalapy.chaos.promises.claims import Choices, Claims
from koalapy.chaos.promises.committed import Committed
from koalapy.chaos.promises.contents import Contents, Streams
from koalapy.chaos.promises.departures import Departures
from koalapy.chaos.promises.flows import Flows
from koalapy.chaos.promises.jobs import Jobs
from koalapy.chaos.promises.knowledge import ClusterKnowledge, Decided, Processors
from koalapy.chaos.promises.launchers import Launchers
from koalapy.chaos.promises.limits import Limits
from koalapy.chaos.promises.logins import Contacts, Logins
from koalapy.chaos.promises.notifications import Notifications
from koalapy.chaos.promises.preemption import Preemption
from koalapy.chaos.promises.programs import Programs
from koalapy.chaos.promises.pruned import Pruned
from koalapy.chaos.promises.queues import LocalUsers, Queues
from koalapy.chaos.promises.races import Races
from koalapy.chaos.promises.ranges import Ranges
from koalapy.chaos.promises.refusals import Refusals
from koalapy.chaos.promises.sweeps import Sweeps
from koalapy.chaos.promises.times import Times
from koalapy.chaos.promises.waiting import Starts, Waiting
from koalapy.chaos.violation import Promise, Violation, promise
from koalapy.driver.driver import Delivery
from koalapy.engine import Engine
from koalapy.link.session import LinkStatus
from koalapy.model.change import Change, OutboxEntry, Snapshot
from koalapy.model.commands import CollectOutput
from koalapy.model.events import ClusterLeft, ClusterLost, Event
from koalapy.model.history import HistoryKind
from koalapy.model.identity import AttemptId, Tag, tag_of
from koalapy.model.notification import NotificationId
from koalapy.model.pilot import job_of_pilot
from koalapy.model.states import PilotState
from koalapy.model.units import Instant
from koalapy.store.contract import Store
from koalapy.world.agenda import Agenda
from koalapy.world.cluster.cluster import SimCluster
from koalapy.world.program_log import LogEntry, Try
from koalapy.world.streams import Stream
from koalapy.world.world import World

Note = Callable[[str], None]  # notes one line


class Watch:
    """All checkers of one world. `check` raises the first broken promise, after the event: callers must not fail.

    `note` is called with one line for each event that matters. Two runs are the same if their lines are.
    """

    def __init__(self, world: World, note: Note) -> None:
        self._world, self.note = world, note
        self._committed = Committed()
        self._knowledge = ClusterKnowledge(world.koalad.grid.settings.clusters)
        self._departures = departures = Departures(world, self._knowledge)
        given_up, left = departures.given_up, departures.left
        self._programs = Programs(world.instance, lambda cluster: world.clusters[cluster].logins, given_up)
        self._jobs = Jobs(world.settings)
        self._claims = Claims(world.settings)
        self._times = Times(world.settings)
        self._waiting, self._limits = Waiting(world.settings), Limits(world.settings)
        self._starts = Starts()
        self._processors = Processors(world.clusters)
        self._queues = Queues(world.instance)
        self._pruned = Pruned(world, left)
        self._contents = Contents(world.instance, world.clusters, world.program_log)
        self._logins, self._notifications, self._flows = Logins(world), Notifications(), Flows()
        self._choices, self._preemption = Choices(), Preemption(world.settings)
        self._sweeps = Sweeps(world.program_log.parameters, departures.is_given_up)
        self._local_users, self._contacts = LocalUsers(world, given_up), Contacts(world, given_up)
        self._refusals, self._ranges = Refusals(), Ranges(world.clusters)
        self._races = Races(world, world.settings)
        self._streams = Streams(world.streams)
        world.streams.observer = _StreamWatch(self, self._streams)
        self._decided: Decided | None = None
        self._handled: Decided | None = None  # the last decision of this koalad
        self._decided_at = world.agenda.now
        self._engine = world.koalad.engine
        self._broken: Violation | None = None
        self._acknowledged = 0  # events since the start of koalad's last batch
        self.programs = self.parameters = 0
        world.program_log.subscribe(self._program_log)
        world.program_log.parameters.subscribe(self._began)
        world.koalad.observer = self
        world.on_built(self._observe)

    @property
    def jobs(self) -> int:
        """Number of jobs and sweeps that users have submitted."""
        return len(self._committed.work())

    def _observe(self, cluster: SimCluster) -> None:
        cluster.environment.observer = cluster.shell.observer = _ClusterWatch(
            self, self._world.agenda, cluster, self._programs, self._queues, self._departures, self._logins
        )

    def check(self) -> None:
        """Raises Violation for the first promise that was broken."""
        self.ask(lambda: self._queues.passes(self._world.agenda.now))
        if self._broken is not None:
            raise self._broken

    def check_without_faults(self) -> None:
        """Check promises that hold only in a world without faults. Called repeatedly after the end of all faults."""
        self.ask(self._local_users.look)
        self.ask(self._contacts.look)
        self.ask(lambda: self._races.look(self._committed))

    def quiescent(self) -> None:
        """Raises Violation if something is left, or records and world differ."""
        quiescence.of_records(self._committed)
        given_up = self._departures.given_up
        quiescence.of_programs(self._committed, self._world.instance, self._world.program_log, given_up)
        quiescence.of_users(self._committed, self._world.koalad.accepted)
        quiescence.of_clusters(self._committed, self._world, self._departures.left)
        kept = [sweep for sweep in self._committed.sweeps.values() if sweep.id not in self._pruned.attempts]
        self._sweeps.quiescent(kept, self._world.koalad.store)
        self._pruned.quiescent(self._world.koalad.store)
        self._streams.quiescent()
        self._notifications.quiescent(self._committed.work().values())

    def unfinished(self) -> str:
        """Describe what keeps the world from becoming quiescent."""
        left = [f"job {each.id} is {each.state}" for each in self._committed.work().values() if not each.state.final]
        left += [f"{each.name} is {each.state}" for each in self._committed.pilots.values()]
        left += [f"the cancel of {attempt} is pending" for attempt in self._committed.pending_cancels]
        left += [f"command {number} is not confirmed" for number in self._committed.outbox]
        left += [f"{name} is a cluster" for name in self._world.koalad.grid.names if job_of_pilot(name) is not None]
        left += [f"{name} is in the queue of {cluster}" for cluster, name in quiescence.left_in_queues(self._world)]
        return ", ".join(left) or "nothing is left, but the world is not quiescent"

    def ask(self, question: Callable[[], None]) -> None:
        if self._broken is not None:
            return
        try:
            question()
        except Violation as broken:
            self._broken = broken

    # ---- koalad

    def started(self, snapshot: Snapshot, engine: Engine) -> None:
        self._engine = engine
        self.note(f"koalad starts with {len(snapshot.work)} jobs and sweeps")
        self._knowledge.begin(engine.settings.clusters)
        self._departures.restarted()
        self._logins.restarted()
        self._times.restarted()
        self._refusals.restarted()
        self._waiting.restarted()
        self._starts.started(snapshot, engine.settings.clusters)
        self._handled = None
        self.ask(lambda: self._committed.recovered(snapshot))

    def engine_replaced(self, engine: Engine) -> None:
        """Another engine decides from now on. The events of the former one are committed, and may be acknowledged."""
        self._engine, self._acknowledged = engine, 0
        if self._decided is not None:
            self._decided = replace(self._decided, engine=engine)

    def linked(self, cluster: str) -> None:
        self._logins.linked(cluster)

    def deciding(self, now: Instant, deliveries: Sequence[Delivery]) -> None:
        assert self._engine is not None
        self._decided = Decided(self._engine, now, self._knowledge, self._processors, self._departures.given_up)
        self._decided_at = self._world.agenda.now
        self._acknowledged = 0
        self.ask(self._logins.connections)
        for event in (each for delivery in deliveries for each in delivery.events):
            if isinstance(event, ClusterLost):
                self._lost(event)

    def handling(self, now: Instant, events: Sequence[Event]) -> None:
        self.ask(lambda: self._times.passed(now))
        if (handled := self._handled) is not None:
            self.ask(lambda: self._limits.passed(handled))
            self.ask(lambda: self._waiting.passed(handled, self._committed.launchers))
            self.ask(lambda: self._departures.passed(handled))
        self._handled = self._decided
        self._starts.handling(now, events)
        assert self._engine is not None
        engine = self._engine
        self.ask(lambda: self._departures.handling(events, engine))
        self._knowledge.take(events)
        for event in events:
            if isinstance(event, ClusterLeft):
                self._refusals.left(event.name)

    def drain(self, clusters: Iterable[str]) -> None:
        """Note that koalad places nothing more on pilots that end and leases that it gives back, also rejoined ones."""
        for name in clusters:
            if (seen := self._knowledge.clusters.get(name)) is not None:
                seen.settings = replace(seen.settings, draining=True)

    def _lost(self, event: ClusterLost) -> None:
        """Check that no link failed: a failure would end its session, as in koalad."""
        failed = event.reason.code == "link_failed"
        self.ask(lambda: promise(not failed, Promise.SOUND, event.cluster, event.reason.message))

    def committed(self, change: Change, store: Store) -> None:
        early = self._acknowledged
        self.ask(lambda: promise(not early, Promise.COMMITTED, early, "events were acknowledged before"))
        for line in change.history:
            self.note(f"{line.at} {line.job} {line.kind} {line.details}")
            if line.kind == HistoryKind.SUBMISSION_FAILED:
                attempt = AttemptId(line.job, line.details["component"], line.details["attempt"])
                self.cannot_start(tag_of(self._world.instance, attempt), "refused")
        decided, before, pilots = self._decided, dict(self._committed.jobs), dict(self._committed.launchers)
        work_before = self._committed.work()
        assert decided is not None
        self.ask(lambda: self._committed.take(change, store))
        self.drain([each.name for each in self._committed.pilots.values() if each.state is PilotState.CLOSING])
        self.ask(lambda: self._departures.committed(change, self._committed))
        self.ask(lambda: self._pruned.committed(change, work_before, pilots, self._committed))
        self.ask(lambda: self._jobs.committed(change, work_before))
        self.ask(lambda: self._contents.committed(change, before))
        self.ask(lambda: self._notifications.committed(change, self._committed.work()))
        self.ask(lambda: self._flows.committed(change, self._committed.work()))
        self.ask(lambda: self._programs.committed(change, self._decided_at))
        self.ask(lambda: self._claims.committed(change, before, pilots, decided))
        self.ask(lambda: self._ranges.committed(change, decided))
        self.ask(lambda: self._races.committed(change, before, decided))
        self.ask(lambda: self._refusals.committed(change))
        self.ask(lambda: self._starts.committed(change, decided))
        self.ask(lambda: self._choices.committed(change))
        self.ask(lambda: self._preemption.committed(change, before, decided, Launchers(pilots, decided)))
        self._times.committed(change)
        self._waiting.committed(change)
        self.ask(lambda: self._limits.committed(change, pilots, decided))
        for batch in change.results:
            self.note(f"{batch.sweep} {batch.attempt} {[result.number for result in batch.results]}")
        self.ask(lambda: self._sweeps.committed(change))
        self.ask(Launchers(pilots, decided).check_reclaim)

    def sent(self, entry: OutboxEntry, doubt: bool) -> None:
        self._before_doing()
        self.ask(lambda: self._committed.check_sent(entry))
        self.ask(lambda: self._departures.sent(entry.command))

    def reported(self, status: LinkStatus) -> None:
        self.ask(lambda: self._logins.reported(status))

    def retry_requested(self, cluster: str) -> None:
        self._logins.retry_requested(cluster)

    def acknowledged(self, cluster: str, epoch: int, number: int) -> None:
        self._acknowledged += 1
        self._before_doing()

    def collected(self, command: CollectOutput, path: str, source: tuple[str, AttemptId], content: str) -> None:
        self.ask(lambda: self._contents.collected(command, path, source, content, self._committed.jobs))

    def missing(self, command: CollectOutput, path: str) -> None:
        self.ask(lambda: self._contents.missing(command, path, self._committed.jobs))

    def notified(self, notification: NotificationId) -> None:
        self.note(f"notification {notification} arrives")
        self.ask(lambda: self._notifications.notified(notification))

    def _before_doing(self) -> None:
        engine = self._engine
        if engine is not None:
            self.ask(lambda: self._committed.check_engine(engine.records))

    # ---- programs

    def _program_log(self, entry: LogEntry) -> None:
        run, place = entry.run, (entry.run.cluster, entry.node)
        self.note(f"{entry.at} {run.tag} {entry.what} {run.cluster} {entry.node} {run.exit_status}")
        if entry.what == "started":
            self.programs += 1
            self.ask(lambda: self._programs.started(Tag(run.tag), run.start, place))
            self.ask(lambda: self._departures.started(Tag(run.tag), run.cluster))
            self.ask(lambda: self._flows.started(Tag(run.tag), self._committed.work()))
            self.ask(lambda: self._contents.started(Tag(run.tag), run.cluster, self._committed))
            self.ask(lambda: self._ranges.started(Tag(run.tag), run.cluster, self._committed))
        else:
            self.ask(lambda: self._programs.ended(Tag(run.tag), place))

    def _began(self, attempt: Try) -> None:
        self.parameters += 1
        self.note(f"{attempt.began} {attempt.tag} begins {attempt.number} of {attempt.sweep}")
        self.ask(lambda: self._sweeps.began(attempt))

    def cannot_start(self, tag: str, why: str) -> None:
        self.note(f"{tag} is {why}")
        self.ask(lambda: self._programs.cannot_start(Tag(tag), why))


class _StreamWatch:
    """The observer of the byte streams."""

    def __init__(self, watch: Watch, streams: Streams) -> None:
        self._watch, self._streams = watch, streams

    def read(self, stream: Stream, writer: str, data: bytes, expected: bytes) -> None:
        self._watch.note(f"stream {stream.number}: {len(data)} bytes of {writer} are read")
        self._watch.ask(lambda: self._streams.read(stream, writer, data, expected))

    def ended(self, stream: Stream, end: str) -> None:
        self._watch.note(f"stream {stream.number} is {stream.ends[end]} at {end}")
        self._watch.ask(lambda: self._streams.ended(stream, end))


@dataclass(frozen=True, slots=True)
class _ClusterWatch:
    """The observer of one cluster; names of batch jobs are unique within a cluster only."""

    _watch: Watch
    _agenda: Agenda
    _cluster: SimCluster
    _programs: Programs
    _queues: Queues
    _departures: Departures
    _logins: Logins

    def dialed(self, outcome: str) -> None:
        self._watch.ask(lambda: self._logins.dialed(self._cluster.name, outcome))

    def entered(self, name: str, batch_id: str) -> None:
        self._watch.note(f"{name} is {batch_id} of {self._cluster.name}")

    def looking(self, kcm: object, tag: str) -> None:
        self._queues.looking(kcm, Tag(tag))

    def submitting(self, kcm: object, tag: str) -> None:
        listed = [job.id for job in self._cluster.batch.listed() if job.live and job.name == tag]
        self._watch.ask(lambda: self._queues.submitting(kcm, Tag(tag), listed))
        self._watch.ask(lambda: self._departures.submitting(Tag(tag), self._cluster.name))

    def touched(self, verb: str, batch_id: str, name: str) -> None:
        self._watch.ask(lambda: self._queues.touched(self._cluster.name, verb, batch_id, name))

    def took_start_lock(self, tag: str, start: str) -> None:
        self._watch.ask(lambda: self._programs.took_start_lock(Tag(tag)))

    def reached_barrier(self, tag: str, start: str, deadline: Instant) -> None:
        self._programs.reached_barrier(Tag(tag), start, deadline)
        self._watch.ask(lambda: self._queues.reached_barrier(Tag(tag), start, deadline))

    def left_barrier(self, tag: str, start: str) -> None:
        self._programs.left_barrier(self._agenda.now, Tag(tag), start)
        self._queues.left_barrier(Tag(tag), start)

    def cleaned_up(self, tag: str) -> None:
        self._watch.cannot_start(tag, "cleaned up")
