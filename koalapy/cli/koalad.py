"""`koalad`: one grid's daemon. Runs until it is told to end, by its API or a signal; `koala up` starts it detached."""

import json
import os
import pwd
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer

from koalapy.api.app import JobText, create_app
from koalapy.api.server import Server, bind
from koalapy.cli.log import LogFormat, set_up
from koalapy.config import GridFile, read_grid
from koalapy.languages import from_mapping, read_job
from koalapy.locations import Locations, read_file
from koalapy.model.errors import KoalaError, RequestError
from koalapy.model.request import Request
from koalapy.runtime.koalad import Koalad
from koalapy.runtime.registry import load, registered

_LOG = structlog.get_logger()
_CANCEL_S = 600.0

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
        daemon = _Daemon(Locations.of(grid))
        daemon.start()
    except KoalaError as error:
        _tell(ready_fd, {"error": error.reason.message, **_facts_of(error)})
        print(f"koalad: {error}", file=sys.stderr)
        raise typer.Exit(2 if error.reason.whose == "request" else 1) from error
    _tell(ready_fd, {"pid": os.getpid()})
    daemon.run()


class _Daemon:
    """koalad and its API on its socket."""

    def __init__(self, locations: Locations) -> None:
        if locations.grid_file is None:
            message = f"{locations.grid} is a name, not a grid file."
            raise RequestError("no_grid_file", message, "Give the path of its grid file with --grid.")
        self._locations = locations
        self._end = threading.Event()
        self._cancel = False
        self._grid = read_grid_file(locations.grid_file)
        self._readers = {name: load("koalapy.languages", name) for name in registered("koalapy.languages")}
        locations.make()
        self._koalad = Koalad(self._grid, locations.state)
        app = create_app(self._koalad.service, self._read, self._facts, self._shut_down, _owner())
        self._server = Server(app, bind(locations.socket))
        self._sign()

    def start(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._end.set())
        self._koalad.start()
        self._server.start()
        _LOG.info("koalad_started", grid=self._grid.grid, pid=os.getpid())

    def run(self) -> None:
        """Until told to end. Jobs run on, unless they are to be cancelled first."""
        self._end.wait()
        try:
            if self._cancel:
                self._koalad.cancel_all(_CANCEL_S)
        except KoalaError as error:
            _LOG.error("not_cancelled", reason=str(error))
        for path in self._locations.sockets:
            path.unlink(missing_ok=True)
        self._koalad.disconnect()
        self._server.stop()
        self._koalad.stop()
        _LOG.info("koalad_ended")

    def _sign(self) -> None:
        """Clients with another $XDG_RUNTIME_DIR, or none, find the socket by a link in the state directory."""
        for path in self._locations.sockets[1:]:
            path.unlink(missing_ok=True)
            path.symlink_to(self._locations.socket)

    def _shut_down(self, cancel: bool) -> None:
        self._cancel = cancel
        self._end.set()

    def _facts(self) -> dict[str, Any]:
        trouble = self._koalad.service.trouble()
        state = "ready" if trouble is None else "broken" if trouble.code == "broken" else "store_failing"
        if self._end.is_set():
            state = "stopping"
        return {"pid": os.getpid(), "grid": self._grid.grid, "state": state}

    def _read(self, job: JobText) -> Request:
        """The request of a submitted text or mapping. Raises RequestError with file, line and key."""
        _check(job)
        clusters = list(self._grid.clusters)
        if job.job is not None:
            return from_mapping(job.job, job.source, job.directory, clusters, job.overrides)
        assert job.text is not None
        return read_job(job.text, job.source, job.directory, clusters, job.overrides, self._readers)


def read_grid_file(path: Path) -> GridFile:
    """Raises RequestError with file, line and what to do."""
    return read_grid(
        read_file(path, "grid file"),
        str(path),
        list(registered("koalapy.batch_systems")),
        queueing=list(registered("koalapy.queueing")),
        placement=list(registered("koalapy.placement")),
    )


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
