"""Paths in a job: what is staged in and out, where it lies in the attempt's directory, and which program is run.

What is staged may be a pattern (`*`, `?`, `[...]`, `**`) or a directory. Whether a name with such a character in it is
a pattern is seen when it is looked for: a file of that very name comes first.
"""

import re
from collections.abc import Iterable
from itertools import accumulate

from koalapy.model.textfile.fields import as_text, wrong
from koalapy.model.textfile.words import shown

_LONGEST_PATH = 4_096
PLACEHOLDERS = ("{job}", "{component}", "{cluster}")


def landing(path: str) -> str:
    """Where a staged-in file lies in the attempt's directory: a path below the job file's directory keeps its
    folders, any other its last name."""
    inner = _inner(path)
    return path.rpartition("/")[2] if inner is None else inner


def covers(name: str, path: str) -> bool:
    """Whether what is staged as `name` has the file `path` in it, at the place where it would lie by itself."""
    whole, inner = _inner(name), _inner(path)
    if whole is None or inner is None:
        return name == path
    return not whole or inner == whole or inner.startswith(f"{whole}/")


def as_staged_in(value: object) -> str:
    """Check a path to stage in. Raises an error of the file if it is not valid."""
    path = _path(value)
    if ".." in path[_wild(path) :].split("/"):
        raise wrong(f"is {shown(path)}, with `..` after a pattern", "Name the directory without it.")
    return path


def as_staged_out(value: object) -> str:
    """Check a path to stage out. Raises an error of the file if it is not valid."""
    path = _path(value)
    inner = _inner(path)
    if inner is None:
        raise wrong(f"is {shown(path)}, outside the job's directory", "Write a path relative to it, without `..`.")
    return inner or "."


def as_place(value: object) -> str:
    """Check the directory that staged-out files go to: absolute, or relative to the job file's.

    Raises an error of the file for one outside the job's directory.
    """
    path = _path(value)
    if not path.startswith("/") and _inner(path) is None:
        raise wrong(f"is {shown(path)}, outside the job's directory", "Write it without `..`, or absolute.")
    return path


def unknown_in(place: str) -> str | None:
    """The first name in such a directory that no job has; only a sweep knows the names of its parameters."""
    return next((name for name in re.findall(r"\{.*?\}", place) if name not in PLACEHOLDERS), None)


def as_executable(value: object) -> str:
    """Check a name to look up on the node's PATH, an absolute path, or one in the attempt's directory.

    Raises an error of the file for anything else.
    """
    path = _path(value)
    if path.endswith("/") or path.rpartition("/")[2] in (".", ".."):
        raise wrong(f"is {shown(path)}, a directory", "Name a plain file.")
    if "/" in path and not path.startswith("/") and _inner(path) is None:
        raise wrong(f"is {shown(path)}, outside the attempt's directory", "Stage it in, or write its absolute path.")
    return path


def twice(paths: Iterable[str]) -> tuple[int, str] | None:
    """The index of the first path that lies where an earlier one does, or its folder, and that place."""
    files: set[str] = set()
    folders: set[str] = set()
    for index, path in enumerate(paths):
        if _wild(path) < len(path):
            continue  # what it names is not known yet
        place = landing(path.rstrip("/"))
        above = set(accumulate(place.split("/")[:-1], "{}/{}".format))
        if place in files | folders or above & files:
            return index, place
        files.add(place)
        folders |= above
    return None


def _wild(path: str) -> int:
    """Where the first of the characters that make it a pattern stands; its length if there is none."""
    return min((at for at in map(path.find, "*?[") if at >= 0), default=len(path))


def _path(value: object) -> str:
    path = as_text(value)
    if not path:
        raise wrong("is empty", "Write a path.")
    if path.startswith("~/"):
        raise wrong(f"is {shown(path)}, which no shell expands", "Write the whole path.")
    if len(path.encode()) > _LONGEST_PATH:
        raise wrong(f"has more than {_LONGEST_PATH} bytes", "Write a shorter path.")
    return path


def _inner(path: str) -> str | None:
    """The path without `.` and doubled slashes; None if it is absolute or holds `..`."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return None if path.startswith("/") or ".." in parts else "/".join(parts)
