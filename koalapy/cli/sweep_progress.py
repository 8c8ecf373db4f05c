"""How far sweeps are, for a person who waits: a bar on a terminal, plain lines when piped."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

from rich.progress import BarColumn, Progress, TaskID, TextColumn

from koalapy.cli.output import errors, say
from koalapy.client import Grid

_LOOK_S = 1.0
_PIPED_S = 10.0  # between two plain lines of one sweep
_NOT_OVER = ("waiting", "held", "running", "stopping")
Document = dict[str, Any]


def wait_for_all(koalad: Grid, jobs: Sequence[int], timeout_s: float | None = None) -> list[Document]:
    """The jobs once all of them are over; how far the sweeps among them are is told meanwhile.

    Raises TimeoutError after `timeout_s`.
    """
    sweeps = {job["id"] for job in koalad.jobs(_NOT_OVER, jobs) if job["sweep"]}
    if not sweeps:
        return koalad.wait(jobs, timeout_s)
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    with SweepBars() as bars:
        while True:
            bars.tell([runner for runner in koalad.runners() if runner["id"] in sweeps])
            left = _LOOK_S if deadline is None else max(0.0, min(_LOOK_S, deadline - time.monotonic()))
            try:
                return koalad.wait(jobs, left)
            except TimeoutError:
                if deadline is not None and time.monotonic() >= deadline:
                    raise


class SweepBars:
    """Says of sweeps how far they are, whenever it is told of their runners."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._tasks: dict[int, TaskID] = {}
        self._said: dict[int, tuple[float, str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def tell(self, runners: Sequence[Document]) -> None:
        for runner in runners:
            if errors.is_terminal:
                self._show(runner)
            else:
                self._say(runner)

    def _show(self, runner: Document) -> None:
        if self._progress is None:
            columns = TextColumn("sweep {task.fields[id]}", markup=False), BarColumn(), TextColumn("{task.description}")
            self._progress = Progress(*columns, console=errors, transient=True)
            self._progress.start()
        identity = runner["id"]
        if identity not in self._tasks:
            self._tasks[identity] = self._progress.add_task("", total=runner["parameters"], id=identity)
        self._progress.update(
            self._tasks[identity], completed=runner["done"], description=told_of(runner, datetime.now(UTC))
        )

    def _say(self, runner: Document) -> None:
        """The same is not said again."""
        at, before = self._said.get(runner["id"], (0.0, ""))
        line = f"sweep {runner['id']}: {told_of(runner, datetime.now(UTC))}"
        if line != before and time.monotonic() - at >= _PIPED_S:
            self._said[runner["id"]] = time.monotonic(), line
            say(line)


def told_of(runner: Document, now: datetime) -> str:
    """How far one sweep is, in a line."""
    nodes, suspended = (sum(each[what] for each in runner["clusters"]) for what in ("nodes", "suspended"))
    brings = runner["state"] == "running" and runner["done"] == runner["parameters"]
    has = "bringing what they left" if brings else f"{nodes} {'node' if nodes == 1 else 'nodes'}"
    parts = [
        counted(runner),
        has if runner["state"] == "running" else runner["state"],
        f"{suspended} of them suspended" if suspended else "",
        f"{runner['parameters_per_minute']:.0f} a minute" if runner["parameters_per_minute"] else "",
        f"ends in {until(runner['ends_at'], now)}" if runner["ends_at"] else "",
    ]
    return ", ".join(part for part in parts if part)


def counted(sweep: Document) -> str:
    """Of a runner, or of a job's `sweep`."""
    failed = f", {sweep['failed']} failed" if sweep["failed"] else ""
    return f"{sweep['done']} of {sweep['parameters']} done{failed}"


def until(instant: str, now: datetime) -> str:
    """How long it is until then, as a person says it."""
    seconds = max(0, round((datetime.fromisoformat(instant) - now).total_seconds()))
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"
