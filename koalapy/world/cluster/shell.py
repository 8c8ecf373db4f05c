"""The commands of the simulated batch system as processes on a head node: late, refused, hung or unanswered."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from koalapy_adapters.batch.protocol import BatchJob
from koalapy_adapters.errors import Result
from koalapy_adapters.kcm.execution.subprocess_runner import Handle, Ran

from koalapy.model.units import MILLISECOND, SECOND, Duration
from koalapy.world.agenda import Agenda, ScheduledCall
from koalapy.world.cluster import dialect
from koalapy.world.cluster.batch_job import SimBatchJob
from koalapy.world.cluster.batch_system import BatchSystem
from koalapy.world.cluster.nodes import JobProcesses
from koalapy.world.cluster.observers import ClusterObserver, NoClusterObserver
from koalapy.world.random_streams import between

UNREACHABLE = "transient batch_system_unreachable"
REFUSALS = (
    "transient busy",
    "cluster submissions_closed",
    "request no_such_queue",
    "unreadable",
    "transient submit_limit",
)
_COST = 30_000  # microseconds of CPU time that a command takes
_BEHIND = Duration(30 * SECOND)  # until returning servers have handled the waiting requests


class SubmitCommand:
    """One submit command's process on the head node. `done` is called with its result."""

    def __init__(self, argv: list[str], done: Callable[[Result], None]) -> None:
        self.argv, self.running = argv, True
        self.done: Callable[[Result], None] = done
        self.effect: ScheduledCall | None = None  # the effect that is cancelled if the command ends earlier

    def finish(self, exit_status: int | None, stdout: str = "", stderr: str = "") -> None:
        if self.running:
            self.running = False
            self.done(Result(self.argv, exit_status, stdout, stderr))


@dataclass
class SubmitFaults:
    """The faults of the next submits, one for each."""

    refusals: list[str] = field(default_factory=list)
    lost_replies: int = 0
    hangs: list[tuple[Duration, bool]] = field(default_factory=list)  # how long; whether the server has it already


