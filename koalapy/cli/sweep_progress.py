"""Shows the progress of sweeps to a person who waits: a bar on a terminal, else plain lines."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Self

from koalapy.cli.output import errors, in_bytes, print_message
from koalapy.client import Grid

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from koalapy.answers.jobs import Job, Transfer
    from koalapy.answers.sweeps import Counts, Runner

_POLL_S = 1.0
_PIPED_S = 10.0  # between two plain lines of one sweep
_NOT_FINAL = ("waiting", "held", "running", "stopping")


def wait_for_all(koalad: Grid, jobs: Sequence[int], timeout_s: float | None = None) -> list[Job]:
    """Return the jobs once all are final. The progress of the sweeps among them is shown meanwhile.

    Raises TimeoutError after `timeout_s`.
    """
    sweeps = {job["id"] for job in koalad.jobs(_NOT_FINAL, jobs) if job["sweep"]}
    if not sweeps:
        return koalad.wait(jobs, timeout_s)
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    with SweepBars() as bars:
        while True:
            found = [runner for runner in koalad.runners() if runner["id"] in sweeps]
            bars.show(found, _transfers(koalad, found))
            left = _POLL_S if deadline is None else max(0.0, min(_POLL_S, deadline - time.monotonic()))
            try:
                return koalad.wait(jobs, left)
            except TimeoutError:
                if deadline is not None and time.monotonic() >= deadline:
                    raise


def _transfers(koalad: Grid, runners: Sequence[Runner]) -> Mapping[int, Sequence[Transfer]]:
    """Return the transfers of those sweeps whose parameters are all done, by sweep."""
    bringing = [runner["id"] for runner in runners if _brings(runner)]
    return {job["id"]: job["transfers"] for job in koalad.jobs(ids=bringing)} if bringing else {}


class SweepBars:
    """Shows the progress of sweeps: a bar for each on a terminal, else lines."""

    def __init__(self) -> None:
        self._progress: Progress | None = None
        self._tasks: dict[int, TaskID] = {}
        self._printed: dict[int, tuple[float, str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def show(self, runners: Sequence[Runner], transfers: Mapping[int, Sequence[Transfer]] | None = None) -> None:
        """Show the progress of the sweeps. `transfers`: the transfers of some of them."""
        for runner in runners:
            text = progress_of(runner, datetime.now(UTC), (transfers or {}).get(runner["id"], ()))
            if errors.is_terminal:
                self._draw(runner, text)
            else:
                self._print(runner, text)

    def _draw(self, runner: Runner, text: str) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        if self._progress is None:
            words = TextColumn("sweep {task.fields[id]}", markup=False), TextColumn("{task.description}", markup=False)
            self._progress = Progress(words[0], BarColumn(), words[1], console=errors.console, transient=True)
            self._progress.start()
        identity = runner["id"]
        if identity not in self._tasks:
            self._tasks[identity] = self._progress.add_task("", total=runner["parameters"], id=identity)
        self._progress.update(self._tasks[identity], completed=runner["done"], description=text)

    def _print(self, runner: Runner, text: str) -> None:
        """Print the line of a sweep, unless it has not changed or the last one is recent."""
        at, before = self._printed.get(runner["id"], (0.0, ""))
        line = f"sweep {runner['id']}: {text}"
        if line != before and time.monotonic() - at >= _PIPED_S:
            self._printed[runner["id"]] = time.monotonic(), line
            print_message(line)


def progress_of(runner: Runner, now: datetime, transfers: Sequence[Transfer] = ()) -> str:
    """Describe the progress of one sweep in a line. `transfers`: those of its files that are under way."""
    nodes, suspended = (sum(each[what] for each in runner["clusters"]) for what in ("nodes", "suspended"))
    brings = _brings(runner)
    has = _brought(transfers) if brings else f"{nodes} {'node' if nodes == 1 else 'nodes'}"
    parts = [
        counted(runner),
        has if runner["state"] == "running" else runner["state"],
        f"{suspended} of them suspended" if suspended else "",
        f"{runner['parameters_per_minute']:.0f} a minute" if runner["parameters_per_minute"] and not brings else "",
        f"ends in {until(runner['ends_at'], now)}" if runner["ends_at"] else "",
    ]
    return ", ".join(part for part in parts if part)


def _brings(runner: Runner) -> bool:
    return bool(runner["state"] == "running" and runner["done"] == runner["parameters"])


def _brought(transfers: Sequence[Transfer]) -> str:
    """Describe the transfer of the parameters' output, as far as it is known."""
    known = [each for each in transfers if each["parameters"] is not None]
    if not known:
        return "fetching output files of parameters"
    done, of, moved, rate = (
        sum(each[what] or 0 for each in known)
        for what in ("parameters_done", "parameters", "bytes_moved", "bytes_per_second")
    )
    return f"fetching output files of parameters: {done} of {of} done, {in_bytes(moved)}, {in_bytes(rate)}/s"


def counted(sweep: Counts) -> str:
    """Return the finished and failed parameters of a runner, or of a job's `sweep`, as text."""
    failed = f", {sweep['failed']} failed" if sweep["failed"] else ""
    return f"{sweep['done']} of {sweep['parameters']} done{failed}"


def until(instant: str, now: datetime) -> str:
    """Return the time until the instant as text, in one rounded unit."""
    seconds = max(0, round((datetime.fromisoformat(instant) - now).total_seconds()))
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"
