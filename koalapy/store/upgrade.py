"""Recognise a store of koalapy in a database, and bring it to the newest schema, all in the caller's transaction."""

from pathlib import Path

from sqlalchemy import Column, Connection, MetaData, PrimaryKeyConstraint, String, Table, inspect, select

import koalapy
from koalapy.store import schema
from koalapy.store.contract import StoreUnreadable

MIGRATIONS = Path(__file__).parent / "migrations"


def make_current(connection: Connection, where: str) -> None:
    """Make the tables of an empty database, migrate an older store, leave one of this version as it is.

    Raises StoreUnreadable for a newer store, and for a database that is not a store of koalapy.
    """
    tables = set(inspect(connection).get_table_names())
    if not tables:
        make(connection)
        return
    _refuse_stranger(connection, tables, where)
    version = _version(connection)
    if version > schema.SCHEMA_VERSION:
        raise _newer(connection, version, where)
    if version < schema.SCHEMA_VERSION:
        migrate(connection)


def make(connection: Connection) -> None:
    """Make all tables, as the migrations leave them. Alembic's import would take longer than all else of an opening."""
    for tables in (schema.metadata, _ALEMBIC):
        tables.create_all(connection, checkfirst=False)
    connection.execute(_VERSIONS.insert(), {"version_num": schema.SCHEMA_VERSION})


def migrate(connection: Connection, scripts: Path | None = None) -> None:
    """Run the migrations that the database lacks, as a part of the connection's transaction."""
    from alembic import command  # late: a store of this version need not wait for it
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(scripts or MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _refuse_stranger(connection: Connection, tables: set[str], where: str) -> None:
    ours = {schema.meta.name, _VERSIONS.name} <= tables
    if ours and connection.scalar(select(_FORMAT)) == schema.FORMAT:
        return
    raise StoreUnreadable(
        "store_foreign",
        f"{where} holds tables, but is not a store of koalapy.",
        "Name another place for the store in the grid file, or move what lies there away.",
    )


def _version(connection: Connection) -> str:
    return str(connection.scalar(select(_VERSIONS.c.version_num)))


def _newer(connection: Connection, version: str, where: str) -> StoreUnreadable:
    writer = connection.scalar(select(_WRITTEN_BY))
    return StoreUnreadable(
        "store_newer",
        f"{where} has schema {version}, written by koalapy {writer}; this is koalapy {koalapy.__version__}, "
        f"which knows schemas up to {schema.SCHEMA_VERSION}.",
        "Start the newer koalapy, or restore a backup made before it ran.",
    )


_ALEMBIC = MetaData()
_VERSIONS = Table(
    "alembic_version",
    _ALEMBIC,
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
_FORMAT = schema.meta.c.format
_WRITTEN_BY = schema.meta.c.written_by
