"""The files that `stage_in` names on this host.

Patterns and directories are expanded, and errors found before anything is sent.
"""

import os
import posixpath
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import BinaryIO, NamedTuple

from koalapy_adapters.errors import BatchError
from koalapy_adapters.trees import DIRECTORY, REFUSED, Found, expand, is_pattern, native, portable

from koalapy.model.errors import RequestError

MOST_FILES = 100_000
_LINK = "Stage what it leads to by its own name, or take the link away."
_REFUSALS = (  # how trees.Found begins its `why`; our code, and what to do
    ("is a link", "bad_link", _LINK),
    ("may not be read", "unreadable_file", "Change its permissions."),
    ("cannot be read", "unreadable_file", "Change its permissions."),
    ("is neither", "no_plain_file", "Stage plain files and directories only."),
)


class Entry(NamedTuple):
    """A file or directory to stage. `place`: its path in the attempt's working directory. `source`: its path here.

    `size` (bytes) and `mtime_ns` identify the version of a file; a directory has neither.
    """

    place: str
    source: str
    mode: int
    directory: bool = False
    size: int = 0
    mtime_ns: int = 0


def gather(directory: str, names: Iterable[str], executables: Iterable[str] = ()) -> tuple[Entry, ...]:
    """Return all entries to stage, a directory before its contents. Raises RequestError for what cannot be staged.

    `executables` are those of the components: one that is staged must be executable.
    """
    entries: dict[str, Entry] = {}
    for name in names:
        for entry in _named(directory, name):
            _add(entries, entry)
    found = tuple(entries.values())
    _check_nesting(entries)
    for executable in executables:
        _check_executable(executable, entries)
    return found


def place_of(name: str) -> str:
    """Return a file's place on the cluster: its path if that is relative and stays inside, else its last name."""
    place = posixpath.normpath(name)
    return posixpath.basename(place) if place.startswith(("/", "../")) else place


def _named(directory: str, name: str) -> list[Entry]:
    """Return the entries that a name stands for.

    A name without a pattern may be a link to anywhere. A link that a pattern matches or a directory contains may not.
    """
    base, pattern = _split(directory, name)
    there = os.path.join(base, native(pattern))
    exact = not is_pattern(pattern) or os.path.lexists(there)
    try:
        found = list(expand(base, pattern, [directory, os.path.realpath(there)] if exact else [directory]))
    except OSError:
        found = []
    except BatchError as error:
        raise RequestError(error.code, f"{name} is to be staged in. {error.message}", error.advice) from error
    if not found and pattern != ".":
        raise _nothing(name, there, exact)
    return [_entry(base, each) for each in found]


def _split(directory: str, name: str) -> tuple[str, str]:
    """Return the directory that places are relative to, and the pattern below it."""
    path = portable(name)
    if place_of(path) == posixpath.normpath(path) and not path.startswith("/"):
        return directory, posixpath.normpath(path)
    whole = posixpath.normpath(posixpath.join(portable(directory), path))
    parts = whole.split("/")
    if not is_pattern(whole) or os.path.lexists(native(whole)):
        return native("/".join(parts[:-1]) or "/"), parts[-1]
    first = next(index for index, part in enumerate(parts) if is_pattern(part))
    return native("/".join(parts[:first]) or "/"), "/".join(parts[first:])


def _nothing(name: str, there: str, exact: bool) -> RequestError:
    if exact:
        message = f"{there} is to be staged in, but cannot be found."
        return RequestError("no_such_file", message, "Correct `stage_in`, or make the file.")
    advice = "Correct `stage_in`; `*` passes over names that begin with a dot."
    return RequestError("no_match", f"{name} is to be staged in, but matches nothing.", advice)


def _entry(base: str, found: Found) -> Entry:
    source = os.path.join(base, native(found.path))
    if found.kind == REFUSED:
        raise _refusal(source, found.why)
    if found.kind == DIRECTORY:
        return Entry(found.path, source, found.mode, directory=True)
    return Entry(found.path, source, found.mode, False, found.size, found.mtime_ns)


def _refusal(source: str, why: str) -> RequestError:
    code, advice = next(
        ((code, advice) for begin, code, advice in _REFUSALS if why.startswith(begin)), ("bad_file", "")
    )
    return RequestError(code, f"{source} is to be staged in, but {why}.", advice)


def _add(entries: dict[str, Entry], entry: Entry) -> None:
    before = entries.setdefault(entry.place, entry)
    if before.source != entry.source and not (before.directory and entry.directory):
        raise _twice(entry.place)
    if len(entries) > MOST_FILES:
        advice = "Pack them into an archive, and unpack it with `setup`."
        raise RequestError("too_many_files", f"More than {MOST_FILES} files are to be staged in.", advice)


def _check_nesting(entries: dict[str, Entry]) -> None:
    """Raises RequestError if a file lies where another entry needs a directory."""
    for place in entries:
        for above in PurePosixPath(place).parents:
            if not entries.get(str(above), _SOME_DIRECTORY).directory:
                raise _twice(str(above))


_SOME_DIRECTORY = Entry("", "", 0, directory=True)


def _twice(place: str) -> RequestError:
    advice = "Rename one of them, or stage it from a directory of its own."
    return RequestError("staged_twice", f"Two files are staged as {place}.", advice)


def _check_executable(executable: str, entries: dict[str, Entry]) -> None:
    if "/" not in executable or executable.startswith("/"):
        return
    entry = entries.get(posixpath.normpath(executable))
    if entry is not None and not entry.directory and not entry.mode & 0o111:
        message = f"{entry.source} is to be run, but is not executable."
        raise RequestError("not_executable", message, f"chmod +x {entry.source}")


def unchanged(entry: Entry, status: os.stat_result) -> None:
    """Raises RequestError if the file's status is not that of the submitted version."""
    if (status.st_size, status.st_mtime_ns) != (entry.size, entry.mtime_ns):
        message = f"{entry.source} is to be staged in, but has changed since its job was submitted."
        raise RequestError("changed_file", message, "Submit the job again; leave its files alone until they are sent.")


@contextmanager
def opened(entry: Entry) -> Iterator[BinaryIO]:
    """Open the file for reading. Raises RequestError if it is not the submitted version, or cannot be read any more."""
    try:
        with open(entry.source, "rb") as file:
            unchanged(entry, os.fstat(file.fileno()))
            yield file
    except OSError as error:
        code = "vanished_file" if isinstance(error, FileNotFoundError) else "unreadable_file"
        message = f"{entry.source} is to be staged in, but cannot be read any more: {error.strerror}."
        raise RequestError(code, message, "Put it back as it was, or submit the job again.") from error


def size_of(entries: Sequence[Entry]) -> int:
    """Return the size of all entries in bytes."""
    return sum(entry.size for entry in entries)
