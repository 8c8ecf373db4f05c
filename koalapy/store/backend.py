"""The differences between databases: how one is opened, locked and written to, and what its errors mean."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Connection, Engine, Table
from sqlalchemy.exc import SQLAlchemyError

from koalapy.store.contract import StoreError


class Backend(Protocol):
    """A database that can be a store. `where` names it in messages."""

    where: str

    def open(self) -> Engine:
        """Take the lock and connect. Raises StoreError if that fails; then nothing is held and nothing was changed."""

    def writing(self, engine: Engine) -> AbstractContextManager[Connection]:
        """Return a transaction that is going to write, for the holder of the lock. It is committed if the block ends.

        Raises StoreLocked `store_taken_over` if the lock was lost to another. One thread writes.
        """

    def insert(self, table: Table) -> Any:
        """Return SQLAlchemy's insert of this dialect, the one with `on_conflict_do_update`."""

    def explain(self, error: SQLAlchemyError) -> StoreError:
        """Return the StoreError that corresponds to an error of the database."""

    def back_up(self, path: Path) -> None:
        """See `koalapy.store.contract.Store`."""

    def compact(self) -> None:
        """See `koalapy.store.contract.Store`."""

    def close(self) -> None:
        """Release the lock."""
