"""What differs between databases: how one is opened, guarded, written to and complained about."""

from typing import Any, Protocol

from sqlalchemy import Engine, Table
from sqlalchemy.exc import SQLAlchemyError

from koalapy.store.errors import StoreError

WRITES = "koalapy_writes"  # an execution option: this transaction is going to write


class Backend(Protocol):
    """A database that can be a store. `where` names it in messages."""

    where: str

    def open(self) -> Engine:
        """Take the lock and connect. Raises StoreError with nothing held and nothing changed."""

    def insert(self, table: Table) -> Any:
        """SQLAlchemy's insert of this dialect, the one with `on_conflict_do_update`."""

    def explain(self, error: SQLAlchemyError) -> StoreError:
        """The database's error in our words."""

    def close(self) -> None:
        """Give the lock back."""
