"""Opens the store that the grid file names."""

from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from koalapy.model.errors import RequestError
from koalapy.store.contract import Store
from koalapy.store.sql import SqlStore
from koalapy.store.sqlite import SqliteFile

FILE_NAME = "store.sqlite"
_SERVERS = ("postgresql", "postgres")


def open_store(name: str, state_directory: Path) -> Store:
    """`sqlite`: a file in the state directory; `sqlite:////a/b.sqlite` or `postgresql://…`: that database.

    Raises StoreError as `SqlStore` does, and RequestError for a name that is none of these.
    """
    if name == "sqlite":
        return SqlStore(SqliteFile(state_directory / FILE_NAME))
    url = _parsed(name)
    backend = url.get_backend_name()
    if backend == "sqlite" and url.database and url.database != ":memory:":
        return SqlStore(SqliteFile(Path(url.database)))
    if backend in _SERVERS and url.database:
        from koalapy.store.postgresql import PostgresqlServer  # late: SQLAlchemy loads every driver's dialect with it

        return SqlStore(PostgresqlServer(url))
    raise _unknown(url.render_as_string(hide_password=True))


def is_shared(name: str) -> bool:
    """Whether other hosts can reach it too: a koalad that finds it in use may stand by for it."""
    return name.partition(":")[0].partition("+")[0] in _SERVERS


def _parsed(name: str) -> URL:
    try:
        return make_url(name)
    except ArgumentError as error:
        raise _unknown(name) from error


def _unknown(name: str) -> RequestError:
    return RequestError(
        "store_name",
        f"{name!r} is no store that koalapy knows.",
        "Write `store: sqlite` or `store: postgresql://user@host/database` in the grid file.",
    )
