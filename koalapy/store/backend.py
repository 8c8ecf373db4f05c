"""What differs between databases: how one is opened, guarded, written to and complained about."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from sqlalchemy import Connection, Engine, Table
from sqlalchemy.exc import SQLAlchemyError

from koalapy.store.errors import StoreError


class Backend(Protocol):
    """A database that can be a store. `where` names it in messages."""

    where: str

    def open(self) -> Engine:
        """Take the lock and connect. Raises StoreError with nothing held and nothing changed."""

    def writing(self, engine: Engine) -> AbstractContextManager[Connection]:
        """A transaction that is going to write, of whoever holds the lock: committed if the block ends.

        Raises StoreLocked `store_taken_over` if the lock was lost to another. One thread writes.
        """

    def insert(self, table: Table) -> Any:
        """SQLAlchemy's insert of this dialect, the one with `on_conflict_do_update`."""

    def explain(self, error: SQLAlchemyError) -> StoreError:
        """The database's error in our words."""

    def back_up(self, path: Path) -> None:
        """See `koalapy.store.contract.Store`."""

    def compact(self) -> None:
        """See `koalapy.store.contract.Store`."""

    def close(self) -> None:
        """Give the lock back."""
