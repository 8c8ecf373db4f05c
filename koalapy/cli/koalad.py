"""`koalad`: one grid's daemon. Runs until it is told to end, by its API or a signal; `koala up` starts it detached."""

import json
import os
import pwd
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from koalapy.api.app import JobText
from koalapy.cli.gridfile import read_grid_file
from koalapy.cli.life import Life
from koalapy.cli.log import LogFormat, set_up
from koalapy.config import GridFile
from koalapy.languages import from_mapping, read_job
from koalapy.locations import Locations
from koalapy.model.errors import KoalaError, RequestError
from koalapy.model.request import Request
from koalapy.model.textfile.words import shown, use_known
from koalapy.runtime.parameters import with_staged
from koalapy.runtime.plainfile import open_plain
from koalapy.runtime.registry import load, registered

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def koalad(
    grid: Annotated[Path | None, typer.Option("--grid", "-g", help="Grid file.")] = None,
    log_format: Annotated[
        LogFormat | None,
        typer.Option(envvar="KOALA_LOG_FORMAT", help="Of the log; text on a terminal, else json, if not said."),
    ] = None,
    log_file: Annotated[Path | None, typer.Option(hidden=True)] = None,
    ready_fd: Annotated[int | None, typer.Option("--ready-fd", hidden=True)] = None,
) -> None:
    """Run koalad in the foreground; its log goes to standard error."""
    set_up(log_format, log_file)
    try:
        life = _life(Locations.of(grid))
        life.start()
    except KoalaError as error:
        _tell(ready_fd, {"error": error.reason.message, **_facts_of(error)})
        print(f"koalad: {error}", file=sys.stderr)
        raise typer.Exit(2 if error.reason.whose == "request" else 1) from error
    _tell(ready_fd, {"pid": os.getpid()})
    raise typer.Exit(life.run())


def _life(locations: Locations) -> Life:
    if locations.grid_file is None:
        message = f"{locations.grid} is a name, not a grid file."
        raise RequestError("no_grid_file", message, "Give the path of its grid file with --grid.")
    grid = read_grid_file(locations.grid_file)
    return Life(locations, grid, _reader(grid), _owner())


def _reader(grid: GridFile) -> Callable[[JobText], Request]:
    clusters = list(grid.clusters)
    readers = {name: load("koalapy.languages", name) for name in registered("koalapy.languages")}
    orders = sorted(registered("koalapy.sweep_order"))

    def read(job: JobText) -> Request:
        """The request of a submitted text or mapping. Raises RequestError with file, line and key."""
        _check(job)
        if job.job is not None:
            found = from_mapping(job.job, job.source, job.directory, clusters, job.overrides, open_plain)
        else:
            assert job.text is not None
            found = read_job(job.text, job.source, job.directory, clusters, job.overrides, readers, open_plain)
        _check_order(found.order, orders)
        return with_staged(found)

    return read


def _check_order(name: str, known: Sequence[str]) -> None:
    """Raises RequestError for an order of a sweep's parameters that is not registered."""
    if name and name not in known:
        message = f"The order {shown(name)} of a sweep's parameters is not registered."
        raise RequestError("unknown_order", message, use_known(name, known))


def _check(job: JobText) -> None:
    """Raises RequestError for what contradicts itself."""
    if job.text is None and job.job is None:
        raise RequestError("no_job", "The request holds no job.", "Give it as `text` or as `job`.")
    if job.text is not None and job.job is not None:
        raise RequestError("two_jobs", "The request holds a job as text and as job.", "Give it as one of the two.")
    if not os.path.isabs(job.directory):
        message = f"The directory {job.directory!r} is not absolute."
        raise RequestError("bad_directory", message, "Name the one that the job's paths are relative to.")


def _facts_of(error: KoalaError) -> dict[str, str]:
    return {"advice": error.reason.advice, "code": error.reason.code, "whose": error.reason.whose}


def _tell(ready_fd: int | None, answer: dict[str, Any]) -> None:
    """One line to whoever started us, then never again."""
    if ready_fd is not None:
        os.write(ready_fd, json.dumps(answer).encode() + b"\n")
        os.close(ready_fd)


def _owner() -> str:
    """The user's name; of one that has none, the number."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def main() -> None:
    app()


if __name__ == "__main__":
    main()
