"""`koala doctor`: examines each cluster of a grid end to end."""

import threading
from _thread import interrupt_main
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer
from koalapy_adapters.connections.asking import Question
from rich.console import Group
from rich.live import Live
from rich.text import Text

from koalapy.cli.login import AtTerminal, terminal_kept
from koalapy.cli.options import GRID_HELP, Json
from koalapy.cli.output import FAILED, errors, errors_reported, out, print_json, print_line, print_message
from koalapy.cli.signals import interruptible, uninterrupted
from koalapy.common.locations import Locations
from koalapy.config import GridFile
from koalapy.doctor.checks import CHECKS, TITLES, Failure, Finding, Report, Status, document
from koalapy.doctor.doctor import Doctor
from koalapy.koalad.gridfile import read_grid_file
from koalapy.model.errors import RequestError
from koalapy.model.textfile.words import use_known, visible
from koalapy.model.units import SECOND, parse_duration

app = typer.Typer()

_MARKS = {
    Status.OK: ("✓", "green"),
    Status.WARNING: ("!", "yellow"),
    Status.FAILED: ("✗", "bold red"),
    Status.NOT_EXAMINED: ("·", "dim"),
    Status.NOT_APPLICABLE: ("-", "dim"),
}
_MOVES = {
    "you": "What you can do",
    "administrator": "For the administrator",
    "nobody": "This may pass by itself",
    "koalapy": "A bug in koalapy, please report it",
}
_INTERRUPTED = 130

Clusters = Annotated[list[str] | None, typer.Argument(metavar="[CLUSTER…]", help="Clusters to examine. Default: all.")]
GridFileOption = Annotated[str | None, typer.Option("--grid", "-g", metavar="FILE", help=GRID_HELP)]
Patience = Annotated[str, typer.Option(metavar="TIME", help="How long each test job may wait in the queue.")]


@app.command()
def doctor(
    clusters: Clusters = None, grid: GridFileOption = None, patience: Patience = "2m", json: Json = False
) -> None:
    """Examine each cluster end to end, and show how to correct each failure. Exit status 0 if nothing failed."""
    with errors_reported():
        described = _grid(grid)
        names = _chosen(described, clusters or [])
        patience_s = _seconds(patience)
        progress = _Quiet() if json else _Live(names) if out.is_terminal else _Lines()
        examined = Doctor(described, names, patience_s, progress.began, progress.finished, _Asking(progress))
        complete = _run(examined, progress)
    if json:
        print_json(document(described, examined.reports, complete))
    else:
        _conclude(examined.reports, complete)
    if not complete:
        raise typer.Exit(_INTERRUPTED)
    if not all(report.well for report in examined.reports):
        raise typer.Exit(FAILED)


def _run(examined: Doctor, progress: "_Quiet") -> bool:
    """Return whether the examination was complete. An interrupted one also cleans up on the clusters."""
    with terminal_kept(), progress.shown():
        try:
            with interruptible():
                examined.run()
            return True
        except KeyboardInterrupt:
            with uninterrupted():
                if progress.broken is None:
                    print_message("koala: interrupted; cleaning up on the clusters…")
                examined.interrupt()
            if progress.broken is not None:
                raise progress.broken from None
            return False


def _seconds(patience: str) -> float:
    try:
        return parse_duration(patience) / SECOND
    except ValueError as error:
        raise RequestError("bad_patience", f"{error}.", "Give --patience such as 2m.") from error


def _grid(name: str | None) -> GridFile:
    locations = Locations.of(name)
    if locations.grid_file is None:
        message = f"{locations.grid} is a name, not a grid file."
        raise RequestError("no_grid_file", message, "Give the path of its grid file with --grid.")
    locations.check()
    return read_grid_file(locations.grid_file)


def _chosen(grid: GridFile, wanted: list[str]) -> list[str]:
    """Return the wanted clusters, in the order of the grid file. Raises RequestError for an unknown cluster."""
    for name in wanted:
        if name not in grid.clusters:
            message = f"The grid {grid.grid} has no cluster {name}."
            raise RequestError("no_such_cluster", message, use_known(name, list(grid.clusters)))
    return [name for name in grid.clusters if not wanted or name in wanted]


# ---- progress


