"""The program that bootstrap starts on the head node by `python3 -c`: it stores the pushed file and executes it.

bootstrap sends this source as it is. Any Python from 2.7 on can parse it, so that one too old can report its version.
The source of strict_modes needs a later Python, and comes after the order. Standard input is read by exact sizes, never
through a buffer: the bytes after the file belong to the KCM.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
# With annotations, an old Python could not parse this file and report its version.

import errno
import hashlib
import json
import os
import stat
import sys
import time

MARKER = "koalapy-loader-1"
OLDEST = (3, 6)
UNUSED_S = 7 * 86400
MAX_LINE = 65536


def send_answer(**answer):
    """Write one answer to standard output."""
    text = "\n%s %s\n" % (MARKER, json.dumps(answer))
    os.write(1, text.encode("ascii"))


def read_line():
    line = b""
    while not line.endswith(b"\n"):
        byte = os.read(0, 1)
        if not byte or len(line) > MAX_LINE:
            sys.exit(1)
        line += byte
    return json.loads(line.decode("ascii"))


def read_exactly(size):
    parts = []
    while size:
        part = os.read(0, min(size, 1 << 20))
        if not part:
            sys.exit(1)
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def make(path):
    """Make a directory and missing parents, for this user alone. Raises OSError."""
    before = os.umask(0o077)
    try:
        os.makedirs(path)
    except OSError as error:
        if error.errno != errno.EEXIST:
            raise
    finally:
        os.umask(before)


class Refused(Exception):
    """Refuses a directory in which another user could change what batch jobs run. Arguments: message and advice."""


def make_directories(shared, refusal):
    """Make `shared` and its `bin`, for this user alone. Returns the path of `bin`. `refusal` is that of strict_modes.

    A directory that others may change is refused before anything is put into it. `bin` is our own, and therefore its
    mode is corrected. Raises Refused or OSError.
    """
    directory = os.path.join(shared, "bin")
    refuse(refusal(shared))
    make(shared)
    if not os.access(shared, os.R_OK | os.W_OK | os.X_OK):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES), shared)
    make(directory)
    found = os.lstat(directory)
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
        os.chmod(directory, 0o700)
    refuse(refusal(directory))
    return directory


def refuse(found):
    """Raises Refused if `found`, a Refusal of strict_modes, is not None."""
    if found is not None:
        raise Refused(found.message, found.advice)


def whole(path, digest):
    """Return whether the file exists, has the digest (sha256 in hex), and can be changed by nobody else."""
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            ours = found.st_uid == os.getuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
            return ours and hashlib.sha256(file.read()).hexdigest() == digest
    except (IOError, OSError):
        return False


def write(path, data):
    temporary = "%s.%s.%d" % (path, os.uname()[1], os.getpid())
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def clean(shared, keep):
    """Remove older pushed files that were not used for a week, unless a batch script names them."""
    directory = os.path.join(shared, "bin")
    old = [name for name in os.listdir(directory) if name != keep and unused(os.path.join(directory, name))]
    wanted = named_in_scripts(shared) if old else b""
    for name in old:
        if name.encode("ascii", "replace") not in wanted:
            os.unlink(os.path.join(directory, name))


def unused(path):
    return ".pyz" in path and time.time() - os.stat(path).st_mtime > UNUSED_S


def named_in_scripts(shared):
    """Return the contents of the batch scripts of all attempts, as bytes."""
    pieces = []
    for instance in os.listdir(shared):
        inside = os.path.join(shared, instance)
        for tag in os.listdir(inside) if os.path.isdir(inside) else []:
            script = os.path.join(inside, tag, "script")
            if os.path.isfile(script):
                with open(script, "rb") as file:
                    pieces.append(file.read())
    return b"\n".join(pieces)


def land(order):
    """Store the pushed file if it is missing, and return its path.

    Raises Refused, OSError, or ValueError if it arrives damaged.
    """
    strict_modes = {"__name__": "strict_modes"}
    exec(read_exactly(order["strict_modes"]), strict_modes)
    shared = os.path.join(os.getcwd(), os.path.expanduser(order["directory"]))
    name = order["digest"] + ".pyz"
    path = os.path.join(make_directories(shared, strict_modes["refusal"]), name)
    if not whole(path, order["digest"]):
        send_answer(answer="need")
        data = read_exactly(order["size"])
        if hashlib.sha256(data).hexdigest() != order["digest"]:
            raise ValueError("what arrived is not what was sent")
        write(path, data)
    try:
        os.utime(path, None)
        clean(shared, name)
    except (IOError, OSError):
        pass  # another login's files, or another login that cleans at the same time
    return path


def fail(error):
    words = getattr(error, "strerror", None) or str(error)
    path = getattr(error, "filename", None)
    send_answer(answer="failed", errno=getattr(error, "errno", None), path=path, words=words)
    sys.exit(1)


def main():
    version = "%d.%d.%d" % sys.version_info[:3]
    send_answer(answer="ready", version=version, python=sys.executable)
    if sys.version_info[:2] < OLDEST:
        sys.exit(1)
    order = read_line()
    try:
        path = land(order)
    except Refused as error:
        send_answer(answer="refused", message=error.args[0], advice=error.args[1])
        sys.exit(1)
    except (IOError, OSError, ValueError) as error:
        fail(error)
    send_answer(answer="go")
    os.execv(sys.executable, [sys.executable, "-I", "-S", path] + order["arguments"])


if __name__ == "__main__":
    main()
