"""A directory on this node that only this user can enter."""

import errno
import os
import re
import socket
import stat
from typing import Any

VARIABLE = "KOALA_PRIVATE"  # the variable with the private directory of the node agent around this process
_ABANDONED_S = 7 * 86400
_NAME = re.compile(r"koala-[0-9a-f]{16}")
_SWEEP_S = 3600  # between two sweeps of this process, or of one that it was forked from
_swept_at = 0.0
_ROOM = 60  # a socket's path has at most 107 bytes


def make() -> str:
    """Make the directory, with an unpredictable name. Raises OSError if no place for temporary files is writable.

    Inside a pilot it lies in that of the pilot's node agent. So it is removed with the pilot, however its owner ends.
    """
    wanted = [os.environ.get(name, "") for name in (VARIABLE, "TMPDIR")]
    places = [place for place in (*wanted, "/tmp", "/var/tmp") if place and len(os.fsencode(place)) <= _ROOM]
    for place in places:
        path = os.path.join(place, "koala-" + os.urandom(8).hex())
        try:
            os.mkdir(path, 0o700)
            return path
        except OSError as error:
            reason = error
    raise reason


def sweep(own: str, now: float) -> None:
    """Remove directories of killed wrappers of this user beside `own`: a week old, and without a socket in use.

    A living wrapper's node agent listens on one (see keyserver). `now`: seconds, as files' times. Raises nothing.
    After a sweep nothing happens for an hour.
    """
    global _swept_at
    if 0 <= now - _swept_at < _SWEEP_S:
        return
    _swept_at = now
    place = os.path.dirname(own)
    try:
        names = os.listdir(place)
    except OSError:
        return
    for name in names:
        path = os.path.join(place, name)
        if _NAME.fullmatch(name) and path != own and _is_abandoned(path, now):
            remove(path)


def _is_abandoned(path: str, now: float) -> bool:
    try:
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or now - found.st_mtime < _ABANDONED_S:
            return False
        return not any(_is_listened_on(os.path.join(path, each)) for each in os.listdir(path))
    except OSError:
        return False


def _is_listened_on(path: str) -> bool:
    """Return whether the file is a socket on which a process listens. Raises OSError if that is unknown."""
    if not stat.S_ISSOCK(os.lstat(path).st_mode):
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        return probe.connect_ex(path) not in (errno.ECONNREFUSED, errno.ENOENT)


def remove(path: str) -> None:
    """Remove the directory and what is in it, as far as it exists."""
    try:
        for name in os.listdir(path):
            _remove_entry(os.path.join(path, name))
        os.rmdir(path)
    except OSError:
        pass  # the agent and its parent both remove it


def _remove_entry(path: str) -> None:
    """Remove a file, or a directory that a program may have filled. Links are not followed. Raises OSError."""
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        os.unlink(path)
        return
    import shutil  # late: only the directories of isolated programs have some below them

    def permit(function: Any, name: str, error: Any) -> None:
        os.chmod(os.path.dirname(name), 0o700)
        if not os.path.islink(name):
            os.chmod(name, 0o700)
        function(name) if function in (os.unlink, os.rmdir) else shutil.rmtree(name, ignore_errors=True)

    shutil.rmtree(path, onerror=permit)
