"""`koala demo`: runs co-allocated jobs on three embedded clusters of this machine in seconds, and cleans up."""

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml
from rich.live import Live
from rich.table import Table

from koalapy.cli.output import (
    DONE,
    FAILED,
    errors_reported,
    out,
    print_json,
    print_line,
    print_message,
    rich_table,
    table,
)
from koalapy.cli.signals import interruptible_once, uninterrupted
from koalapy.client import Grid
from koalapy.client.calls import NotReachable
from koalapy.client.daemon import wait_for_end
from koalapy.client.grid import FINAL
from koalapy.common.data import data_path
from koalapy.common.extras import need_extra
from koalapy.model.counts import counted_as
from koalapy.model.errors import KoalaError, OurError

if TYPE_CHECKING:
    from koalapy.answers.jobs import Job, JobAnswer

app = typer.Typer()
_CLUSTERS = ("amsterdam", "delft", "leiden")
_LOOKS = {"poll": "1s", "max_age": "30s"}  # measure seldom on a busy machine
_PATIENCE_S = 180.0
_END_S = 20.0  # time for koalad to end its jobs and itself, then for the processes that are left
_LONGEST_PLACE = 60  # length of the temporary directory's path, so that a Unix socket's path fits


@app.command()
def demo(
    json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the demo's directory.")] = False,
) -> None:
    """Run co-allocated jobs on three embedded clusters of this machine."""
    begun = time.monotonic()
    with errors_reported():
        need_extra("demo", "The demo")
    with (
        errors_reported(),
        uninterrupted(),
        _directory(keep) as directory,
        _koalad(directory) as koalad,
        interruptible_once(),
    ):
        koalad.up()
        _until_known(koalad)
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


def _jobs(directory: Path) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yield each job with the state that it must end in."""
    poisson = {"executable": sys.executable, "arguments": ["poisson.py", "--grid", "32"], "walltime": "2m"}
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
    place = tempfile.gettempdir()
    directory = Path(tempfile.mkdtemp(prefix="koala-demo-", dir=place if len(place) <= _LONGEST_PLACE else "/tmp"))
    try:
        yield directory
    finally:
        if keep:
            print_message(f"kept: {directory}")
        else:
            shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _koalad(directory: Path) -> Iterator[Grid]:
    """Yield a grid with all its files in the directory. Its koalad and all processes end with the block."""
    os.environ |= {"XDG_STATE_HOME": str(directory / "state"), "XDG_RUNTIME_DIR": str(directory)}
    grid_file = directory / "grid.yaml"
    clusters = {
        name: {"batch": "local", "connect": "local:", "slots": 4, "shared": str(directory / name), **_LOOKS}
        for name in _CLUSTERS
    }
    grid_file.write_text(yaml.safe_dump({"grid": "demo", "clusters": clusters}, sort_keys=False))
    with Grid(grid_file) as koalad:
        try:
            yield koalad
        finally:
            _end(koalad, directory)


def _end(koalad: Grid, directory: Path) -> None:
    """End koalad by its command, then by force. Raises OurError if force was needed."""
    deadline = time.monotonic() + 2 * _END_S
    while left := _processes_of(directory):
        if time.monotonic() > deadline:
            for process in left:
                os.kill(process, signal.SIGKILL)
            raise OurError("left_behind", "A process of the demo did not end by itself.", "Run it again with --keep.")
        _ask_to_end(koalad)
        time.sleep(0.05)


def _ask_to_end(koalad: Grid) -> None:
    """Stop koalad. A koalad that was still starting when the demo was interrupted is stopped by a second call."""
    try:
        pid = int(koalad.status()["pid"])
        koalad.shutdown(cancel=True)
        wait_for_end(pid, _END_S)
    except NotReachable:
        pass  # it has ended, or has not started yet
    except KoalaError as error:
        print_message(f"koala: {error}")


def _until_known(koalad: Grid) -> None:
    """Wait until all clusters can be used, because the jobs have to be spread over all three."""
    deadline = time.monotonic() + _PATIENCE_S
    while any(cluster["reason"] for cluster in koalad.clusters()):
        _check(deadline)
        time.sleep(0.05)


def _watch(koalad: Grid, jobs: list[int], quiet: bool) -> list["Job"]:
    """Return the jobs once all are final. Show a live table on a terminal, else print a line for each change."""
    deadline = time.monotonic() + _PATIENCE_S
    if not out.is_terminal or quiet:
        return _follow(koalad, jobs, deadline, quiet)
    with Live(console=out.console, refresh_per_second=10, transient=True) as live:
        while True:
            found = koalad.jobs(ids=jobs)
            live.update(_live_table(found))
            if all(job["state"] in FINAL for job in found):
                return found
            _check(deadline)
            time.sleep(0.1)


def _follow(koalad: Grid, jobs: list[int], deadline: float, quiet: bool) -> list["Job"]:
    shown_lines: dict[int, str] = {}
    while True:
        found = koalad.jobs(ids=jobs)
        for job in found:
            line = _line(job)
            if shown_lines.get(job["id"]) != line and not quiet:
                print_line(line)
            shown_lines[job["id"]] = line
        if all(job["state"] in FINAL for job in found):
            return found
        _check(deadline)
        time.sleep(0.05)


def _check(deadline: float) -> None:
    if time.monotonic() > deadline:
        advice = "Run it again with --keep, and look at koalad.log there."
        raise OurError("too_slow", f"The demo was not over after {_PATIENCE_S:.0f} s.", advice)


def _line(job: "Job") -> str:
    components = " ".join(f"{each['cluster'] or '?'}:{each['state']}" for each in job["components"])
    return f"{job['id']} {job['name']:10} {job['state']:9} {components}"


def _live_table(jobs: Sequence["Job"]) -> Table:
    rows = []
    for job in jobs:
        components = "  ".join(f"{each['cluster'] or '?'}: {each['state']}" for each in job["components"])
        rows.append((str(job["id"]), job["name"], job["type"], job["state"], components))
    return rich_table(("ID", "NAME", "TYPE", "STATE", "COMPONENTS"), rows)


def _summary(jobs: Sequence["Job"], stories: Mapping[int, "JobAnswer"], seconds: float) -> None:
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
    out.print(
        f"{len(jobs)} jobs, {counted_as(released, 'release')} of a whole job, {seconds} s; nothing is left behind."
    )
    out.print("The job `mistaken` fails on purpose: its program is not there, and its reason shows that.")
    out.print(
        "Next: `koala init` writes a grid file of your clusters, `koala doctor` checks them, `koala up` starts koalad."
    )
    out.print(f"Examples of jobs are in {data_path('configs') / 'examples'}.")


def _processes_of(directory: Path) -> list[int]:
    """Return the ids of the processes that koalapy started for the demo, by their command line or environment."""
    return [
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and int(entry.name) != os.getpid() and _is_of(entry, os.fsencode(directory))
    ]


def _is_of(process: Path, directory: bytes) -> bool:
    try:
        words = (process / "cmdline").read_bytes().split(b"\0")
        variables = (process / "environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or belongs to another user
        return False
    pushed = any(directory in word and word.endswith(b".pyz") for word in words)
    return pushed or any(directory in each and each.startswith((b"KOALA_", b"XDG_STATE_HOME=")) for each in variables)
