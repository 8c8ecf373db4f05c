"""An attempt's staged files, copied from the staging cache to their places in its working directory."""

import hashlib
import json
import os
from typing import Any, Iterator, List, Set

from koalapy_adapters.errors import RequestError, TransientError
from koalapy_adapters.files import Files, is_digest
from koalapy_adapters.trees import is_inside, native

_AGAIN = "It is sent again at the next try."


def place(files: Files, stage: str, work: str, staged: List[List[Any]]) -> None:
    """See messages.Submit. Copies, since a program may write to its own. Raises BatchError, and OSError."""
    made = {work}
    modes = []
    for path, digest, mode in _all(files, stage, staged):
        if not is_inside(path) or not (is_digest(digest) or not digest):
            raise RequestError("bad_stage_in", "The staged file %r has no place in the attempt's directory." % path)
        target = os.path.join(work, native(path))
        _make(files, os.path.dirname(target) if digest else target, made)
        if digest:
            _copy(files, os.path.join(stage, digest), target, mode & 0o777, digest)
        else:
            modes.append((target, mode & 0o777))
    for target, mode in reversed(modes):  # what is in a directory comes after it, and may not be writable then
        files.allow(target, mode)


def _all(files: Files, stage: str, staged: List[List[Any]]) -> Iterator[List[Any]]:
    """Where a list is itself a stored file, what is in it."""
    for entry in staged:
        if entry[0]:
            yield entry
        else:
            yield from _listed(files, os.path.join(stage, entry[1]), entry[1])


def _listed(files: Files, path: str, digest: str) -> List[List[Any]]:
    if not is_digest(digest):
        raise RequestError("bad_stage_in", "%r is not a list of staged files." % digest)
    try:
        data = files.read(path)
        if hashlib.sha256(data).hexdigest() != digest:
            raise ValueError("damaged")
        listed: List[List[Any]] = json.loads(data.decode())
        return listed
    except FileNotFoundError as error:
        raise TransientError("stage_lost", "The list of the staged files is no longer there.", _AGAIN) from error
    except ValueError as error:
        files.unlink(path)
        raise TransientError("stage_damaged", "The list of the staged files is damaged.", _AGAIN) from error


def _make(files: Files, directory: str, made: Set[str]) -> None:
    if directory not in made:
        files.make(directory)
        made.add(directory)


def _copy(files: Files, source: str, target: str, mode: int, digest: str) -> None:
    name = os.path.basename(target)
    try:
        files.copy(source, target, mode, digest)
    except FileNotFoundError as error:
        raise TransientError("stage_lost", "The staged file %s is no longer there." % name, _AGAIN) from error
    except ValueError as error:
        files.unlink(source)
        raise TransientError("stage_damaged", "The staged file %s is damaged." % name, _AGAIN) from error
