"""The KCM's own files in the shared directory: relay address, submit watermark and Python's shim."""

import hashlib
import os
import shlex
import threading
from typing import Any, Dict, List, NamedTuple, Optional

from koalapy_adapters import layout
from koalapy_adapters.errors import ClusterError
from koalapy_adapters.files import Files
from koalapy_adapters.kcm.shared_directory.errors import Stale, unusable
from koalapy_adapters.messages.fields import MOST_NUMBERS
from koalapy_adapters.messages.koalad import ClusterConfig

MAX_EPOCH = 1 << 53  # a higher one is damage: epochs count the starts of koalad
_SECRET_BYTES = 32
BY_SETUP = "KOALA_PYTHON_BY_SETUP"  # koalad's remote command sets it where the KCM's own Python was found so
# What profile and setup print must not get between a node agent and its wrapper, which use these streams.
_SCRIPT = """#!/bin/sh
# Starts Python for koalapy's own parts: with the grid file's `setup`, if it is not there without.
if ! {python} -c 'import sys; sys.exit(sys.version_info < (3, 6))' >/dev/null 2>&1; then
    exec 3>&1 >&2
    [ ! -r /etc/profile ] || . /etc/profile </dev/null
    {{
{setup}
    }} </dev/null
    exec >&3 3>&-
fi
exec {python} "$@"
"""


class RelayAddressFile:
    """Where the relay listens: the file `path`, for a KCM of this epoch. Methods block and raise BatchError.

    `secret`: of this one KCM. Wrappers read it there, and nobody else can: by it they and the KCM know each other.
    """

    def __init__(self, path: str, epoch: int, files: Files) -> None:
        self._path, self._epoch, self._files = path, epoch, files
        self._published: Optional[Dict[str, Any]] = None
        self.secret = files.unpredictable(_SECRET_BYTES)

    def publish(self, addresses: List[str], port: int, post: str = "", last: Optional[List[str]] = None) -> None:
        """Publish where the relay listens, or its files are; `last`: see network.Addresses.

        Raises ClusterError `stale` if a newer KCM has published its own.
        """
        self.check()
        data = {"addresses": addresses, "port": port, "epoch": self._epoch, "post": post, "last": last or []}
        data["secret"] = self.secret
        self._published = data
        try:
            layout.write_json(self._path, data, self._files)
        except OSError as error:
            raise unusable(os.path.dirname(self._path), error) from error

    def withdraw(self) -> None:
        """Write the file no more: the store's directory is about to be removed."""
        self._published = None

    def show_life(self) -> None:
        """Touch it: a wrapper that cannot connect sees that its KCM lives. Raises nothing.

        A file that was removed or damaged, as a purge of old files does, is written again; never a newer KCM's.
        """
        try:
            if self._published is None or self.newest_epoch() > self._epoch:
                return
            if self._read() != self._published:
                layout.write_json(self._path, self._published, self._files)
            self._files.use(self._path)
        except (OSError, ClusterError):
            pass  # then the wrapper has other worries

    def newest_epoch(self) -> int:
        """Read the epoch of the KCM that listens; 0 if there is none, or the file is damaged. Raises BatchError."""
        try:
            found = self._read()
        except OSError as error:
            raise unusable(os.path.dirname(self._path), error) from error
        epoch = found.get("epoch") if isinstance(found, dict) else None
        return epoch if isinstance(epoch, int) and 0 <= epoch <= MAX_EPOCH else 0

    def check(self) -> None:
        """Raises ClusterError `stale` if a newer KCM listens."""
        newest = self.newest_epoch()
        if newest > self._epoch:
            raise Stale(newest)

    def _read(self) -> Any:
        """Raises OSError; None for what is no JSON, or not there."""
        try:
            return layout.read_json(self._path, self._files)
        except (ValueError, RecursionError):
            return None


class SubmitWatermark:
    """The highest number of a Submit that the cluster ever had: it outlives KCMs, and a store that is restored.

    It is in the file `path`. Methods block, but for `expect`, and raise BatchError.
    """

    def __init__(self, path: str, files: Files) -> None:
        self._path, self._files = path, files
        self._written = 0  # what the file contains at least
        self._to_write = 0  # what it is to contain: whoever writes next writes it for all who wait
        self._counting = threading.Lock()
        self._writing = threading.Lock()

    def newest(self) -> int:
        """Read the highest number that ever came to this cluster, or 0. Raises BatchError."""
        try:
            number = layout.read_number(self._path, "number", self._files)
        except OSError as error:
            raise unusable(os.path.dirname(self._path), error) from error
        return number if number <= MOST_NUMBERS else 0

    def expect(self, number: int) -> None:
        """A Submit of this number has come: whoever remembers one next remembers this one too, by the same write."""
        with self._counting:
            self._to_write = max(number, self._to_write)

    def remember(self, number: int) -> None:
        """Store the number before the Submit is done, to warn a koalad with an older store. Raises BatchError."""
        self.expect(number)
        with self._writing:
            if number <= self._written:
                return  # whoever wrote last wrote for all who waited
            self._written = max(self._to_write, self.newest())
            try:
                layout.write_json(self._path, {"number": self._written}, self._files)
            except OSError as error:
                self._written = 0
                raise unusable(os.path.dirname(self._path), error) from error


class PythonShim(NamedTuple):
    """An executable that starts Python on nodes where only lines of `setup` bring it, such as `module load python`.

    It is in the shared directory, named by its content.
    """

    path: str
    text: str


def python_shim(config: ClusterConfig, shared: str) -> Optional[PythonShim]:
    """Return the shim that the cluster needs; None if Python is found without one."""
    if BY_SETUP not in os.environ or "/" in config.python:
        return None
    text = _SCRIPT.format(python=shlex.quote(config.python), setup="\n".join(config.setup))
    name = "python-" + hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return PythonShim(os.path.join(shared, "bin", name), text)


def write_python_shim(shim: PythonShim) -> None:
    """Write it whole or not at all. Raises ClusterError where the shared directory cannot be used."""
    if os.path.exists(shim.path):
        return
    try:
        layout.write_whole(shim.path, shim.text.encode("utf-8", "surrogateescape"), 0o700)
    except OSError as error:
        message = "%s cannot be written: %s." % (shim.path, error.strerror)
        raise ClusterError("directory_not_writable", message, "Make room there, or name another directory.") from error
