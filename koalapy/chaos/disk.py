"""A real database for a simulated koalad: one file, opened again after every kill, of an instance that is given."""

import sqlite3
from pathlib import Path

from koalapy.model.identity import InstanceId
from koalapy.store.contract import Store
from koalapy.store.open import FILE_NAME, open_store


class Disk:
    """`open` it again and again: who had it open before is dead, and with it its lock."""

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