class _Quiet:
    """Prints nothing before the end. `broken`: the error that prevents further output, None without one."""

    def __init__(self) -> None:
        self.broken: OSError | None = None

    def began(self, cluster: str, check: str) -> None: ...

    def finished(self, cluster: str, finding: Finding) -> None: ...

    @contextmanager
    def shown(self) -> Iterator[None]:
        yield

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the display while a person types."""
        yield


class _Asking(AtTerminal):
    """Passes the questions of logins on to the person at the terminal, one after another."""

    def __init__(self, progress: _Quiet) -> None:
        self._progress, self._alone = progress, threading.Lock()

    def ask(self, question: Question) -> Sequence[str]:
        with self._alone, self._progress.paused():
            return super().ask(question)


class _Lines(_Quiet):
    """Prints a line for each finished check, for a pipe or a log. If the reader has closed it, the command ends."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._unexamined: list[tuple[str, Finding]] = []

    def finished(self, cluster: str, finding: Finding) -> None:
        with self._lock:
            if finding.status is Status.NOT_EXAMINED:
                self._unexamined.append((cluster, finding))
            else:
                status = str(finding.status).replace("_", " ")
                self._print(f"{cluster}: {TITLES[finding.check]}: {status}: {finding.message}")

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Print the checks that were not examined at the end, one line for all with the same reason."""
        yield
        for cluster in dict.fromkeys(cluster for cluster, _ in self._unexamined):
            for line in _unexamined(finding for of, finding in self._unexamined if of == cluster):
                self._print(f"{cluster}: {line}")

    def _print(self, line: str) -> None:
        if self.broken is None:
            try:
                print_line(line)
            except OSError as error:
                self.broken = error
                interrupt_main()


class _Live(_Quiet):
    """Shows all clusters side by side, with the present state of each check."""

    def __init__(self, clusters: Sequence[str]) -> None:
        super().__init__()
        self._findings: dict[str, dict[str, Finding]] = {name: {} for name in clusters}
        self._running: dict[str, str] = {}
        self._live = Live(console=out.console, get_renderable=self._rendered, refresh_per_second=8)

    def began(self, cluster: str, check: str) -> None:
        self._running[cluster] = check

    def finished(self, cluster: str, finding: Finding) -> None:
        self._findings[cluster][finding.check] = finding

    @contextmanager
    def shown(self) -> Iterator[None]:
        with self._live:
            yield

    @contextmanager
    def paused(self) -> Iterator[None]:
        self._live.stop()
        try:
            yield
        finally:
            self._live.start()

    def _rendered(self) -> Group:
        return Group(*(line for name in self._findings for line in self._cluster(name)))

    def _cluster(self, name: str) -> Iterator[Text]:
        yield Text(name, style="bold")
        unexamined = []
        for check in CHECKS:
            finding = self._findings[name].get(check.id)
            if finding is not None and finding.status is Status.NOT_EXAMINED:
                unexamined.append(finding)
            elif finding is not None:
                yield _line(finding)
            elif self._running.get(name) == check.id:
                yield Text(f"  … {check.title}", style="cyan")
        mark, style = _MARKS[Status.NOT_EXAMINED]
        for line in _unexamined(unexamined):
            yield Text(f"  {mark} {visible(line)}", style=style)


def _line(finding: Finding) -> Text:
    mark, style = _MARKS[finding.status]
    return Text("  ").append(mark, style=style).append(f" {TITLES[finding.check]}: {visible(finding.message)}")


def _unexamined(findings: Iterable[Finding]) -> Iterator[str]:
    """Yield a line for all checks of one cluster that were not examined for the same reason."""
    by_reason: dict[str, list[Finding]] = {}
    for finding in findings:
        by_reason.setdefault(finding.message, []).append(finding)
    for reason, same in by_reason.items():
        if len(same) == 1:
            yield f"{TITLES[same[0].check]}: not examined: {reason}"
        else:
            yield f"{len(same)} further checks were not examined. {reason.replace('It depends', 'They depend')}"


# ---- the end


def _conclude(reports: Sequence[Report], complete: bool) -> None:
    for report in reports:
        for finding in report.findings:
            if finding.failure is not None:
                _print_failure(report.cluster, finding, finding.failure)
        for left in report.left:
            errors.console.print(f"\n{report.cluster}: not removed: {left}.", style="red")
    ill = [report.cluster for report in reports if not report.well]
    if not ill and not complete:
        return
    out.print(f"\n{'Nothing failed.' if not ill else 'Problems on: ' + ', '.join(ill) + '.'}")


def _print_failure(cluster: str, finding: Finding, failure: Failure) -> None:
    out.print(Text(f"\n{cluster}: {TITLES[finding.check]}", style="bold"))
    out.print(f"  {failure.cause}")
    if failure.change:
        out.print(f"  {_MOVES[failure.move]}: {failure.change}")
    else:
        out.print(f"  {_MOVES[failure.move]}.")
    if failure.output:
        out.print(f"  Output: {failure.output}")
    if failure.command:
        status = "" if failure.exit_status is None else f" (exit status {failure.exit_status})"
        out.print(f"  Command: {failure.command}{status}")
