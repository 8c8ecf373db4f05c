"""A directory on this node that only this user can enter."""

import os

_ROOM = 60  # a socket's path has at most 107 bytes


def make() -> str:
    """Make it, with an unpredictable name. Raises OSError if no place for temporary files can be written."""
    wanted = os.environ.get("TMPDIR", "")
    places = [place for place in (wanted, "/tmp", "/var/tmp") if place and len(os.fsencode(place)) <= _ROOM]
    for place in places:
        path = os.path.join(place, "koala-" + os.urandom(8).hex())
        try:
            os.mkdir(path, 0o700)
            return path
        except OSError as error:
            reason = error
    raise reason


def remove(path: str) -> None:
    """The directory and the files in it, as far as they are there."""
    try:
        for name in os.listdir(path):
            os.unlink(os.path.join(path, name))
        os.rmdir(path)
    except OSError:
        pass  # the agent and its parent both tidy up, whoever of them is left
