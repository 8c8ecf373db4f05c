"""Checks paths of a job: the files to stage in and out, their places on the cluster, and the executable.

A staged path may be a pattern (`*`, `?`, `[...]`, `**`) or a directory. A file whose name contains these characters
takes precedence over the pattern; this is decided when the file is looked up.
"""

import posixpath
import re
from collections.abc import Iterable
from itertools import accumulate

from koalapy.model.textfile.fields import as_text, wrong
from koalapy.model.textfile.words import shown

_LONGEST_PATH = 4_096
PLACEHOLDERS = ("{job}", "{component}", "{cluster}")
_FILE_URI = re.compile(r"(?:file:(?://(?:localhost)?(?=/))?)?(?![A-Za-z][A-Za-z0-9+.-]*:|//)([^?#]+)")


def staged_name(path: str) -> str:
    """Return the place of a staged-in file in the attempt's directory.

    A path below the job file's directory keeps its directories. Any other path keeps its last name only.
    """
    inner = _inner(path)
    return path.rpartition("/")[2] if inner is None else inner


def path_of_uri(uri: str) -> str | None:
    """Return the path of a relative URI, or of one with scheme file and no host; None for any other."""
    found = _FILE_URI.fullmatch(uri)
    if not found:
        return None
    escaped = re.sub(rb"%([0-9A-Fa-f]{2})", lambda match: bytes.fromhex(match[1].decode()), found[1].encode())
    return posixpath.normpath(escaped.decode("utf-8", "surrogateescape"))


def staged_out_to(place: str, path: str) -> str | dict[str, str] | None:
    """Return the entry of `stage_out` that brings the file `place` to `path`; None if that is another name."""
    if path == place:
        return place
    return {"path": place, "to": path[: -len(place) - 1] or "/"} if path.endswith(f"/{place}") else None


def covers(name: str, path: str) -> bool:
    """Return whether staging `name` includes the file `path`, at the same place as staging it alone."""
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
    """Return the first placeholder that no job has; None without one. Only a sweep knows its parameters' names."""
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
    """Return (index, place) of the first path whose place is that of an earlier file or its directory; else None."""
    files: set[str] = set()
    folders: set[str] = set()
    for index, path in enumerate(paths):
        if _wild(path) < len(path):
            continue  # the matches of a pattern are not known yet
        place = staged_name(path.rstrip("/"))
        above = set(accumulate(place.split("/")[:-1], "{}/{}".format))
        if place in files | folders or above & files:
            return index, place
        files.add(place)
        folders |= above
    return None


def _wild(path: str) -> int:
    """Return the index of the first character of a pattern; the path's length if there is none."""
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
    """Return the path without `.` and doubled slashes; None if it is absolute or contains `..`."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return None if path.startswith("/") or ".." in parts else "/".join(parts)
