"""`koala bugreport`: packs the facts that a developer needs about a koalad into one file, without secrets."""

import gzip
import io
import json as json_module
import os
import platform
import re
import sys
import tarfile
import time
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib.metadata import distributions
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from koalapy import __version__
from koalapy.cli import options
from koalapy.cli.output import confirm, errors_reported, out, print_json, table
from koalapy.client import Grid
from koalapy.common.locations import JOURNALS, Locations
from koalapy.journal.secrets import HIDDEN, Secrets
from koalapy.model.errors import KoalaError, OurError, RequestError
from koalapy.runtime.journals import files_of

_LOG_BYTES = 2_000_000  # read from the end of each log
_MOST_JOBS = 500  # the newest jobs that the logs name; the values of their environments are hidden
_LIBRARIES = ("SQLAlchemy", "alembic", "fastapi", "paramiko", "pydantic", "structlog", "typer", "uvicorn")
_PROGRAM_OUTPUT = "output"  # the field of a log's line with the last output of a program
# Fields of a log line about a job whose texts are koalapy's own. All other fields may quote a program.
_OWN_TEXTS = frozenset(
    {"event", "level", "timestamp", "kind", "code", "cluster", "state", "attempt", "whose", "ending"}
)
# Lines that Python writes when a signal ends koalad. Other lines that are not JSON may be about any job.
_OF_PYTHON = re.compile(r'\s+File "|Fatal Python error|Thread 0x|Current thread 0x')

app = typer.Typer()


class Part(NamedTuple):
    """A file of the report. `what` describes its content."""

    name: str
    what: str
    data: bytes


@app.command()
def bugreport(
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Default: koala-bugreport-GRID-TIME.tar.gz here."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    grid: options.Grid = None,
    json: options.Json = False,
) -> None:
    """Pack versions, status, grid file, the end of the log and koalad's journal into one file, to go with a bug report.

    The command lists the content first, and asks. Passwords, tokens, keys and values of environments are hidden. The
    rest names your hosts, users, jobs and paths: read it before you pass it on.
    """
    with errors_reported():
        locations = Locations.of(grid)
        parts = collect(locations)
        if not json:
            table(("FILE", "BYTES", "WHAT"), [(part.name, len(part.data), part.what) for part in parts])
        if not yes:
            advice = "Look at its content first; then repeat the command with --yes."
            hidden = "Passwords, tokens, keys and values of environments are hidden in it."
            confirm("Write it?", "Writing the report needs confirmation on a terminal.", advice, hidden)
        path = output or Path(f"koala-bugreport-{locations.grid}-{time.strftime('%Y%m%dT%H%M%S')}.tar.gz")
        _write(path, parts)
    if json:
        files = [{"name": part.name, "bytes": len(part.data), "what": part.what} for part in parts]
        return print_json({"schema": "koala.bugreport/1", "grid": locations.grid, "path": str(path), "files": files})
    return out.print(f"{path} is written. Read it before you pass it on: it names hosts, users, jobs and paths.")


def collect(locations: Locations) -> list[Part]:
    """Return the files of the report. Every secret that is known or looks like one is hidden."""
    logs = {path.name: _end_of(path) for path in (locations.log, locations.log.with_name("koalad.log.1"))}
    answers = _asked(Path(locations.grid_file) if locations.grid_file else locations.grid, _jobs_in(logs.values()))
    secrets = Secrets(answers.environments or ())
    parts = [
        Part("versions.json", "releases of koalapy, of Python and of libraries", _document(_versions())),
        Part(
            "status.json", "koalad's own state, and that of its clusters", _document(secrets.hidden(answers.documents))
        ),
    ]
    if locations.grid_file is not None:
        text = _end_of(locations.grid_file).decode(errors="replace")
        parts.append(Part("grid.yaml", "the grid file", secrets.hide(text).encode()))
    for name, data in logs.items():
        if data:
            lines = data.decode(errors="replace").splitlines()
            hidden = "\n".join(_log_line(line, secrets, answers.environments is not None) for line in lines)
            parts.append(Part(name, "the end of koalad's log", (hidden + "\n").encode()))
    if answers.journal is not None:
        parts.append(Part("journal.json", "the recent events and decisions of koalad", _document(answers.journal)))
    for path in files_of(locations.journals):
        name = f"{JOURNALS}/{path.name.removesuffix('.gz')}"
        parts.append(Part(name, "the same, from failures of koalad's engine", _decompressed(path)))
    return parts


