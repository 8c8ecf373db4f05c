"""`koala top`: clusters, queue, running jobs, sweeps and koalad itself on one screen, updated every second."""

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict

import typer

from koalapy.cli import options
from koalapy.cli.output import errors_reported, out, print_json
from koalapy.cli.signals import interruptible
from koalapy.client import Grid
from koalapy.client.calls import NotReachable
from koalapy.model.errors import KoalaError
from koalapy.model.textfile.words import visible_line

if TYPE_CHECKING:
    from koalapy.answers.clusters import Cluster
    from koalapy.answers.jobs import Job
    from koalapy.answers.sweeps import JobStateName, Runner

app = typer.Typer()

_EVERY_S = 1.0
_EXPLAINED = 20  # waiting jobs whose reasons are requested
_PIPED = (100, 40)  # columns and lines without a terminal
_RUNNING = ("claiming", "running", "stopping")
_BAR = (("ours", "█", "#"), ("scavenged", "▓", "%"), ("others", "▒", "+"), ("idle", "░", "."))


class Load(TypedDict):
    """koalad's own load since its start; None for unavailable figures."""

    cpu_s: float | None
    memory_bytes: float | None
    commits: float | None


class QueuedJob(TypedDict):
    """A job in the queue. `reason`: None if koalad was not asked for it."""

    id: int
    name: str
    owner: str
    state: "JobStateName"
    priority: int
    submitted_at: str
    processors: int
    reason: str | None


class Part(TypedDict):
    """A component of a running job, on its cluster."""

    cluster: str
    processors: int
    state: str


class RunningJob(TypedDict):
    """A running job, and its components that have a cluster."""

    id: int
    name: str
    owner: str
    state: "JobStateName"
    started_at: str | None
    components: list[Part]


class Snapshot(TypedDict):
    """All that the screen shows, at one instant."""

    schema: Literal["koala.top/1"]
    at: str
    grid: str
    version: str
    state: str
    pid: int
    troubles: list[str]
    load: Load
    clusters: list["Cluster"]
    queue: list[QueuedJob]
    running: list[RunningJob]
    sweeps: list["Runner"]


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the screen. `style`: a style of rich."""

    text: str
    style: str = ""


@app.command()
def top(
    once: Annotated[bool, typer.Option("--once", help="Print the screen once, and end.")] = False,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Show the clusters, the queue with reasons, running jobs, sweeps and koalad's own load; q ends it."""
    with errors_reported(), Grid(grid) as koalad:
        if json:
            return print_json(looked(koalad))
        if once or not (sys.stdin.isatty() and out.is_terminal):
            width, height = out.console.size if out.is_terminal else _PIPED
            for line in screen(looked(koalad), None, width, height, _has_blocks()):
                out.print(line.text)
            return None
        _watch(koalad)
    return None


def looked(koalad: Grid) -> Snapshot:
    """Return all that the screen shows, as of now."""
    about = koalad.status()
    jobs = [job for job in koalad.jobs(("waiting", "held", *_RUNNING)) if not job["sweep"] and not job["flow"]]
    waiting = sorted((job for job in jobs if job["state"] == "waiting"), key=lambda job: (job["priority"], job["id"]))
    queue = waiting + [job for job in jobs if job["state"] == "held"]
    return {
        "schema": "koala.top/1",
        "at": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "grid": about["grid"],
        "version": about["version"],
        "state": about["state"],
        "pid": about["pid"],
        "troubles": about["troubles"],
        "load": _load(koalad),
        "clusters": koalad.clusters(),
        "queue": [_queued(koalad, job, number < _EXPLAINED) for number, job in enumerate(queue)],
        "running": [_running(job) for job in jobs if job["state"] in _RUNNING],
        "sweeps": koalad.runners(),
    }


def _load(koalad: Grid) -> Load:
    from prometheus_client.parser import text_string_to_metric_families

    families = text_string_to_metric_families(koalad.metrics())
    values = {sample.name: sample.value for family in families for sample in family.samples}
    return {
        "cpu_s": values.get("process_cpu_seconds_total"),
        "memory_bytes": values.get("process_resident_memory_bytes"),
        "commits": values.get("koala_commits_total"),
    }


