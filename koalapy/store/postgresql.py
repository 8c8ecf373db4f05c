"""PostgreSQL: a store that more than one host can reach, guarded by an advisory lock of the session that writes.

Codes: https://www.postgresql.org/docs/current/errcodes-appendix.html.
"""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, Table, create_engine, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from koalapy.model.errors import RequestError
from koalapy.store.contract import StoreConflict, StoreError, StoreFull, StoreLocked
from koalapy.store.identity import taken_over

_DRIVER = "postgresql+psycopg"
_LOCK = 0x6B6F616C  # "koal"
_TRY = text("SELECT pg_try_advisory_lock(:lock)")
_HOLDER = text(
    "SELECT application_name FROM pg_stat_activity JOIN pg_locks USING (pid)"
    " WHERE locktype = 'advisory' AND classid = 0 AND objid = :lock AND granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)
# Ends the session with the lock if its client has sent nothing for so long, in the middle of a statement too. No
# time-out of the server covers the time between two statements of a pipeline.
_END_FROZEN = text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity JOIN pg_locks USING (pid)"
    " WHERE locktype = 'advisory' AND classid = 0 AND objid = :lock AND granted"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND usename = current_user AND wait_event IN ('ClientRead', 'ClientWrite')"
    " AND greatest(state_change, query_start) < clock_timestamp() - make_interval(secs => :seconds)"
)
_HAS_IDLE_TIMEOUT = 14
_IDLE_S = 60  # a koalad that is frozen for so long may be replaced; a live one checks its store far more often
_KEEPALIVES = {"idle": 10, "interval": 5, "count": 3}  # both ends notice within half a minute that the other is lost


class PostgresqlServer:
    """A separate database on a server. Messages leave its password out.

    All writes go through the session that holds the lock. If that session is lost, so is the transaction, and the lock
    must be taken again before the next.
    """

    def __init__(self, url: URL) -> None:
        self.where = url.render_as_string(hide_password=True)
        self._url = url.set(drivername=_DRIVER)
        self._guard: Connection | None = None

    def open(self) -> Engine:
        """Connect and take the lock.

        Raises StoreLocked if another koalad has it, StoreError without a driver, or if the server refuses or is out of
        reach.
        """
        try:
            engine = _engine(self._url)
            holder = self._lock(engine)
        except ModuleNotFoundError as error:
            raise _no_driver() from error
        except SQLAlchemyError as error:
            raise self.explain(error) from error
        if self._guard is None:
            engine.dispose()
            raise _locked(self.where, holder)
        return engine

    @contextmanager
    def writing(self, engine: Engine) -> Iterator[Connection]:
        """Yield a transaction of the session that has the lock. Raises StoreLocked if the lock was lost to another.

        Raises SQLAlchemyError for errors of the database; see `explain`.
        """
        if self._guard is None:
            self._lock(engine)
        if self._guard is None:
            raise taken_over(self.where)
        try:
            with self._guard.begin():
                yield self._guard
        except SQLAlchemyError:
            if self._guard.invalidated or self._guard.closed:
                self.close()
            raise

    def insert(self, table: Table) -> Any:
        return insert(table)

    def explain(self, error: SQLAlchemyError) -> StoreError:
        original = error.orig if isinstance(error, DBAPIError) else error
        state = getattr(original, "sqlstate", None) or ""
        return _explained(state, self.where, " ".join(str(original).split()))

    def back_up(self, path: Path) -> None:
        """Refuse a backup, and name pg_dump. Raises RequestError."""
        advice = "Back it up with pg_dump, as `pg_dump --format=custom DATABASE`."
        raise RequestError("no_backup", f"{self.where} is a database of a PostgreSQL server.", advice)

    def compact(self) -> None:
        """Refuse to compact, as the server's autovacuum does it. Raises RequestError."""
        advice = "Remove the task: the server's autovacuum does this."
        raise RequestError("no_vacuum", f"{self.where} is a database of a PostgreSQL server.", advice)

    def close(self) -> None:
        """End the session, and the lock with it."""
        guard, self._guard = self._guard, None
        if guard is not None:
            _end(guard)

    def _lock(self, engine: Engine) -> str | None:
        """Try to take the lock for a new session. Returns the present holder's name if that fails, else None."""
        session = engine.connect()
        try:
            held = bool(session.scalar(_TRY, {"lock": _LOCK}))
            holder = None if held else session.scalar(_HOLDER, {"lock": _LOCK})
            if not held:
                session.execute(_END_FROZEN, {"lock": _LOCK, "seconds": _IDLE_S})  # so that the next try may succeed
            if held:
                _end_when_frozen(session, engine)
            session.commit()  # the lock is the session's; an open transaction would hold up vacuum
        except BaseException:
            _end(session)
            raise
        if not held:
            _end(session)
            return str(holder or "another koalad")
        self._guard = session
        return None


def _end_when_frozen(session: Connection, engine: Engine) -> None:
    """Let the server end the session, and the lock with it, once nothing came for a minute, wherever that was.

    The one time-out holds between transactions, the other one inside of them.
    """
    session.execute(text(f"SET idle_in_transaction_session_timeout = '{_IDLE_S}s'"))
    if _version(engine) >= _HAS_IDLE_TIMEOUT:
        session.execute(text(f"SET idle_session_timeout = '{_IDLE_S}s'"))


def _version(engine: Engine) -> int:
    return int((engine.dialect.server_version_info or (0,))[0])


def _end(session: Connection) -> None:
    """Close the session, and keep it out of the pool: the lock must be released with it."""
    session.invalidate()
    session.close()


def _engine(url: URL) -> Engine:
    """Return an engine whose transactions see one state of the database, and whose broken sessions are replaced.

    A commit returns when it is on disk.
    """
    server = [f"-c tcp_keepalives_{name}={value}" for name, value in _KEEPALIVES.items()]
    arguments = {
        "application_name": f"koalad {socket.gethostname()} {os.getpid()}",
        "options": " ".join(["-c synchronous_commit=on", *server]),
        "connect_timeout": 10,
        **{f"keepalives_{name}": value for name, value in _KEEPALIVES.items()},
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
        f"The store {where} is in use by {holder}.",
        "Stop that koalad with `koala down`, or give this grid another database.",
    )


def _no_driver() -> StoreError:
    return StoreError(
        "store_driver",
        "The driver for PostgreSQL is not installed.",
        "Install it with: pip install 'koalapy[postgresql]'.",
    )
