"""Open the store that the grid file names."""

from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from koalapy.model.errors import RequestError
from koalapy.store.contract import Store
from koalapy.store.sql import SqlStore
from koalapy.store.sqlite import SqliteFile

FILE_NAME = "store.sqlite"
_SECRET = ("password", "secret", "scram_client_key", "scram_server_key")  # parts of libpq's names for what is secret
_SERVERS = ("postgresql", "postgres")


def open_store(name: str, state_directory: Path) -> Store:
    """Open the store that is named `sqlite`, `sqlite:////a/b.sqlite` or `postgresql://…`.

    `sqlite` alone is a file in the state directory. Raises StoreError as `SqlStore` does. Raises RequestError for any
    other name, or a URL with a secret in its query. No message shows a password.
    """
    if name == "sqlite":
        return SqlStore(SqliteFile(state_directory / FILE_NAME))
    url = _parsed(name)
    backend = url.get_backend_name()
    if backend == "sqlite" and url.database and url.database != ":memory:":
        return SqlStore(SqliteFile(Path(url.database)))
    if backend in _SERVERS and url.database:
        _refuse_secrets(url)
        from koalapy.store.postgresql import PostgresqlServer  # late: SQLAlchemy loads every driver's dialect with it

        return SqlStore(PostgresqlServer(url))
    raise _unknown(url.set(query={}).render_as_string(hide_password=True))


def is_shared(name: str) -> bool:
    """Return whether other hosts can reach the store too.

    A koalad that finds such a store in use may stand by for it.
    """
    return name.partition(":")[0].partition("+")[0] in _SERVERS


def _parsed(name: str) -> URL:
    try:
        return make_url(name)
    except (ArgumentError, ValueError):  # the error would quote the name, which may hold a password
        scheme, separator, _ = name.partition("://")
        raise _unknown(f"{scheme}://…" if separator else name.partition("@")[0].partition(":")[0]) from None


def _refuse_secrets(url: URL) -> None:
    """Refuse a password in the query: every message that names the store would show it. Raises RequestError."""
    secrets = [key for key in url.query if any(word in key.lower() for word in _SECRET)]
    if not secrets:
        return
    raise RequestError(
        "store_secret",
        f"The URL of the store has {' and '.join(sorted(secrets))} in its query, which messages and logs show.",
        "Write the password into a file of mode 0600 and name that: `?passfile=/home/you/.pgpass`, or set PGPASSFILE.",
    )


def _unknown(name: str) -> RequestError:
    return RequestError(
        "store_name",
        f"{name!r} is not a supported store.",
        "Write `store: sqlite` or `store: postgresql://user@host/database` in the grid file.",
    )
