"""Where the relay listens, as wrappers find it in the shared directory, and whether it is a newer KCM's by now."""

import os
from typing import List

from koalapy_adapters import layout
from koalapy_adapters.errors import SiteError
from koalapy_adapters.files import Files
from koalapy_adapters.kcm.troubles import Stale, unusable

_SECRET_BYTES = 32


class Signpost:
    """The file `path`, as a KCM of this epoch reads and writes it. Methods block and raise BatchError.

    `secret`: of this one KCM. Wrappers read it there, and nobody else can: by it they and the KCM know each other.
    """

    def __init__(self, path: str, epoch: int, files: Files) -> None:
        self._path, self._epoch, self._files = path, epoch, files
        self.secret = files.unpredictable(_SECRET_BYTES)

    def publish(self, addresses: List[str], port: int, post: str = "") -> None:
        """Say where the relay listens, or its office is. Raises SiteError `stale` if a newer KCM has said so."""
        self.check()
        try:
            data = {"addresses": addresses, "port": port, "epoch": self._epoch, "post": post}
            data["secret"] = self.secret
            layout.write_json(self._path, data, self._files)
        except OSError as error:
            raise unusable(os.path.dirname(self._path), error) from error

    def show_life(self) -> None:
        """Touch it: a wrapper that cannot connect sees that its KCM lives. Raises nothing."""
        try:
            if self.newest_epoch() == self._epoch:
                self._files.use(self._path)
        except (OSError, SiteError):
            pass  # then the wrapper has other worries

    def newest_epoch(self) -> int:
        """Of the KCM that listens, or 0."""
        try:
            return layout.read_number(self._path, "epoch", self._files)
        except OSError as error:
            raise unusable(os.path.dirname(self._path), error) from error

    def check(self) -> None:
        """Raises SiteError `stale` if a newer KCM listens."""
        newest = self.newest_epoch()
        if newest > self._epoch:
            raise Stale(newest)
