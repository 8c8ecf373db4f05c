"""The highest number of a Submit that the cluster has heard: it outlives KCMs, and a store that is restored."""

import os
import threading

from koalapy_adapters import layout
from koalapy_adapters.files import Files
from koalapy_adapters.kcm.shared_directory.errors import unusable
from koalapy_adapters.messages.fields import MOST_NUMBERS


class SubmitWatermark:
    """Kept in the file `path` of the shared directory. Methods block, but for `expect`, and raise BatchError."""

    def __init__(self, path: str, files: Files) -> None:
        self._path, self._files = path, files
        self._written = 0  # what the file says at least
        self._to_write = 0  # what it is to say: whoever writes next writes it for all who wait
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