def _decompressed(path: Path) -> bytes:
    """Return the decompressed content, b"" if it cannot be read. koalad has hidden the secrets in a journal."""
    try:
        return gzip.decompress(path.read_bytes())
    except (OSError, EOFError, zlib.error):
        return b""


class _Answers(NamedTuple):
    """The answers of koalad, or the error.

    `environments`: the values of its jobs' environments, None if koalad did not return them.
    """

    documents: dict[str, Any]
    environments: set[str] | None
    journal: Mapping[str, Any] | None


def _asked(grid: Path | str, jobs: list[int]) -> _Answers:
    try:
        with Grid(grid) as koalad:
            documents = {"status": koalad.status(), "clusters": koalad.clusters()}
            values: set[str] = set()
            for job in jobs:
                with suppress(RequestError):  # pruned meanwhile
                    values |= set(_environments(koalad.show(job)))
            return _Answers(documents, values, koalad.journal())
    except KoalaError as error:
        return _Answers({"koalad": str(error)}, None, None)


def _environments(document: Any) -> Iterable[str]:
    """Yield each value of `environment`, and URLs and arguments of `notify`, at any depth of the document."""
    if isinstance(document, dict):
        for key, value in document.items():
            if key == "environment" and isinstance(value, dict):
                yield from map(str, value.values())
            elif key == "webhook":
                yield str(value)
            elif key == "command" and isinstance(value, list):
                yield from map(str, value[1:])
            else:
                yield from _environments(value)
    elif isinstance(document, list):
        for each in document:
            yield from _environments(each)


def _jobs_in(logs: Iterable[bytes]) -> list[int]:
    found = {event.get("job") for log in logs for line in log.splitlines() if (event := _event(line))}
    return sorted((job for job in found if isinstance(job, int)), reverse=True)[:_MOST_JOBS]


def _event(line: bytes | str) -> dict[str, Any] | None:
    """Parse a line of a JSON log. Return None for any other line."""
    try:
        found = json_module.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _log_line(line: str, secrets: Secrets, all_known: bool) -> str:
    event = _event(line)
    if event is None:
        return secrets.hide(line) if _OF_PYTHON.match(line) else HIDDEN
    foreign = {_PROGRAM_OUTPUT} & event.keys()
    if not all_known and "job" in event:
        foreign = {name for name, value in event.items() if not isinstance(value, int | float) and value is not None}
    return json_module.dumps(secrets.hidden(event | dict.fromkeys(foreign - _OWN_TEXTS, HIDDEN)), ensure_ascii=False)


def _end_of(path: Path) -> bytes:
    """Return the last `_LOG_BYTES` bytes of the file; b"" if it cannot be read."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _LOG_BYTES))
            return file.read(_LOG_BYTES)
    except OSError:
        return b""


def _versions() -> dict[str, Any]:
    found = {each.name: each.version for each in distributions()}
    return {
        "koalapy": __version__,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "libraries": {name: found[name] for name in _LIBRARIES if name in found},
    }


def _document(data: Any) -> bytes:
    return (json_module.dumps(data, indent=2, ensure_ascii=False) + "\n").encode()


def _write(path: Path, parts: Iterable[Part]) -> None:
    """Write a file that only its owner can read. An existing file is not replaced."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for part in parts:
            member = tarfile.TarInfo(f"koala-bugreport/{part.name}")
            member.size, member.mode, member.mtime = len(part.data), 0o600, int(time.time())
            archive.addfile(member, io.BytesIO(part.data))
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(data.getvalue())
    except FileExistsError as error:
        raise RequestError("file_exists", f"{path} exists.", "Name another file with -o.") from error
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror}."
        raise OurError("not_written", message, "Name another file with -o.") from error
