"""`koala demo`: the main job on three embedded clusters of this machine, in seconds; nothing is left behind."""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.live import Live
from rich.table import Table

from koalapy.cli.daemon import start
from koalapy.cli.output import DONE, FAILED, out, print_json, say, table, told
from koalapy.client import Grid
from koalapy.data import data_path
from koalapy.locations import Locations
from koalapy.model.errors import OurError

app = typer.Typer()
Document = dict[str, Any]

_CLUSTERS = ("amsterdam", "delft", "leiden")
_PATIENCE_S = 60.0
_FINAL = frozenset({"done", "failed", "cancelled"})


@app.command()
def demo(
    json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep its directory, to look around in it.")] = False,
) -> None:
    """Run co-allocated jobs on three embedded clusters of this machine."""
    begun = time.monotonic()
    with told(), _directory(keep) as directory, _koalad(directory) as koalad:
        jobs = {koalad.submit(job, directory=directory): wanted for job, wanted in _jobs(directory)}
        found = _watch(koalad, list(jobs), quiet=json)
        stories = {job: koalad.show(job) for job in jobs}
    seconds = round(time.monotonic() - begun, 2)
    if json:
        print_json({"schema": "koala.demo/1", "jobs": found, "seconds": seconds})
    else:
        _summary(found, stories, seconds)
    expected = all(job["state"] == jobs[job["id"]] for job in found)
    raise typer.Exit(DONE if expected else FAILED)


def _jobs(directory: Path) -> Iterator[tuple[Document, str]]:
    """Each job with the state that it must end in."""
    poisson = {"executable": sys.executable, "arguments": ["poisson.py", "--grid", "64"], "walltime": "2m"}
    staged = {"stage_in": [str(data_path("configs") / "examples" / "poisson" / "poisson.py")]}
    unordered = [{"processors": 2, **poisson} for _ in _CLUSTERS]
    yield {"name": "unordered", "components": unordered, **staged, "stage_out": ["result.npy"]}, "done"
    ordered = [{"processors": 2, "cluster": cluster, **poisson} for cluster in _CLUSTERS[:2]]
    yield {"name": "ordered", "components": ordered, **staged}, "done"
    fails_once = 'if mkdir "$0" 2>/dev/null; then echo "first try"; exit 1; fi; echo "second try"'
    tried = {"processors": 1, "executable": "/bin/sh", "arguments": ["-c", fails_once, str(directory / "tried")]}
    yield {"name": "retried", "components": [tried], "retry_on": ["exit"]}, "done"
    yield {"name": "mistaken", "components": [{"processors": 1, "executable": "./no-such-program"}]}, "failed"


@contextmanager
def _directory(keep: bool) -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="koala-demo-"))
    try:
        yield directory
    finally:
        if keep:
            say(f"kept: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _koalad(directory: Path) -> Iterator[Grid]:
    """A koalad of its own, with all its files in the directory; it ends, and whatever it started, with the block."""
    os.environ |= {"XDG_STATE_HOME": str(directory / "state"), "XDG_RUNTIME_DIR": str(directory)}
    grid_file = directory / "grid.yaml"
    clusters = {
        name: {"batch": "local", "connect": "local:", "slots": 4, "shared": str(directory / name), "poll": "1s"}
        for name in _CLUSTERS
    }
    grid_file.write_text(yaml.safe_dump({"grid": "demo", "clusters": clusters}, sort_keys=False))
    locations = Locations.of(grid_file)
    start(locations)
    with Grid(grid_file) as koalad:
        pid = koalad.status()["pid"]
        try:
            yield koalad
        finally:
            koalad.shutdown(cancel=True)
            _await(lambda: not _runs(pid), "koalad")
            _await(lambda: not _processes_in(directory), "an embedded cluster")


def _watch(koalad: Grid, jobs: list[int], quiet: bool) -> list[Document]:
    """A live table on a terminal, a line for each change when piped; the jobs once all are over."""
    deadline = time.monotonic() + _PATIENCE_S
    if not out.is_terminal or quiet:
        return _follow(koalad, jobs, deadline, quiet)
    with Live(console=out, refresh_per_second=10, transient=True) as live:
        while True:
            found = koalad.jobs(ids=jobs)
            live.update(_live_table(found))
            if all(job["state"] in _FINAL for job in found):
                return found
            _check(deadline)
            time.sleep(0.1)


def _follow(koalad: Grid, jobs: list[int], deadline: float, quiet: bool) -> list[Document]:
    told: dict[int, str] = {}
    while True:
        found = koalad.jobs(ids=jobs)
        for job in found:
            line = _line(job)
            if told.get(job["id"]) != line and not quiet:
                print(line, flush=True)
            told[job["id"]] = line
        if all(job["state"] in _FINAL for job in found):
            return found
        _check(deadline)
        time.sleep(0.05)


def _check(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise OurError("too_slow", f"The jobs were not over after {_PATIENCE_S:.0f} s.", "Run it again with --keep.")


def _line(job: Document) -> str:
    components = " ".join(f"{each['cluster'] or '?'}:{each['state']}" for each in job["components"])
    return f"{job['id']} {job['name']:10} {job['state']:9} {components}"


def _live_table(jobs: list[Document]) -> Table:
    shown = Table("ID", "NAME", "TYPE", "STATE", "COMPONENTS", box=None, header_style="bold")
    for job in jobs:
        components = "  ".join(f"{each['cluster'] or '?'}: {each['state']}" for each in job["components"])
        shown.add_row(str(job["id"]), job["name"], job["type"], job["state"], components)
    return shown


def _summary(jobs: list[Document], stories: dict[int, Document], seconds: float) -> None:
    table(
        ("ID", "NAME", "TYPE", "STATE", "CLUSTERS", "RETRIES", "REASON"),
        [
            (
                job["id"], job["name"], job["type"], job["state"],
                ",".join(dict.fromkeys(each["cluster"] for each in job["components"] if each["cluster"])) or None,
                job["completion_failures"] + job["submission_failures"], job["reason"],
            )
            for job in jobs
        ],
    )  # fmt: skip
    released = sum(event["kind"] == "job_released" for story in stories.values() for event in story["events"])
    out.print(f"{len(jobs)} jobs, {released} releases of a whole job, {seconds} s; nothing is left behind.")


def _runs(pid: int) -> bool:
    """A koalad that has ended is our child still, until it is waited for."""
    try:
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return Path(f"/proc/{pid}").exists()


def _processes_in(directory: Path) -> list[int]:
    """Processes whose command line names the demo's directory, but for this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if os.fsencode(directory) in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def _await(over: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 15
    while not over():
        if time.monotonic() > deadline:
            raise OurError("left_behind", f"{what} of the demo does not end.", "Look at it with ps.")
        time.sleep(0.05)