class Shell:
    """The commands of the batch system on the head node."""

    def __init__(
        self, agenda: Agenda, rng: Random, batch: BatchSystem, begin: Callable[[str, SimBatchJob], JobProcesses]
    ) -> None:
        self._agenda, self._rng, self._batch, self._begin = agenda, rng, batch, begin
        self.submit_faults = SubmitFaults()
        self.observer: ClusterObserver = NoClusterObserver()
        self.failing = 0  # so many of the next commands, other than submits, fail
        self.late = 0  # submits that may yet take effect, though their command has ended
        self._results: dict[str, Result] = {}

    # ---- commands other than submit

    def delay(self) -> Duration:
        return between(self._rng, *self._batch.parameters.command)

    def run(self, argv: list[str], timeout: float, handle: Handle | None = None) -> Ran:
        """Run a command, and return its result at this instant; a submit's is the noted one. See `running.run`."""
        if argv[0] == "submit":
            return Ran(self._results.pop(argv[1].split("/")[-2]), _COST)
        if self._batch.is_down or self.failing:
            self.failing = max(0, self.failing - 1)
            status = self._rng.choice((None, 1))
            return Ran(Result(argv, status, "", UNREACHABLE), _COST)
        return Ran(Result(argv, 0, "".join(f"{line}\n" for line in self._answer(argv[0], argv[1:])), ""), _COST)

    def _answer(self, command: str, words: list[str]) -> list[str]:
        batch = self._batch
        if command == "status":
            return [dialect.line(batch.jobs[each].status()) for each in words if each in batch.jobs]
        if command == "find":
            return [dialect.line(job.status()) for job in batch.listed() if job.name == words[0]]
        if command == "history":
            known = batch.accounting.newest(words[0])
            return [] if known is None else [dialect.line(known)]
        if command == "capacity":
            free = [f"{batch.unreserved(node) if node.reachable else 0}/{node.processors}" for node in batch.nodes]
            jobs = [f"{job.processors} {job.least_nodes} {dialect.line(job.status())}" for job in batch.listed()]
            return [f"{batch.size} {batch.idle()}", " ".join(["free", *free]), *jobs]
        if command == "cancel":
            for each in words:
                if each in batch.jobs:
                    self.observer.touched("cancel", each, batch.jobs[each].name)
                batch.cancel(each)
            return []
        if command in ("suspend", "resume"):
            done = batch.suspend(words[0]) if command == "suspend" else batch.resume(words[0])
            return [] if done else ["it does not run"]
        return ["simulated 1.0"]

    # ---- submit

    def submit(self, job: BatchJob, path: str, done: Callable[[Result], None]) -> SubmitCommand:
        """Start a submit command. Its outcome is decided now, by `submit_faults` and the state of the servers."""
        command = SubmitCommand(["submit", path], done)
        submit_faults = self.submit_faults
        if submit_faults.hangs:
            self._hang(command, job, *submit_faults.hangs.pop(0))
        elif self._batch.is_down:
            self._unanswered(command, job)
        elif submit_faults.refusals:
            words = submit_faults.refusals.pop(0)
            self._agenda.after(self.delay(), lambda: command.finish(1, stderr=words))
        elif submit_faults.lost_replies:
            submit_faults.lost_replies -= 1
            self._agenda.after(self.delay(), lambda: self._lose_reply(command, job))
        else:
            command.effect = self._agenda.after(self.delay(), lambda: self._take_effect(command, job))
        return command

    def end(self, command: SubmitCommand) -> None:
        """Kill a submit command. The batch system may have its request already."""
        self._agenda.cancel(command.effect)
        self._agenda.after(MILLISECOND, lambda: command.finish(None))

    def comes_to(self, tag: str, result: Result) -> None:
        """Note the result of the tag's submit for `run`."""
        self._results[tag] = result

    def mend(self) -> None:
        self.submit_faults, self.failing = SubmitFaults(), 0

    def _take_effect(self, command: SubmitCommand, job: BatchJob) -> None:
        """Add the job; the command reports it a moment later, unless it is killed before."""
        command.effect = None
        entered = self._enter(job)
        self._agenda.after(self.delay(), lambda: command.finish(0, stdout=f"{entered.id}\n"))

    def _lose_reply(self, command: SubmitCommand, job: BatchJob) -> None:
        self._enter(job)
        if self._rng.random() < 0.5:
            self._agenda.after(self.delay(), lambda: command.finish(1, stderr=UNREACHABLE))

    def _hang(self, command: SubmitCommand, job: BatchJob, duration: Duration, with_server: bool) -> None:
        """`with_server`: the request is in the server's queue, and is handled even if the command is killed."""
        if with_server:
            self._serve_late(job, duration)
        else:
            command.effect = self._agenda.after(duration, lambda: self._take_effect(command, job))

    def _unanswered(self, command: SubmitCommand, job: BatchJob) -> None:
        if self._rng.random() < 0.5:
            self._agenda.after(Duration(4 * SECOND), lambda: command.finish(1, stderr=UNREACHABLE))
        elif self._rng.random() < 0.5:
            self._serve_late(job, Duration(self._rng.randrange(_BEHIND)))

    def _serve_late(self, job: BatchJob, duration: Duration) -> None:
        self.late += 1
        self._agenda.after(duration, lambda: self._served_late(job))

    def _served_late(self, job: BatchJob) -> None:
        self.late -= 1
        self._enter(job)

    def _enter(self, job: BatchJob) -> SimBatchJob:
        directory = job.directory
        entered = self._batch.submit(
            job.tag,
            job.processors,
            Duration(job.walltime_s * SECOND),
            lambda entered: self._begin(directory, entered),
            job.processors_per_node,
            job.lowest,
            tuple(job.avoid),
        )
        self.observer.entered(entered.name, entered.id)
        return entered
