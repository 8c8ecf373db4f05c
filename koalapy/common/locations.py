"""The locations of koalad's files: one koalad per grid name and user."""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from koalapy_adapters import strict_modes

from koalapy.model.errors import OurError, RequestError
from koalapy.model.textfile import MAX_BYTES

GRID_FILE_HEADER = "koala-grid-file"  # header of each request: the client's grid file, percent-encoded
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}", re.IGNORECASE | re.ASCII)
_SOCKET = "koalad.sock"
JOURNALS = "journals"  # in the state directory
_OTHERS_WRITE = 0o022
_GRID_LINE = re.compile(rb"^grid:[ \t]*[\"']?([A-Za-z0-9][A-Za-z0-9_-]{0,31})[\"']?[ \t]*(?:#.*)?\r?$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Locations:
    """The directories and files of one grid's koalad. `grid_file` is None if only the grid's name is known.

    The socket lies in $XDG_RUNTIME_DIR if that is set, else in the state directory.
    """

    grid: str
    grid_file: Path | None
    state: Path
    socket: Path

    @staticmethod
    def of(grid: str | Path | None = None) -> "Locations":
        """Return the locations for a grid file's path, for a grid's name, or for the default grid file.

        The default is $KOALA_GRID, else the user's own grid file. Raises RequestError if the grid file is missing or
        names no grid, and OurError for a user without a home directory.
        """
        if isinstance(grid, str) and _NAME.fullmatch(grid) and not Path(grid).exists():
            return _locations(grid, None)
        path = Path(grid) if grid else default_grid_file()
        return _locations(_name_in(path), path.absolute())

    @property
    def sockets(self) -> tuple[Path, ...]:
        """Paths at which a client finds a koalad, whose own socket is the first.

        The last one is a link for clients with another $XDG_RUNTIME_DIR, or without one.
        """
        return tuple(dict.fromkeys((self.socket, self.state / _SOCKET)))

    @property
    def log(self) -> Path:
        return self.state / "koalad.log"

    @property
    def journals(self) -> Path:
        """The directory of the journals, in which koalad records the events that made it fail."""
        return self.state / JOURNALS

    def make(self) -> None:
        """Make the directories of state and socket, accessible to their owner only.

        Raises OurError if one cannot be made, or if another user could replace one.
        """
        with _directory_errors(self.state):
            _make_ours(self.state.parent)
        for directory in (self.state, self.socket.parent):
            with _directory_errors(directory):
                _make_private(directory)
        self.check()

    def check(self) -> None:
        """Check the directories of state and socket as far as they exist.

        Raises OurError if another user could replace one of them.
        """
        for directory in (self.state, self.socket.parent):
            refuse_open(directory)


def grids_here() -> list[Locations]:
    """Return this user's grids that have a socket on this machine, by name. Their koalads may have ended meanwhile.

    Raises OurError for a user without a home directory.
    """
    names = {path.parent.name for path in _states().glob(f"*/{_SOCKET}")}
    if runtime := _directory("XDG_RUNTIME_DIR"):
        names |= {path.stem for path in (runtime / "koala").glob("*.sock")}
    return [_locations(name, None) for name in sorted(names) if _NAME.fullmatch(name)]


def refuse_open(directory: Path) -> None:
    """Check this directory of koalapy's as far as it exists. Raises OurError if another user could replace it."""
    with _directory_errors(directory):
        found = strict_modes.refusal(str(directory))
    if found is not None:
        advice = f"{found.advice} $XDG_STATE_HOME and $XDG_RUNTIME_DIR name the place."
        raise OurError("open_to_others", found.message, advice)


def default_grid_file() -> Path:
    if named := os.environ.get("KOALA_GRID"):
        return Path(named)
    return (_directory("XDG_CONFIG_HOME") or home() / ".config") / "koala" / "grid.yaml"


def home() -> Path:
    """Return this user's home directory.

    Raises OurError if there is none, as for an unknown user id in a container.
    """
    try:
        return Path.home()
    except RuntimeError as error:
        message = f"The user {os.getuid()} has no home directory: neither $HOME nor the machine names one."
        raise OurError("no_home", message, "Set $HOME to a directory of yours.") from error


def read_file(path: Path, what: str) -> bytes:
    """Return the bytes of a grid or job file, at most one more than MAX_BYTES, which shows that the file is too large.

    `what` names the kind of file in messages. Raises RequestError if the file does not exist or cannot be read.
    """
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise RequestError("no_such_file", f"There is no file {path}.", f"Give the path of a {what}.") from error
    except IsADirectoryError as error:
        raise RequestError("not_a_file", f"{path} is a directory.", f"Give the path of a {what}.") from error
    except OSError as error:
        message = f"{path} cannot be read: {error.strerror}."
        raise RequestError("unreadable", message, f"Change its permissions, or give another {what}.") from error


def _locations(grid: str, grid_file: Path | None) -> Locations:
    state = _states() / grid
    runtime = _directory("XDG_RUNTIME_DIR")
    socket = runtime / "koala" / f"{grid}.sock" if runtime else state / _SOCKET
    return Locations(grid, grid_file, state, socket)


def _states() -> Path:
    return (_directory("XDG_STATE_HOME") or home() / ".local" / "state") / "koala"


def _directory(variable: str) -> Path | None:
    """Return the directory that the variable names; None if it is unset or relative, by XDG's specification."""
    path = Path(os.environ.get(variable) or ".")
    return path if path.is_absolute() else None


def _name_in(path: Path) -> str:
    """Return the grid's name, in most cases without parsing the rest of the file, which koalad itself checks.

    Raises RequestError if the file cannot be read, or has no valid name.
    """
    try:
        text = read_file(path, "grid file")
    except RequestError as error:
        if error.reason.code != "no_such_file":
            raise
        advice = "Write one with `koala init`, or name it with --grid or $KOALA_GRID."
        raise RequestError("no_grid_file", f"There is no grid file {path}.", advice) from error
    if found := _GRID_LINE.search(text):
        return found[1].decode()
    # Imported here, since most commands do not need the YAML reader, and importing it takes time.
    from koalapy.model.textfile.document import read_document

    name = read_document(text, str(path)).data.get("grid")
    if not isinstance(name, str):
        raise RequestError("no_grid_name", f"{path} names no grid.", "Begin it with a line like `grid: mine`.")
    if not _NAME.fullmatch(name):
        advice = "Use at most 32 letters, digits, - and _, and begin with a letter or digit."
        raise RequestError("bad_grid_name", f"{path} names its grid {name[:40]!r}, which is not a valid name.", advice)
    return name


def _make_ours(directory: Path) -> None:
    """Make the directory of all grids' states, and let no other user write there.

    Another user with write access could replace a grid's state. Raises OurError for a directory of another user.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = directory.stat()
    if not {found.st_uid, directory.lstat().st_uid} <= {os.getuid(), 0}:
        raise _not_ours(directory)
    if found.st_mode & _OTHERS_WRITE and not found.st_mode & stat.S_ISVTX:
        directory.chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS_WRITE)


def _make_private(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = directory.stat()
    if {found.st_uid, directory.lstat().st_uid} != {os.getuid()}:  # its owner can redirect a link
        raise _not_ours(directory)
    if stat.S_IMODE(found.st_mode) & 0o077:
        directory.chmod(0o700)


def _not_ours(directory: Path) -> OurError:
    advice = "Name another place with $XDG_STATE_HOME and $XDG_RUNTIME_DIR."
    return OurError("not_ours", f"The directory {directory} belongs to another user.", advice)


@contextmanager
def _directory_errors(directory: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        message = f"The directory {directory} cannot be made: {error.strerror}."
        advice = (
            "Make room or change permissions there, or name another place with $XDG_STATE_HOME or $XDG_RUNTIME_DIR."
        )
        raise OurError("no_directory", message, advice) from error


def certificate_of(certificate: str | None, state_directory: Path) -> Path:
    """Return the file with the key of a site: that of the grid file, or the one in koalad's state directory."""
    return Path(certificate).expanduser() if certificate else state_directory / "site.pem"