def _queued(koalad: Grid, job: "Job", explained: bool) -> QueuedJob:
    """Describe a queued job. Its `reason` is None if `explained` is false, or if the job was pruned."""
    reason = None
    if explained:
        try:
            reason = koalad.explain(job["id"])["summary"]
        except NotReachable:
            raise
        except KoalaError:
            pass  # it was pruned meanwhile
    return {
        "id": job["id"],
        "name": job["name"],
        "owner": job["owner"],
        "state": job["state"],
        "priority": job["priority"],
        "submitted_at": job["submitted_at"],
        "processors": sum(each["processors"] for each in job["components"]),
        "reason": reason,
    }


def _running(job: "Job") -> RunningJob:
    placed = [(each["cluster"], each) for each in job["components"]]
    return {
        "id": job["id"],
        "name": job["name"],
        "owner": job["owner"],
        "state": job["state"],
        "started_at": job["started_at"],
        "components": [
            {"cluster": cluster, "processors": each["processors"], "state": each["state"]}
            for cluster, each in placed
            if cluster
        ],
    }


# ---- the screen


def screen(now: Snapshot, before: Snapshot | None, width: int, height: int, blocks: bool = True) -> list[Line]:
    """Return at most `height` lines of at most `width` characters. `before`: the previous document, to compute rates.

    The sections share the remaining lines by their content. Each states how many of its lines are not shown.
    """
    head = [_head(now, before), *(Line(f"! {text}", "bold red") for text in now["troubles"][:2])]
    name = min(16, max((len(each["name"]) for each in now["clusters"]), default=0))
    sections: list[tuple[str, list[Line]]] = [
        ("CLUSTERS", [_cluster(each, name, width, blocks) for each in now["clusters"]]),
        ("QUEUE", [_waiting(each, now["at"]) for each in now["queue"]]),
        ("RUNNING", [_running_line(each, now["at"]) for each in now["running"]]),
        ("SWEEPS", [_sweep(each) for each in now["sweeps"]]),
    ]
    shares = _shares([len(lines) for _, lines in sections], height - len(head) - 2 * len(sections))
    shown = list(head)
    for (title, lines), share in zip(sections, shares, strict=True):
        shown += [Line(""), Line(f"{title} ({len(lines)})", "bold")]
        shown += lines if len(lines) <= share else _cut(lines, share)
    return [Line(_fit(line.text, width), line.style) for line in shown[:height]]


