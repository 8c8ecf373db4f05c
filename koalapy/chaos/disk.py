"""A real database for a simulated koalad: one file with a given instance, opened again after every kill."""

import sqlite3
from pathlib import Path

from koalapy.model.identity import InstanceId
from koalapy.store.contract import Store
from koalapy.store.open import FILE_NAME, open_store


class Disk:
    """A store in a file. `open` closes the store of the killed koalad first, and with it its lock."""

    def __init__(self, directory: Path, instance: InstanceId) -> None:
        self._directory = directory
        self._opened: Store | None = None
        self.open()
        self.close()
        with sqlite3.connect(directory / FILE_NAME) as connection:
            connection.execute("UPDATE meta SET instance = ?", (instance,))
        connection.close()

    def open(self) -> Store:
        self.close()
        self._opened = open_store("sqlite", self._directory)
        return self._opened

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
