"""Where the relay listens, as wrappers find it in the shared directory, and whether it is a newer KCM's by now."""

import os
from typing import Any, Dict, List, Optional

from koalapy_adapters import layout
from koalapy_adapters.errors import ClusterError
from koalapy_adapters.files import Files
from koalapy_adapters.kcm.shared_directory.errors import Stale, unusable

MAX_EPOCH = 1 << 53  # a higher one is damage: epochs count the starts of koalad

_SECRET_BYTES = 32


class RelayAddressFile:
    """The file `path`, as a KCM of this epoch reads and writes it. Methods block and raise BatchError.

    `secret`: of this one KCM. Wrappers read it there, and nobody else can: by it they and the KCM know each other.
    """

    def __init__(self, path: str, epoch: int, files: Files) -> None:
        self._path, self._epoch, self._files = path, epoch, files
        self._published: Optional[Dict[str, Any]] = None
        self.secret = files.unpredictable(_SECRET_BYTES)

    def publish(self, addresses: List[str], port: int, post: str = "", last: Optional[List[str]] = None) -> None:
        """Say where the relay listens, or its files are; `last`: see network.Addresses.

        Raises ClusterError `stale` if a newer KCM has said so.
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
