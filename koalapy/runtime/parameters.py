"""The values of a sweep's parameters on the grid side, where its files are in the directory of the submission.

Here koalad also opens files that a user names, which it reads at once.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import IO

from koalapy_adapters.launcher.parameter_files import Lines
from koalapy_adapters.launcher.space import NUMBER, Compiled, names_in

from koalapy.languages.jobfile import MOST_FILES
from koalapy.languages.paths import staged_name
from koalapy.model.errors import RequestError
from koalapy.model.parameters import Axis, Space
from koalapy.model.request import Request
from koalapy.model.textfile.words import shown


def line_reader(request: Request) -> Callable[[str, int], bytes]:
    """Return a function that reads a line of a parameter file, as `koalapy_adapters.launcher.space` calls it.

    The function raises ValueError if the file is not there any more.
    """
    lines = Lines(request.directory)
    names = {staged_name(name): name for name in request.stage_in}
    return lambda file, index: lines.read(names.get(file, file), index)


def with_staged(request: Request) -> Request:
    """Return the request of a sweep with `input-{x}.dat` of its `stage_in` expanded to a file for each value of x.

    A request that is no sweep is returned unchanged. Raises RequestError if the files are too many, or if a path is no
    text.
    """
    if request.parameters is None:
        return request
    read_line = line_reader(request)
    paths = [path for name in request.stage_in for path in _paths(name, request.parameters, read_line)]
    return replace(request, stage_in=tuple(dict.fromkeys(paths)))


def _paths(name: str, space: Space, read_line: Callable[[str, int], bytes]) -> Iterator[str]:
    used = names_in(name)
    part = space if NUMBER in used else Space(axes=tuple(axis for axis in space.axes if _names(axis) & set(used)))
    if part.count > MOST_FILES:
        message = f"stage_in has {shown(name)}, which is {part.count:,} files, more than {MOST_FILES:,}."
        advice = "Write a pattern, such as input-*.dat, or stage a directory."
        raise RequestError("too_many_files", message, advice)
    try:
        yield from _texts(Compiled(asdict(part), [name], read_line), range(1, part.count + 1))
    except ValueError as error:
        message = f"stage_in has {shown(name)}, of which not every file can be named: {error}."
        raise RequestError("bad_path", message, "Give its parameters values that are paths.") from error


def _texts(compiled: Compiled, numbers: Sequence[int]) -> Iterator[str]:
    for number in numbers:
        yield compiled.of(number)[0].decode()


def _names(axis: Axis) -> set[str]:
    return {name for source in axis.sources for name in source.names}


def open_regular(path: str) -> IO[bytes]:
    """Open a regular file for reading.

    Raises OSError for anything else: opening a FIFO without a writer would block koalad.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a plain file", path)
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise
