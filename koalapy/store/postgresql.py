"""PostgreSQL: a store that more than one host can reach, guarded by an advisory lock of its session.

Codes: https://www.postgresql.org/docs/current/errcodes-appendix.html.
"""

import os
import socket
from typing import Any

from sqlalchemy import URL, Connection, Engine, Table, create_engine, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from koalapy.store.errors import StoreConflict, StoreError, StoreFull, StoreLocked

_DRIVER = "postgresql+psycopg"
_LOCK = 0x6B6F616C  # "koal"
_HOLDER = text(
    "SELECT application_name FROM pg_stat_activity JOIN pg_locks USING (pid)"
    " WHERE locktype = 'advisory' AND classid = 0 AND objid = :lock AND granted"
)


class PostgresqlServer:
    """A database of its own on a server. Messages leave its password out."""

    def __init__(self, url: URL) -> None:
        self.where = url.render_as_string(hide_password=True)
        self._url = url.set(drivername=_DRIVER)
        self._guard: Connection | None = None

    def open(self) -> Engine:
        try:
            engine = _engine(self._url)
            self._guard = engine.connect()
            held = bool(self._guard.scalar(text("SELECT pg_try_advisory_lock(:lock)"), {"lock": _LOCK}))
            holder = None if held else self._guard.scalar(_HOLDER, {"lock": _LOCK})
            self._guard.commit()  # the lock is the session's; an open transaction would hold up vacuum
        except ModuleNotFoundError as error:
            raise _no_driver() from error
        except SQLAlchemyError as error:
            self.close()
            raise self.explain(error) from error
        if not held:
            self.close()
            raise _locked(self.where, holder)
        return engine

    def insert(self, table: Table) -> Any:
        return insert(table)

    def explain(self, error: SQLAlchemyError) -> StoreError:
        original = error.orig if isinstance(error, DBAPIError) else error
        state = getattr(original, "sqlstate", None) or ""
        return _explained(state, self.where, " ".join(str(original).split()))

    def close(self) -> None:
        """Ends the session, and the lock with it."""
        if self._guard is not None:
            self._guard.invalidate()
            self._guard.close()
            self._guard = None


def _engine(url: URL) -> Engine:
    """Transactions see one state of the database; a commit returns when it is on disk; broken sessions are replaced."""
    arguments = {
        "application_name": f"koalad {socket.gethostname()} {os.getpid()}",
        "options": "-c synchronous_commit=on",
    }
    return create_engine(
        url, connect_args=arguments, isolation_level="REPEATABLE READ", pool_pre_ping=True, max_overflow=-1
    )


def _explained(state: str, where: str, words: str) -> StoreError:
    if state.startswith("53"):  # insufficient resources: disk, memory, connections
        return StoreFull("store_full", f"{where} has no room ({words}).", "Free disk space or connections there.")
    if state.startswith("23"):
        return StoreConflict(
            "store_conflict",
            f"A change contradicts what {where} holds ({words}).",
            "Report this as a mistake of koalapy.",
        )
    if state in ("40001", "55P03"):
        return StoreLocked("store_locked", f"Another koalad writes to {where} ({words}).", "Stop one of the two.")
    return StoreError("store_failed", f"{where} could not be used ({words}).", "Check the server and the store's URL.")


def _locked(where: str, holder: str | None) -> StoreLocked:
    return StoreLocked(
        "store_locked",
        f"The store {where} is in use by {holder or 'another koalad'}.",
        "Stop that koalad with `koala down`, or give this grid another database.",
    )


def _no_driver() -> StoreError:
    return StoreError(
        "store_driver",
        "The driver for PostgreSQL is not installed.",
        "Install it with: pip install 'koalapy[postgresql]'.",
    )
