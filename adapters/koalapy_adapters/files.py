"""The few things that are done to files of a shared directory, in one class, so that another world can have its own.

Whoever works on a shared directory is handed one of these; DISK is this machine's. Every method raises OSError.
"""

import hashlib
import os
import re
import time
from typing import List

SMALL = 1 << 16  # bytes; staged files of no more are not flushed when they come, but verified when they are copied
_DIGEST = re.compile(r"[0-9a-f]{64}")


def is_digest(text: str) -> bool:
    """Whether it is a sha256 in hex."""
    return _DIGEST.fullmatch(text) is not None


def has_digest(data: bytes, digest: str) -> bool:
    """Whether this is the sha256 of the data, in hex."""
    return hashlib.sha256(data).hexdigest() == digest


class Files:
    """A file system as os(3) has it. Paths are absolute."""

    def clock(self) -> float:
        """Seconds, as `modified` counts them."""
        return time.time()

    def process(self) -> str:
        """A name that no other process which uses the shared directory has, good for a file's name."""
        return "%s.%d" % (os.uname().nodename, os.getpid())

    def unpredictable(self, size: int) -> str:
        """So many random bytes in hex: nobody can guess them, and nobody else gets the same."""
        return os.urandom(size).hex()

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write(self, path: str, data: bytes, mode: int = 0o600, lasting: bool = True) -> None:
        """Write the file, and return when it would survive a crash of this node, unless it need not be `lasting`."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if lasting:
                file.flush()
                os.fsync(file.fileno())

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def link(self, source: str, target: str) -> None:
        """A hard link. On NFS it may raise although it was done: the reply was lost, and the call sent again."""
        os.link(source, target)

    def links(self, path: str) -> int:
        """How many names the file has."""
        return os.stat(path).st_nlink

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def names(self, directory: str) -> List[str]:
        return os.listdir(directory)

    def make(self, directory: str) -> None:
        """The directory, for this user alone, and those above it as the umask has it; nothing where it is there."""
        os.makedirs(directory, mode=0o700, exist_ok=True)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def is_link(self, path: str) -> bool:
        return os.path.islink(path)

    def modified(self, path: str) -> float:
        """When it was changed last; of a link the link's own."""
        return os.lstat(path).st_mtime

    def touch(self, path: str) -> None:
        """Changed now; made where it is not there."""
        with open(path, "ab"):
            os.utime(path)

    def use(self, path: str) -> None:
        """Changed now; FileNotFoundError where it is not there."""
        os.utime(path)

    def copy(self, source: str, target: str, mode: int, digest: str) -> None:
        """A staged file. Raises ValueError if its content is not the digest's, which a crash can leave behind."""
        with open(source, "rb") as file:
            data = file.read(SMALL + 1)
        if len(data) > SMALL:
            import shutil  # late: a wrapper starts without it

            shutil.copyfile(source, target)
        elif not has_digest(data, digest):
            raise ValueError("%s is damaged" % source)
        else:
            with open(target, "wb") as file:
                file.write(data)
        os.chmod(target, mode)

    def allow(self, path: str, mode: int) -> None:
        """Permission bits."""
        os.chmod(path, mode)

    def remove(self, directory: str) -> None:
        """The directory with all that is in it; a link is removed, not followed."""
        if self.is_link(directory):
            os.unlink(directory)
            return
        import shutil  # late: a wrapper starts without it

        shutil.rmtree(directory)


DISK = Files()
