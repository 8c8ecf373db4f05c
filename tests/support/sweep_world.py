"""A sweep in a small world: koalad's bookkeeping, one real KCM machine after another, and Launchers with journals.

The test decides when each message arrives and when each action of a KCM is performed. `check` holds after every step.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from koalapy_adapters.batch.protocol import ENDED, QUEUED, RUNNING, Capacity, JobStatus
from koalapy_adapters.kcm.attempts.machine import Machine
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.kcm.state.attempt import failure
from koalapy_adapters.messages import from_json, to_json
from koalapy_adapters.messages.kcm import (
    BatchStatus,
    Event,
    ParametersEnded,
    ParametersReturned,
    ParametersWanted,
    Report,
    Submitted,
)
from koalapy_adapters.messages.koalad import (
    Acknowledge,
    ClusterConfig,
    FeedSweep,
    Forget,
    Hello,
    RecallParameters,
    Submit,
)
from koalapy_adapters.messages.launcher import (
    FeedParameters,
    ParametersGivenUp,
    ParametersHeld,
    ProgressReported,
    PullParameters,
    ResultsCommitted,
    ResultsReported,
)
from koalapy_adapters.messages.relay import Stop, ToLauncher
from koalapy_adapters.ranges import numbers_of, ranges_of

SWEEP = 9
SECOND = do.SECOND
UNREACHABLE = failure("shared_gone", "cluster", "Unreachable.")


def tag_of(number: int) -> str:
    return f"kabcdeg{number:08d}"


@dataclass
class Node:
    """The true state of a Launcher and its wrapper."""

    tag: str
    slots: int
    prepared: bool = False
    submitted: bool = False
    answered: bool = False
    started: bool = False
    alive: bool = False
    connected: bool = False
    held: dict[int, None] = field(default_factory=dict)
    running: dict[int, None] = field(default_factory=dict)
    journal: list[list[Any]] | None = field(default_factory=list)
    unkept: list[ResultsReported] = field(default_factory=list)
    batches: int = 0
    given: int = 0
    up: list[Any] = field(default_factory=list)
    down: list[Any] = field(default_factory=list)
    record: dict[str, Any] | None = None
    forgotten: bool = False

    def start(self) -> None:
        if self.submitted and not self.started:
            self.started = self.alive = True

    def connect(self) -> None:
        self.connected, self.given = True, 0
        self.up = [ParametersHeld(ranges_of(self.held), self.slots), *self.unkept]
        self.pull()

    def pull(self) -> None:
        self.up.append(PullParameters(max(0, 2 * self.slots - len(self.held)), self.given))

    def receive(self, message: Any) -> None:
        if isinstance(message, FeedParameters):
            numbers = list(numbers_of(message.ranges))
            assert not self.held.keys() & set(numbers), "given a number that it holds"
            self.held.update((number, None) for number in numbers)
            self.given += len(numbers)
        elif isinstance(message, ResultsCommitted):
            self.unkept = [one for one in self.unkept if one.number > message.number]

    def begin(self) -> None:
        for number in self.held:
            if len(self.running) < self.slots:
                self.running[number] = None

    def finish(self, which: int) -> int | None:
        """End one of the running parameters. Returns its number; None if none runs."""
        self.begin()
        if not self.running:
            return None
        number = list(self.running)[which % len(self.running)]
        del self.running[number], self.held[number]
        row = [number, 0, "exited", "n1", 0, 1, 2, 0, 0, 0, 0]
        if self.journal is not None:
            self.journal.append(row)
        self.batches += 1
        self.unkept.append(ResultsReported(self.batches, [row]))
        if self.connected:
            self.up += [self.unkept[-1], ProgressReported(len(self.running), 1)]
        return number

    def give_back(self) -> list[int]:
        """Return the numbers that have not begun to koalad."""
        numbers = [number for number in self.held if number not in self.running]
        for number in numbers:
            del self.held[number]
        self.up.append(ParametersGivenUp(ranges_of(numbers), []))
        return numbers

    def leave(self) -> None:
        """Return everything and end, after a stop in band. Messages in the channel may arrive or not."""
        if self.connected:
            self.up.append(ParametersGivenUp(ranges_of(self.held), ranges_of(self.running)))
        self._end()

    def _end(self) -> None:
        self.held.clear()
        self.running.clear()
        self.alive = False
        self.record = {"tag": self.tag, "batch_id": self.tag, "phase": "ended", "nodes": [], "ending": "exited"}

    def die(self, with_wrapper: bool) -> None:
        """End by kill -9, without a message or an exit record."""
        self._end()
        if with_wrapper:
            self.record = None


class World:
    """A world with a sweep of `count` parameters, from 1."""

    def __init__(self, count: int) -> None:
        self.now = 1_000 * SECOND
        self.count = count
        self.pool: dict[int, None] = dict.fromkeys(range(1, count + 1))
        self.out: set[int] = set()
        self.done: Counter[int] = Counter()  # how often koalad received its result
        self.completed: Counter[int] = Counter()  # how often it ran to its end
        self.lost_work: set[int] = set()  # numbers whose results only a lost journal had
        self.wanted = 0
        self.nodes: dict[str, Node] = {}
        self.ended: set[str] = set()  # tags whose end koalad knows
        self.unreachable = False
        self.epoch = 0
        self.kcm: Machine | None = None
        self.connect()

    # ---- koalad

    def connect(self) -> None:
        """Connect anew, with a new KCM, which knows nothing. Messages on their way are lost."""
        self.epoch += 1
        self.to_kcm: list[Any] = []
        self.to_koalad: list[Event] = []
        self.actions: list[Any] = []
        self.delivered = 0
        self.wanted = 0
        self.fed = False
        for node in self.nodes.values():
            node.connected, node.up, node.down = False, [], []
        live = [tag for tag in self.nodes if tag not in self.ended]
        known = [[tag, tag if self.nodes[tag].answered else ""] for tag in live]
        hello = Hello(1, "0", self.epoch, "abcde", self.now, {}, known)
        self.kcm = Machine(self.now, hello, ClusterConfig("here", "local", grace=1.0, orphan_timeout=60.0))
        self._take(self.kcm.start(self.now))
        for tag in live:
            if not self.nodes[tag].answered:
                self._submit(self.nodes[tag], doubt=True)
        if self.out or live:
            self.feed_anew()

    def feed_anew(self, numbers: int = 0) -> None:
        self._out(numbers)
        live = [tag for tag in self.nodes if tag not in self.ended]
        self.to_kcm.append(FeedSweep(SWEEP, ranges_of(sorted(self.out)), True, live))
        self.fed = True

    def _out(self, most: int) -> list[int]:
        numbers = list(self.pool)[:most]
        for number in numbers:
            del self.pool[number]
            self.out.add(number)
        self.wanted = max(0, self.wanted - len(numbers))
        return numbers

    def submit(self) -> None:
        tag = tag_of(len(self.nodes) + 1)
        self.nodes[tag] = Node(tag, slots=1 + len(self.nodes) % 3)
        self._submit(self.nodes[tag])

    def _submit(self, node: Node, doubt: bool = False) -> None:
        program = {"grace": 1.0, "sweep": {"sweep": SWEEP, "slots": node.slots}}
        self.to_kcm.append(Submit(int(node.tag[7:]), node.tag, {}, program, [], doubt))

    def feed(self) -> None:
        """Feed what the KCM wants, as far as the pool has it."""
        if not self.fed:
            self.feed_anew(self.wanted)
        elif self.wanted and self.pool:
            self.to_kcm.append(FeedSweep(SWEEP, ranges_of(self._out(self.wanted))))

    def recall(self, most: int) -> None:
        self.to_kcm.append(RecallParameters(SWEEP, most))

    def koalad_receives(self) -> None:
        event = self.to_koalad.pop(0)
        if event.number == self.delivered + 1:
            self.delivered += 1
            self._received(from_json(event.body))
        self.to_kcm.append(Acknowledge(event.number))

    def _received(self, message: Any) -> None:
        if isinstance(message, ParametersEnded):
            for row in message.results:
                self.done[row[0]] += 1
                self.out.discard(row[0])
                self.pool.pop(row[0], None)
        elif isinstance(message, ParametersReturned):
            self._take_back(message)
        elif isinstance(message, ParametersWanted):
            self.wanted = message.wanted
        elif isinstance(message, (Report, BatchStatus)) and "ended" in (
            getattr(message, "phase", ""),
            getattr(message, "state", ""),
        ):
            self._ended(message.tag)

    def _take_back(self, message: ParametersReturned) -> None:
        begun = set(numbers_of(message.begun))
        for number in numbers_of(message.ranges):
            assert number not in self._held(), "returned while a Launcher holds it"
            if number in self.out:
                self.out.discard(number)
                self.pool[number] = None
        assert begun <= set(numbers_of(message.ranges))

    def _ended(self, tag: str) -> None:
        if tag not in self.ended:
            self.ended.add(tag)
            self.to_kcm.append(Forget(1_000 + len(self.ended), tag))

    # ---- the KCM

    def kcm_receives(self) -> None:
        self._happen(self.to_kcm.pop(0))

    def _happen(self, event: Any) -> None:
        assert self.kcm is not None
        self._take(self.kcm.handle(self.now, event))

    def _take(self, actions: list[Any]) -> None:
        for action in actions:
            if isinstance(action, do.Send):
                if isinstance(action.message, Event):
                    self.to_koalad.append(action.message)
                elif isinstance(action.message, Submitted):
                    self.nodes[action.message.tag].answered = True
            elif isinstance(action, do.SendToWrapper):
                self._to_wrapper(self.nodes[action.tag], action.message)
            else:
                self.actions.append(action)

    def _to_wrapper(self, node: Node, message: Any) -> None:
        if not node.connected:
            return
        if isinstance(message, ToLauncher):
            node.down.append(from_json(message.body))
        elif isinstance(message, Stop):
            node.leave()

    def act(self, which: int) -> None:
        """Perform one of the KCM's actions."""
        action = self.actions.pop(which % len(self.actions))
        outcome = self._outcome(action)
        if outcome is not None:
            self._happen(outcome)

    def _outcome(self, action: Any) -> Any:
        if isinstance(action, do.Measure):
            return do.CapacityMeasured(self.now, Capacity(4, 2, 2, 0, 0, [], [], [[2, 1]], self._statuses()))
        if isinstance(action, do.Inspect):
            error = UNREACHABLE if self.unreachable else None
            statuses = {} if self.unreachable else self._directory_statuses(action.tags)
            return do.Inspected(action.tags, statuses, self.epoch, error, action.submitting)
        if isinstance(action, do.ReadJournal):
            return self._journal(action)
        if isinstance(action, do.Prepare):
            self.nodes[action.tag].prepared = True
            return do.Prepared(action.tag)
        if isinstance(action, do.SubmitJob):
            self.nodes[action.tag].submitted = True
            return do.JobSubmitted(action.tag, action.tag)
        if isinstance(action, do.Remove):
            self.nodes[action.tag].forgotten = True
            self.nodes[action.tag].journal = None
            return do.Removed(action.tag)
        if isinstance(action, do.Look):
            status = self._statuses().get(action.tag)
            return do.Looked(action.tag, listed=status, submitting=action.submitting)
        raise AssertionError(action)

    def _statuses(self) -> dict[str, JobStatus]:
        return {
            tag: JobStatus(tag, tag, RUNNING if node.alive else ENDED if node.started else QUEUED)
            for tag, node in self.nodes.items()
            if node.submitted and not node.forgotten
        }

    def _directory_statuses(self, tags: list[str]) -> dict[str, do.DirectoryStatus]:
        return {
            tag: do.DirectoryStatus("taken" if node.started else "", node.record, 0, "/d")
            for tag, node in self.nodes.items()
            if tag in tags and node.prepared and not node.forgotten
        }

    def _journal(self, action: do.ReadJournal) -> do.JournalRead:
        node = self.nodes[action.tag]
        assert not node.alive, "read before its end"
        assert not node.forgotten, "read too late"
        if self.unreachable:
            return do.JournalRead(action.tag, error=UNREACHABLE)
        if node.journal is None:
            return do.JournalRead(action.tag, there=False)
        wanted = set(numbers_of(action.ranges))
        return do.JournalRead(action.tag, [row for row in node.journal if row[0] in wanted])

    def pass_time(self, microseconds: int) -> None:
        self.now += microseconds
        assert self.kcm is not None
        self._take(self.kcm.tick(self.now))

    # ---- Launchers

    def node_connects(self, node: Node) -> None:
        if node.alive and not node.connected:
            node.connect()
            self._happen(do.WrapperConnected(node.tag, self.now))

    def node_sends(self, node: Node) -> None:
        if node.connected and node.up:
            self._happen(do.LauncherReported(node.tag, to_json(node.up.pop(0))))
        elif node.connected and not node.alive:
            self.cut(node)

    def node_receives(self, node: Node) -> None:
        if node.alive and node.down:
            node.receive(node.down.pop(0))

    def finish(self, node: Node, which: int) -> None:
        number = node.finish(which) if node.alive else None
        if number is not None:
            self.completed[number] += 1

    def cut(self, node: Node) -> None:
        if node.connected:
            node.connected, node.up, node.down = False, [], []
            self._happen(do.WrapperDisconnected(node.tag, closed=not node.alive))

    def lose_journal(self, node: Node) -> None:
        if node.started and not node.alive and node.journal is not None:
            self.lost_work |= {row[0] for row in node.journal if not self.done[row[0]]}
            node.journal = None

    # ---- what holds after every step

    def _held(self) -> Counter[int]:
        return Counter(number for node in self.nodes.values() for number in node.held)

    def check(self) -> None:
        twice = [number for number, times in self._held().items() if times > 1]
        assert not twice, f"two holders: {twice}"
        again = {number for number, times in self.completed.items() if times > 1}
        assert again <= self.lost_work, f"done twice: {again - self.lost_work}"
        everywhere = self.pool.keys() | self.out | self.done.keys()
        assert len(everywhere) == self.count, "lost"
        assert not self.pool.keys() & self.out

    def warm_up(self) -> None:
        """Let two Launchers work until some parameters are done."""
        self.submit()
        self.submit()
        for _ in range(4):
            self._everything_once()

    def settle(self) -> None:
        """Let everything end, without further failures."""
        self.unreachable = False
        for _ in range(600):
            if len(self.done) == self.count:
                return
            if all(tag in self.ended for tag in self.nodes) and not self.to_kcm:
                self.submit()
            self._everything_once()
        raise AssertionError(f"not done: {set(range(1, self.count + 1)) - self.done.keys()}, out {self.out}")

    def _everything_once(self) -> None:
        while self.to_kcm:
            self.kcm_receives()
        while self.actions:
            self.act(0)
        while self.to_koalad:
            self.koalad_receives()
        self.feed()
        for node in list(self.nodes.values()):
            node.start()
            self.node_connects(node)
            while node.connected and node.up:
                self.node_sends(node)
            self.node_sends(node)
            while node.down:
                self.node_receives(node)
            if node.alive and node.connected:
                self.finish(node, 0)
                node.pull()
        self.pass_time(SECOND // 3)
        self.check()
