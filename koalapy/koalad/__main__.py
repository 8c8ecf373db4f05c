"""`koalad`: the daemon of one grid. It runs until its API or a signal ends it; `koala up` starts it detached."""

import faulthandler
import gc
import json
import os
import pwd
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from koalapy.common.locations import Locations
from koalapy.koalad.gridfile import WatchedFile, read_grid_file
from koalapy.koalad.log import LogFormat, set_up
from koalapy.model.errors import KoalaError, RequestError
from koalapy.model.textfile.words import visible_line
from koalapy.runtime.current_grid import CurrentGrid
from koalapy.runtime.sdnotify import Notifier

if TYPE_CHECKING:
    from koalapy.koalad.process import KoaladProcess

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)


@app.command()
def koalad(
    grid: Annotated[Path | None, typer.Option("--grid", "-g", help="Grid file.")] = None,
    log_format: Annotated[
        LogFormat | None,
        typer.Option(envvar="KOALA_LOG_FORMAT", help="Log format. Default: text on a terminal, else json."),
    ] = None,
    log_file: Annotated[Path | None, typer.Option(hidden=True)] = None,
    ready_fd: Annotated[int | None, typer.Option("--ready-fd", hidden=True)] = None,
) -> None:
    """Run koalad in the foreground; its log goes to standard error."""
    set_up(log_format, log_file)
    faulthandler.enable()  # systemd ends a hanging koalad by SIGABRT: its log then shows the place
    notifier = Notifier.of(os.environ)
    try:
        process = _process(Locations.of(grid), notifier)
        process.start()
    except KoalaError as error:
        _report_start(ready_fd, {"error": error.reason.message, **_error_fields(error)})
        print(visible_line(f"koalad: {error}"), file=sys.stderr)
        raise typer.Exit(2 if error.reason.whose == "request" else 1) from error
    gc.freeze()  # all that is loaded by now stays, so that no collection need go through it again
    _report_start(ready_fd, {"pid": os.getpid()})
    raise typer.Exit(process.run())


def _process(locations: Locations, notifier: Notifier) -> "KoaladProcess":
    if locations.grid_file is None:
        message = f"{locations.grid} is a name, not a grid file."
        raise RequestError("no_grid_file", message, "Give the path of its grid file with --grid.")
    grid_file = WatchedFile(locations.grid_file)
    grid = CurrentGrid(read_grid_file(locations.grid_file))
    # Imported late, so that a mistake in the grid file is reported before a web framework and a database are loaded.
    from koalapy.koalad.job_reader import reader
    from koalapy.koalad.process import KoaladProcess

    return KoaladProcess(locations, grid, grid_file, reader(grid), _owner(), notifier)


def _error_fields(error: KoalaError) -> dict[str, str]:
    return {"advice": error.reason.advice, "code": error.reason.code, "whose": error.reason.whose}


def _report_start(ready_fd: int | None, answer: dict[str, Any]) -> None:
    """Write one line to the process that started koalad, and close its pipe."""
    if ready_fd is not None:
        os.write(ready_fd, json.dumps(answer).encode() + b"\n")
        os.close(ready_fd)


def _owner() -> str:
    """Return the name of the user, or the number of one without a name."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def main() -> None:
    """Run the command `koalad`."""
    app()


if __name__ == "__main__":
    main()
