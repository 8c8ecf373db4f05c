"""Staged-in files: found, hashed and stored on a cluster before the attempt is submitted there."""

import hashlib
import os
import posixpath
import stat
from collections.abc import Sequence
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from koalapy_adapters.frames import MAX_CHUNK, Chunk
from koalapy_adapters.messages import Store

from koalapy.model.commands import SubmitComponent
from koalapy.model.errors import RequestError
from koalapy.model.request import ComponentRequest
from koalapy.runtime.exchange import Exchange, RefusedError
from koalapy.runtime.session import Session

_DAMAGED = ("stage_damaged", "bad_size")  # what a KCM says of a file that changed while it was sent
_TRIES = 3
_READ = 1 << 20


class Staged(NamedTuple):
    """A file to be staged: where it is here, where it goes in the attempt's working directory, its permission bits."""

    source: Path
    place: str
    mode: int


def files_of(command: SubmitComponent) -> list[Staged]:
    """The files that the attempt needs. Raises RequestError for one that is not there, or that cannot be staged."""
    files = [_file(command.directory, name) for name in command.stage_in]
    places = [file.place for file in files]
    for file in files:
        if places.count(file.place) > 1:
            advice = "Rename one of them, or stage it from a directory of its own."
            raise RequestError("staged_twice", f"Two files are staged as {file.place}.", advice)
    _check_executable(command, files)
    return files


def stage(session: Session, files: Sequence[Staged]) -> list[list[object]]:
    """Store them; what Submit says of them. Raises KoalaError; TransientError only if the link is lost."""
    return [[file.place, _stored(session, file.source), file.mode] for file in files]


def _file(directory: str, name: str) -> Staged:
    source = Path(directory, name)
    try:
        status = source.stat()
        if not stat.S_ISREG(status.st_mode):
            message = f"{source} is to be staged in, but is no plain file."
            raise RequestError("no_plain_file", message, "Name files one by one; directories are not staged.")
        if not os.access(source, os.R_OK):
            message = f"{source} is to be staged in, but cannot be read."
            raise RequestError("unreadable_file", message, "Change its permissions.")
    except OSError as error:
        message = f"{source} is to be staged in, but cannot be found: {error.strerror}."
        raise RequestError("no_such_file", message, "Correct `stage_in`, or make the file.") from error
    return Staged(source, place_of(name), stat.S_IMODE(status.st_mode))


def place_of(name: str) -> str:
    """Where a file of the job lies on the other side: its path if it is relative and stays inside, else its name."""
    place = posixpath.normpath(name)
    return posixpath.basename(place) if place.startswith(("/", "../")) else place


def _check_executable(command: SubmitComponent, files: Sequence[Staged]) -> None:
    executable = _staged_executable(command.request)
    if executable is None:
        return
    place = posixpath.normpath(executable)
    for file in files:
        if PurePosixPath(file.place) == PurePosixPath(place) and not file.mode & 0o111:
            message = f"{file.source} is to be run, but is not executable."
            raise RequestError("not_executable", message, f"chmod +x {file.source}")


def _staged_executable(request: ComponentRequest) -> PurePosixPath | None:
    """The executable's path in the attempt's working directory, None if it is absolute or looked up on the PATH."""
    path = PurePosixPath(request.executable)
    return path if "/" in request.executable and not path.is_absolute() else None


def _stored(session: Session, source: Path) -> str:
    """Its hash, once it is stored. A file that changes meanwhile is sent again, a few times."""
    for left in reversed(range(_TRIES)):
        try:
            with source.open("rb") as file:
                return _send(session, file)
        except RefusedError as error:
            if error.reason.code not in _DAMAGED or not left:
                raise
        except OSError as error:
            message = f"{source} is to be staged in, but cannot be read: {error.strerror}."
            raise RequestError("unreadable_file", message, "Correct `stage_in`, or the file's permissions.") from error
    raise AssertionError("the last try raises or returns")


def _send(session: Session, file: BufferedReader) -> str:
    digest = _digest(session, file)
    with session.exchange() as exchange:
        session.send(Store(exchange.id, digest, file.tell()))
        file.seek(0)
        _send_chunks(session, exchange, file)
        exchange.answer()
    return digest


def _digest(session: Session, file: BufferedReader) -> str:
    """Its sha256 in hex, the whole file being read. Raises TransientError once the session is over."""
    digest = hashlib.sha256()
    while data := file.read(_READ):
        session.check()
        digest.update(data)
    return digest.hexdigest()


def _send_chunks(session: Session, exchange: Exchange, file: BufferedReader) -> None:
    """As its credit lets it; an answer that comes first says that the rest is not wanted."""
    number = 0
    while data := file.read(MAX_CHUNK):
        if not exchange.may_send():
            return
        session.send_chunk(Chunk(exchange.id, number, data))
        number += 1
    session.send_chunk(Chunk(exchange.id, number, b""))
