"""Which DRMAA library a cluster uses, if any."""

import glob
import os
from typing import Any, NamedTuple, Optional, Sequence


class Library(NamedTuple):
    """`family`: what the library must call its batch system, as a regular expression; "" for one that was named.

    `options` go with every submit, and `of_commands`, which the submit command knows, with none.
    """

    path: str
    family: str = ""
    options: Sequence[str] = ()
    of_commands: Sequence[str] = ()


def find_library(wish: str, dialect: Any) -> Optional[Library]:
    """By the grid file's `drmaa`: off, auto or a path. None: the batch system's commands are used.

    `auto` takes the batch system's own library only, which its dialect describes as `drmaa`.
    """
    own = getattr(dialect, "drmaa", None)
    if wish == "off" or (wish == "auto" and own is None):
        return None
    options = (own.OPTIONS, own.OF_COMMANDS) if own is not None else ((), ())
    if wish != "auto":
        return Library(wish, "", *options)
    assert own is not None
    for pattern in own.libraries(os.environ):
        for path in sorted(glob.glob(pattern)):
            return Library(path, own.FAMILY, *options)
    return None
