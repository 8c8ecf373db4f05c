"""A KCM of the random world: one for each connection, lost with it. It acts as `koalapy_adapters.messages` defines."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from random import Random

from koalapy.driver import Delivery
from koalapy.model.commands import CancelAttempt, Command, ForgetAttempt, ReleaseAttempt, SubmitAttempt
from koalapy.model.errors import Reason
from koalapy.model.events import (
    AttemptCleanedUp,
    AttemptSubmitted,
    BatchStatusSeen,
    Event,
    SubmissionFailed,
    WrapperReported,
)
from koalapy.model.identity import AttemptId
from koalapy.model.units import MINUTE, SECOND, Duration, Instant

from .cluster import BatchJob, Cluster, Trace, promise

ORPHAN = Duration(10 * MINUTE + 5 * SECOND)  # until a taken start lock without a sign of its wrapper is ignored

BUSY = Reason("busy", "transient", "The batch system is busy.", "", command="sbatch", exit_status=1)
NO_FILE = Reason("no_file", "request", "There is no such file.", "Make it.")
NO_QUEUE = Reason("no_such_queue", "request", "There is no such queue.", "", command="sbatch", exit_status=1)
BROKEN = Reason("broken", "cluster", "Its batch system is broken.", "", command="sbatch", exit_status=1)
VOID = Reason("void", "ours", "The attempt was made void before it could start.", "")
MISSING = ("missing", "")
REFUSALS = (None,) * 12 + (BUSY, BUSY, BROKEN, NO_QUEUE, NO_FILE)


@dataclass(eq=False)
class Known:
    """The KCM's knowledge of an attempt, and its last reports about it."""

    reported: WrapperReported | None = None
    seen: tuple[str, str] | None = None
    releases: list[int] = field(default_factory=list)
    cancelled: bool = False
    cleaned_up: bool = False


@dataclass
class Message:
    """A message to koalad: an event, or the answer to a command."""

    kind: str  # event, submitted, refused, done
    number: int
    event: Event | None = None
    batch_id: str = ""
    reason: Reason | None = None


class Kcm:
    """`down` and `up` are the messages on the connection, in order, from and to koalad."""

    def __init__(self, cluster: Cluster, epoch: int, known: Iterable[AttemptId]) -> None:
        self.cluster, self.epoch = cluster, epoch
        self.known = {attempt: Known() for attempt in known}
        self.outstanding: dict[int, Command] = {}
        self.down: list[tuple[int, Command]] = []
        self.up: list[Message] = []
        self.unacknowledged: dict[int, Event] = {}
        self.events = 0

    # ---- at koalad's end of the connection

    def send(self, number: int, command: Command) -> None:
        """Send a command, once in each connection."""
        if number not in self.outstanding:
            self.outstanding[number] = command
            self.down.append((number, command))

    def receive(self) -> Delivery | None:
        """Take the oldest message to koalad, and return its delivery."""
        message = self.up.pop(0)
        if message.event is not None:
            acknowledge = (self.cluster.settings.name, self.epoch, message.number)
            return Delivery((message.event,), self._ended_by(message.event), acknowledge)
        command = self.outstanding.pop(message.number, None)
        if not isinstance(command, SubmitAttempt):
            return None if command is None else Delivery(confirmed=(message.number,))
        if message.reason is not None:
            return Delivery(
                (SubmissionFailed(cluster=command.cluster, attempt=command.attempt, reason=message.reason),),
                (message.number,),
            )
        submitted = AttemptSubmitted(cluster=command.cluster, attempt=command.attempt, batch_id=message.batch_id)
        return Delivery((submitted,), (message.number,))

    def _ended_by(self, event: Event) -> tuple[int, ...]:
        """The numbers of the commands about a cleaned-up attempt, except its Forget; they are confirmed."""
        if not isinstance(event, AttemptCleanedUp):
            return ()
        of_it = (SubmitAttempt, ReleaseAttempt, CancelAttempt)
        ended = [n for n, each in self.outstanding.items() if isinstance(each, of_it) and each.attempt == event.attempt]
        for number in ended:
            del self.outstanding[number]
        return tuple(ended)

    # ---- events

    def emit(self, event: Event) -> None:
        self.events += 1
        self.unacknowledged[self.events] = event
        self.up.append(Message("event", self.events, event))

    def acknowledge(self, number: int) -> None:
        self.unacknowledged = {each: event for each, event in self.unacknowledged.items() if each > number}

    def repeat_events(self) -> None:
        self.up += [Message("event", number, event) for number, event in self.unacknowledged.items()]

    # ---- commands

    def handle(self, now: Instant, rng: Random, smooth: bool) -> None:
        """Handle the oldest message from koalad. `smooth`: the batch system refuses nothing."""
        number, command = self.down.pop(0)
        if isinstance(command, SubmitAttempt):
            known = self.known.setdefault(command.attempt, Known())
            self.up.append(self._submit(known, number, command, now, None if smooth else rng))
        elif isinstance(command, ReleaseAttempt):
            self.known.setdefault(command.attempt, Known()).releases.append(number)
        elif isinstance(command, CancelAttempt):
            self._cancel(self.known.setdefault(command.attempt, Known()), command)
        elif isinstance(command, ForgetAttempt):
            self._forget(number, command.attempt)

    def _submit(self, known: Known, number: int, command: SubmitAttempt, now: Instant, rng: Random | None) -> Message:
        cluster = self.cluster
        promise(command.attempt not in cluster.forgotten, "a forgotten attempt is not submitted again", command.attempt)
        trace = cluster.traces.get(command.attempt)
        if known.cancelled or (trace is not None and trace.start_lock == "void"):
            return Message("refused", number, reason=VOID)
        if trace is not None and trace.batch is not None:
            return Message("submitted", number, batch_id=trace.batch.id)
        trace = cluster.traces[command.attempt] = Trace(command.attempt, command=command, sign_at=now)
        refusal = rng.choice(REFUSALS) if rng else None
        if refusal is not None:
            trace.start_lock = "void"
            return Message("refused", number, reason=refusal)
        trace.batch = cluster.enqueue(command.request.processors, command.attempt)
        trace.batch.stuck = rng is not None and rng.random() < 0.03
        return Message("submitted", number, batch_id=trace.batch.id)

    def _cancel(self, known: Known, command: CancelAttempt) -> None:
        known.cancelled = True
        if known.cleaned_up:
            self.emit(AttemptCleanedUp(cluster=command.cluster, attempt=command.attempt))

    def _forget(self, number: int, attempt: AttemptId) -> None:
        trace = self.cluster.traces.pop(attempt, None)
        promise(trace is None or not trace.may_run, "no attempt that may run is forgotten", attempt)
        self.cluster.forgotten.add(attempt)
        self.known.pop(attempt, None)
        self.up.append(Message("done", number))

    # ---- observations

    def look(self, now: Instant, rng: Random) -> None:
        """Report news of every attempt, release those that may start, end those that are cancelled."""
        for attempt, known in list(self.known.items()):
            trace = self.cluster.traces.get(attempt)
            if trace is not None:
                self._report(known, trace, now)
                self._release(known, trace)
            if known.cancelled and not known.cleaned_up:
                self._end(known, attempt, now, rng)

    def _report(self, known: Known, trace: Trace, now: Instant) -> None:
        if trace.phase and (trace.alive or trace.recorded) and trace.report() != known.reported:
            known.reported = trace.report()
            self.emit(replace(known.reported, cluster=self.cluster.settings.name))
            known.seen = None if known.seen == MISSING else known.seen
        if trace.batch is None or trace.recorded or _view(trace.batch) == known.seen:
            return
        known.seen = state, ending = _view(trace.batch)
        stuck = "never" if trace.batch.stuck else ""
        self.emit(
            BatchStatusSeen(
                cluster=self.cluster.settings.name,
                attempt=trace.attempt,
                batch_id=trace.batch.id,
                at=now,
                state=state,
                ending=ending,
                stuck=stuck,
            )
        )

    def _release(self, known: Known, trace: Trace) -> None:
        """Pass a release on; confirm it when the wrapper has left its barrier or never will."""
        if known.releases and trace.alive and trace.phase == "at_barrier":
            trace.released = True
        if "released" in trace.at or trace.recorded:
            self.up += [Message("done", number) for number in known.releases]
            known.releases = []

    def _end(self, known: Known, attempt: AttemptId, now: Instant, rng: Random) -> None:
        """Make a cancelled attempt void; stop its wrapper and cancel its batch job until nothing can run."""
        trace = self.cluster.traces.setdefault(attempt, Trace(attempt))
        batch = trace.batch
        trace.start_lock = trace.start_lock or "void"
        if trace.alive:
            trace.stopped = True
        if batch is not None and (batch.state == "pending" or (batch.state == "running" and rng.random() < 0.3)):
            self.cluster.kill(trace, now, rng.choice(("signalled", "cancelled")))
        final = trace.start_lock == "void" or trace.recorded or bool(batch and batch.accounting)
        if (batch is None or batch.state == "ended") and (final or now >= (trace.sign_at or 0) + ORPHAN):
            promise(not trace.may_run, "a cleaned-up attempt cannot run", attempt)
            known.cleaned_up = True
            self.emit(AttemptCleanedUp(cluster=self.cluster.settings.name, attempt=attempt))


def _view(batch: BatchJob) -> tuple[str, str]:
    """The batch system's view of a batch job: state and ending."""
    if batch.state == "ended" and batch.accounting is not None:
        return "ended", batch.accounting
    if not batch.listed:
        return MISSING
    if batch.state == "running":
        return "suspended" if batch.suspended else "running", ""
    return "queued", ""
