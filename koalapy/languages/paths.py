"""Paths in a job: what is staged in and out, where it lies in the attempt's directory, and which program is run."""

from collections.abc import Iterable
from itertools import accumulate

from koalapy.model.textfile.fields import as_text, wrong
from koalapy.model.textfile.words import shown

_LONGEST_PATH = 4_096


def landing(path: str) -> str:
    """Where a staged-in file lies in the attempt's directory: a path below the job file's directory keeps its
    folders, any other its last name."""
    inner = _inner(path)
    return path.rpartition("/")[2] if inner is None else inner


def as_staged_in(value: object) -> str:
    """The path of a plain file, absolute or relative to the job file. Whether it exists is seen when it is read."""
    return _plain(value)


def as_staged_out(value: object) -> str:
    """The path of a plain file in the attempt's directory, and in the job file's."""
    path = _plain(value)
    inner = _inner(path)
    if inner is None:
        raise wrong(f"is {shown(path)}, outside the job's directory", "Write a path relative to it, without `..`.")
    return inner


def as_executable(value: object) -> str:
    """A name to look up on the node's PATH, an absolute path, or one in the attempt's directory."""
    path = _plain(value)
    if "/" in path and not path.startswith("/") and _inner(path) is None:
        raise wrong(f"is {shown(path)}, outside the attempt's directory", "Stage it in, or write its absolute path.")
    return path


def twice(paths: Iterable[str]) -> tuple[int, str] | None:
    """The index of the first path that lies where an earlier one does, or its folder, and that place."""
    files: set[str] = set()
    folders: set[str] = set()
    for index, path in enumerate(paths):
        place = landing(path)
        above = set(accumulate(place.split("/")[:-1], "{}/{}".format))
        if place in files | folders or above & files:
            return index, place
        files.add(place)
        folders |= above
    return None


def _plain(value: object) -> str:
    path = as_text(value)
    if not path:
        raise wrong("is empty", "Write a path.")
    if path.startswith("~/"):
        raise wrong(f"is {shown(path)}, which no shell expands", "Write the whole path.")
    if path.endswith("/") or path.rpartition("/")[2] in (".", ".."):
        raise wrong(f"is {shown(path)}, a directory", "Name a plain file.")
    if len(path.encode()) > _LONGEST_PATH:
        raise wrong(f"has more than {_LONGEST_PATH} bytes", "Write a shorter path.")
    return path


def _inner(path: str) -> str | None:
    """The path without `.` and doubled slashes; None if it is absolute or holds `..`."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return None if path.startswith("/") or ".." in parts else "/".join(parts)
