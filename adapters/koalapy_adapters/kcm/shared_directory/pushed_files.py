"""The pushed file in the shared directory, and a copy of it with compiled modules, which starts in half of the time.

Python compiles the modules of a zip file at every start, and keeps nothing of it. The copy has the sources, and beside
them the bytecode for this KCM's Python. It is loaded without a look at the sources (PEP 552, unchecked hash-based). A
Python of another version on a node ignores that, and takes the sources.
"""

import hashlib
import importlib.util
import io
import marshal
import sys
import time
import zipfile
from typing import Optional

from koalapy_adapters import layout
from koalapy_adapters.files import DISK, Files
from koalapy_adapters.kcm.state.actions import SECOND

VERIFIED_EVERY = 86400 * SECOND  # the content of a kept file
COMPILE_AFTER = 60 * SECOND  # since the start: a KCM that ends sooner starts too few programs to gain by a copy
COMPILE_AGAIN = 3600 * SECOND  # after it failed
_HAS_HASHES = sys.version_info >= (3, 7)
_UNCHECKED = (0b01).to_bytes(4, "little")  # the flags of bytecode whose hash is not compared with the source
_NO_HASH = bytes(8)  # in the place of the source's hash, which nobody compares
_PAUSE = 0.005  # seconds after each module, for the KCM's other threads


class PushedFiles:
    """The file that attempts start: the pushed file `path`, and after a while its compiled copy.

    A copy that is there already and whole is used at once. Raises OSError if the pushed file cannot be read. `now`: in
    microseconds, as that of `keep`.
    """

    def __init__(self, path: str, now: int, files: Files = DISK) -> None:
        self._files = files
        self._source = KeptFile(path, files)
        self._compiled: Optional[KeptFile] = None
        self._compile_at = now + COMPILE_AFTER
        copy = compiled_path(path)
        if copy is not None and is_whole(copy, files):
            self._compiled = KeptFile(copy, files)

    @property
    def path(self) -> str:
        """Path of the file that the next attempt starts."""
        return (self._compiled or self._source).path

    def keep(self, now: int) -> None:
        """Mend the files, and make the copy when it is time; that takes some seconds. Raises nothing."""
        self._source.keep(now)
        if self._compiled is not None:
            self._compiled.keep(now)
        elif now >= self._compile_at:
            self._compile_at = now + COMPILE_AGAIN
            self._compile()

    def _compile(self) -> None:
        copy = compiled_path(self._source.path)
        if copy is None:
            return
        try:
            write_compiled(self._source.path, copy, self._files)
            self._compiled = KeptFile(copy, self._files)
        except (OSError, zipfile.BadZipFile):
            pass  # the disk is full, or gone; the sources do as well


class KeptFile:
    """The file `path`, kept with its present bytes while its KCM lives, whatever purges or damages it.

    Raises OSError if it cannot be read.
    """

    def __init__(self, path: str, files: Files = DISK) -> None:
        self.path, self._files = path, files
        self._data = files.read(path)
        self._digest = hashlib.sha256(self._data).digest()
        self._verify_at = 0

    def keep(self, now: int) -> None:
        """Write it again if it is missing; once a day also if it is damaged, and touch it. Raises nothing."""
        try:
            missing = not self._files.exists(self.path)
            if not missing and now < self._verify_at:
                return
            if missing or hashlib.sha256(self._files.read(self.path)).digest() != self._digest:
                layout.write_whole(self.path, self._data, files=self._files)
            self._files.use(self.path)
            self._verify_at = now + VERIFIED_EVERY
        except OSError:
            pass  # it is tried again at the next call; an attempt that is prepared meanwhile reports what is wrong


def compiled_path(pushed: str) -> Optional[str]:
    """Path of the compiled copy. None: this Python cannot make one.

    `pushed`: the path of the pushed file, HASH.pyz.
    """
    tag = sys.implementation.cache_tag
    return "%s.%s.pyz" % (pushed[: -len(".pyz")], tag) if tag is not None and _HAS_HASHES else None


def is_whole(path: str, files: Files = DISK) -> bool:
    """Return whether there is such a file, and every part of it is as it was written."""
    try:
        with zipfile.ZipFile(io.BytesIO(files.read(path))) as archive:
            return archive.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return False


def write_compiled(pushed: str, path: str, files: Files = DISK) -> None:
    """Make the compiled copy of a pushed file, whole or not at all. Raises OSError, and BadZipFile if it is damaged."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(files.read(pushed))) as sources:
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as copy:
            for name in sources.namelist():
                source = sources.read(name)
                copy.writestr(name, source)
                if name.endswith(".py"):
                    bytecode = _bytecode(source, "%s/%s" % (path, name))
                    if bytecode is not None:
                        copy.writestr(name + "c", bytecode)
                    time.sleep(_PAUSE)
    layout.write_whole(path, buffer.getvalue(), files=files)


def _bytecode(source: bytes, name: str) -> Optional[bytes]:
    try:
        code = compile(source, name, "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return None  # of an installed batch system that is written for a newer Python
    return importlib.util.MAGIC_NUMBER + _UNCHECKED + _NO_HASH + marshal.dumps(code)
