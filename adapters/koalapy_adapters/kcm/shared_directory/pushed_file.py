"""The pushed file as batch jobs find it: kept as it was while its KCM lives, whatever purges or damages it."""

import hashlib

from koalapy_adapters import layout
from koalapy_adapters.files import DISK, Files
from koalapy_adapters.kcm.state.actions import SECOND

VERIFIED_EVERY = 86400 * SECOND


class PushedFile:
    """`path`, with the bytes that it has when this is made. Raises OSError where they cannot be read."""

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
            pass  # it is tried again at the next call; an attempt that is prepared meanwhile says what is wrong