def _shares(wanted: Sequence[int], lines: int) -> list[int]:
    """Return the lines of each section: what it needs, or else an equal share of what the smaller ones leave."""
    shares = [0] * len(wanted)
    left = max(0, lines)
    for place, index in enumerate(sorted(range(len(wanted)), key=lambda each: wanted[each])):
        shares[index] = min(wanted[index], left // (len(wanted) - place))
        left -= shares[index]
    return shares


def _cut(lines: Sequence[Line], share: int) -> list[Line]:
    if share == 0:
        return []
    return [*lines[: share - 1], Line(f"  … {len(lines) - share + 1} more", "dim")]


def _head(now: Snapshot, before: Snapshot | None) -> Line:
    parts = [f"koalad {now['version']}", f"grid {now['grid']}", now["state"], f"pid {now['pid']}"]
    if before is not None and before["pid"] == now["pid"]:
        if (cpu := _rate(now, before, "cpu_s")) is not None:
            parts.append(f"CPU {100 * cpu:.0f} %")
        if (commits := _rate(now, before, "commits")) is not None:
            parts.append(f"{commits:.0f} commits/s")
    if (memory := now["load"]["memory_bytes"]) is not None:
        parts.append(f"{memory / 2**20:.0f} MiB")
    return Line("  ".join(parts), "reverse")


def _rate(now: Snapshot, before: Snapshot, what: Literal["cpu_s", "commits"]) -> float | None:
    """Return by how much a figure has grown per second; None if it is unknown."""
    elapsed_s = (_instant(now["at"]) - _instant(before["at"])).total_seconds()
    last, first = now["load"][what], before["load"][what]
    return None if elapsed_s <= 0 or last is None or first is None else (last - first) / elapsed_s


def _cluster(cluster: "Cluster", name_width: int, width: int, blocks: bool) -> Line:
    """Return the line of a cluster. Its bar fills the width; the parts are rounded so that they add up to it."""
    name = cluster["name"][:name_width].ljust(name_width)
    total, ours, others = cluster["total"], cluster["ours"] or 0, cluster["others"] or 0
    if total is None or cluster["connection"] != "up":
        return Line(f"  {name} {cluster['connection']}: {cluster['reason'] or 'not measured yet'}", "red")
    scavenged = min(cluster["scavenged"] or 0, ours)
    left = total - ours - others  # its `idle` includes what sweeps would give up
    parts = {"ours": ours - scavenged, "scavenged": scavenged, "others": others, "idle": left}
    numbers = f"{cluster['idle'] or 0:>5} idle {ours:>5} ours {scavenged:>5} sweeps of {total:>5}"
    length = max(8, width - name_width - len(numbers) - 6)
    counts = [max(0, parts[what]) for what, _, _ in _BAR]
    whole = max(1, total, sum(counts))
    bar, filled = "", 0
    for index, (_, block, plain) in enumerate(_BAR):
        until = round(sum(counts[: index + 1]) * length / whole)
        bar += (block if blocks else plain) * (until - filled)
        filled = until
    return Line(f"  {name} [{bar.ljust(length)}] {numbers}", "" if cluster["reason"] is None else "yellow")


def _waiting(job: QueuedJob, now: str) -> Line:
    what = "held" if job["state"] == "held" else _since(job["submitted_at"], now)
    return Line(f"  {job['id']:>6} {job['name'][:16]:<16} {job['processors']:>6}p {what:>8}  {job['reason'] or ''}")


def _running_line(job: RunningJob, now: str) -> Line:
    what = _since(job["started_at"], now) if job["started_at"] and job["state"] == "running" else job["state"]
    where = " ".join(f"{each['cluster']}:{each['processors']}" for each in job["components"])
    processors = sum(each["processors"] for each in job["components"])
    return Line(f"  {job['id']:>6} {job['name'][:16]:<16} {processors:>6}p {what:>8}  {where}")


def _sweep(sweep: "Runner") -> Line:
    rate = sweep["parameters_per_minute"]
    done = f"{sweep['done']}/{sweep['parameters']}"
    pace = "-" if rate is None else f"{rate:.0f}/min"
    where = " ".join(f"{each['cluster']}:{each['nodes']}" for each in sweep["clusters"] if each["nodes"])
    return Line(f"  {sweep['id']:>6} {sweep['name'][:16]:<16} {done:>15} {pace:>9}  {where or sweep['state']}")


def _since(instant: str, now: str) -> str:
    """Format the time from `instant` to `now`, such as 4s, 12m5s, 3h20m or 5d2h."""
    seconds = max(0, int((_instant(now) - _instant(instant)).total_seconds()))
    if seconds >= 86_400:
        return f"{seconds // 86_400}d{seconds % 86_400 // 3600}h"
    if seconds >= 3600:
        return f"{seconds // 3600}h{seconds % 3600 // 60}m"
    return f"{seconds // 60}m{seconds % 60}s" if seconds >= 60 else f"{seconds}s"


def _instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _fit(text: str, width: int) -> str:
    """Return the text on one line, cut to `width` cells of a terminal."""
    from rich.cells import cell_len, set_cell_size

    plain = visible_line(text)
    return plain if cell_len(plain) <= width else set_cell_size(plain, width - 1).rstrip() + "…"


def _has_blocks() -> bool:
    """Return whether the output's encoding has block characters."""
    return (sys.stdout.encoding or "").lower().startswith("utf")


# ---- on a terminal


def _watch(koalad: Grid) -> None:
    """Show the screen until q, Ctrl-C, or the terminal's end; then restore the terminal."""
    from rich.live import Live
    from rich.text import Text

    before: Snapshot | None = None
    lines: list[Line] = []
    blocks = _has_blocks()  # before Live replaces standard output by an object without encoding
    try:
        with interruptible(), _keys() as pressed, Live(console=out.console, screen=True, auto_refresh=False) as live:
            while True:
                began = time.monotonic()
                width, height = out.console.size
                try:
                    now = looked(koalad)
                    lines, before = screen(now, before, width, height, blocks), now
                except NotReachable as error:
                    failure = Line(_fit(f"{error.reason.message} {error.reason.advice}", width), "bold red")
                    lines = [failure, *lines[1:height]]
                drawn = [Text(line.text, style=line.style, no_wrap=True, end="") for line in lines[:height]]
                live.update(Text("\n").join(drawn), refresh=True)
                if pressed(max(0.0, began + _EVERY_S - time.monotonic())):
                    return
    except KeyboardInterrupt:
        return


@contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Yield a function that waits for at most the given seconds, and returns True on q or the end of input."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)

    def pressed(timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))[0]:
            keys = os.read(terminal, 64)
            if not keys or b"q" in keys.lower():
                return True
        return False

    tty.setcbreak(terminal)
    try:
        yield pressed
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
