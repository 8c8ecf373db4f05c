"""Operations on the files of a shared directory, in one class, so that the simulated world can replace them.

Code that works on a shared directory takes a `Files` as an argument; DISK is that of this machine. Every method raises
OSError.
"""

import hashlib
import os
import re
import time
from typing import List

SMALL = 1 << 16  # bytes; staged files of no more are not flushed when they come, but verified when they are copied
_DIGEST = re.compile(r"[0-9a-f]{64}")


def is_digest(text: str) -> bool:
    """Return whether the text is a sha256 in hex."""
    return _DIGEST.fullmatch(text) is not None


def has_digest(data: bytes, digest: str) -> bool:
    """Return whether `digest` is the sha256 of the data, in hex."""
    return hashlib.sha256(data).hexdigest() == digest


class Files:
    """A file system, as the module `os` has it. Paths are absolute."""

    def clock(self) -> float:
        """The current time in seconds since 1970, as `modified` counts them."""
        return time.time()

    def process(self) -> str:
        """Name of this process, unique among those that use the shared directory, and fit for a file name."""
        return "%s.%d" % (os.uname().nodename, os.getpid())

    def unpredictable(self, size: int) -> str:
        """Return `size` random bytes in hex, which nobody can guess and nobody else gets."""
        return os.urandom(size).hex()

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write(self, path: str, data: bytes, mode: int = 0o600, lasting: bool = True) -> None:
        """Write a file. If `lasting`, it survives a crash of this node once this returns."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if lasting:
                file.flush()
                os.fsync(file.fileno())

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def link(self, source: str, target: str) -> None:
        """Make a hard link.

        On NFS this may raise although the link was made: the reply was lost, and the call repeated.
        """
        os.link(source, target)

    def links(self, path: str) -> int:
        """Number of names of the file."""
        return os.stat(path).st_nlink

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def names(self, directory: str) -> List[str]:
        return os.listdir(directory)

    def make(self, directory: str) -> None:
        """Make a directory for this user alone (mode 0700), and missing parents.

        An existing directory stays as it is.
        """
        os.makedirs(directory, mode=0o700, exist_ok=True)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        return os.path.isdir(path)

    def is_link(self, path: str) -> bool:
        return os.path.islink(path)

    def modified(self, path: str) -> float:
        """Time of the last change, in seconds since 1970; for a symbolic link, that of the link itself."""
        return os.lstat(path).st_mtime

    def touch(self, path: str) -> None:
        """Set the file's time to now. A missing file is made."""
        with open(path, "ab"):
            os.utime(path)

    def use(self, path: str) -> None:
        """Set the file's time to now. Raises FileNotFoundError if the file does not exist."""
        os.utime(path)

    def copy(self, source: str, target: str, mode: int, digest: str) -> None:
        """Copy a staged file.

        Raises ValueError if a file of at most SMALL bytes has another digest, as after a crash.
        """
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
        """Set the permission bits of a file."""
        os.chmod(path, mode)

    def remove(self, directory: str) -> None:
        """Remove a directory with its contents. A symbolic link is removed, not followed."""
        if self.is_link(directory):
            os.unlink(directory)
            return
        import shutil  # late: a wrapper starts without it

        shutil.rmtree(directory)


DISK = Files()
