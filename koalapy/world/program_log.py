"""The log that programs of the simulated world write as they run; promises are checked against it.

It has all parameters too: which attempt began, finished or broke off each of them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from koalapy.model.units import Instant


@dataclass(eq=False, slots=True)
class Try:
    """One start of a parameter's program. `done`: it ended by itself, and its result was recorded."""

    sweep: int
    number: int
    tag: str
    began: Instant
    ended: Instant | None = None
    done: bool = False


@dataclass
class ParameterLog:
    """All starts, in order."""

    tries: list[Try] = field(default_factory=list)
    _open: dict[tuple[int, int, str], Try] = field(default_factory=dict)
    _subscribers: list[Callable[[Try], None]] = field(default_factory=list)

    def subscribe(self, notify: Callable[[Try], None]) -> None:
        """Call `notify` with every start."""
        self._subscribers.append(notify)

    def began(self, sweep: int, number: int, tag: str, at: Instant) -> None:
        self._open[sweep, number, tag] = attempt = Try(sweep, number, tag, at)
        self.tries.append(attempt)
        for notify in self._subscribers:
            notify(attempt)

    def ended(self, sweep: int, number: int, tag: str, at: Instant) -> None:
        self._open[sweep, number, tag].ended = at

    def done(self, sweep: int, number: int, tag: str) -> None:
        self._open[sweep, number, tag].done = True

    def clear(self) -> None:
        """Forget all starts. Called only while no parameter runs."""
        self.tries.clear()
        self._open.clear()

    def of(self, sweep: int) -> list[Try]:
        return [each for each in self.tries if each.sweep == sweep]


@dataclass(eq=False, slots=True)
class Run:
    """One start of an attempt's program, on all its nodes. `start` names the start of its batch job."""

    tag: str
    cluster: str
    start: str
    began: Instant
    nodes: dict[str, Instant | None] = field(default_factory=dict)  # when it ended on each node; None while it runs
    exit_status: int | None = None
    statuses: list[int] = field(default_factory=list)  # of the nodes, in order of their ends

    @property
    def running(self) -> bool:
        return None in self.nodes.values()


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One line. `what` is started or ended."""

    what: str
    run: Run
    node: str
    at: Instant


class ProgramLog:
    """One line for each start of a program on a node, and one for its end there."""

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self.parameters = ParameterLog()
        self.files: dict[tuple[str, str], bytes] = {}  # the content of output files, by attempt and path
        self._runs: dict[str, dict[str, Run]] = {}
        self._subscribers: list[Callable[[LogEntry], None]] = []

    def subscribe(self, notify: Callable[[LogEntry], None]) -> None:
        """Call `notify` with every line as it is written."""
        self._subscribers.append(notify)

    def started(self, tag: str, cluster: str, start: str, node: str, at: Instant) -> None:
        runs = self._runs.setdefault(tag, {})
        run = runs.setdefault(start, Run(tag, cluster, start, at))
        run.nodes[node] = None
        self._write(LogEntry("started", run, node, at))

    def ended(self, tag: str, start: str, node: str, at: Instant, exit_status: int) -> None:
        run = self._runs[tag][start]
        run.nodes[node] = at
        run.exit_status = run.exit_status or exit_status
        run.statuses.append(exit_status)
        self._write(LogEntry("ended", run, node, at))

    def left(self, tag: str, path: str, content: bytes | None) -> None:
        """The program has written this file, as far as there was room. `content`: None if there is no file."""
        if content is not None:
            self.files[tag, path] = content

    def runs(self, tag: str) -> list[Run]:
        """All starts of this attempt's program, in order."""
        return list(self._runs.get(tag, {}).values())

    def running(self, tag: str) -> bool:
        """Return whether a process of this attempt's program runs anywhere."""
        return any(run.running for run in self.runs(tag))

    def tags(self) -> list[str]:
        """Return the tags of all attempts whose program was started, in order of first start."""
        return list(self._runs)

    def clear(self) -> None:
        """Forget all lines, in worlds that last for months. Called only while no program runs."""
        self.entries.clear()
        self._runs.clear()
        self.parameters.clear()

    def _write(self, entry: LogEntry) -> None:
        self.entries.append(entry)
        for notify in self._subscribers:
            notify(entry)
