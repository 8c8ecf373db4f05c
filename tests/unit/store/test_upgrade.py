"""Migrations: they make the tables that the code uses, keep the records of old stores, and refuse newer ones."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, inspect
from sqlalchemy.exc import OperationalError

import koalapy
from koalapy.model.change import Change
from koalapy.model.history import History
from koalapy.model.identity import JobId
from koalapy.model.job import Job
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.states import JobState
from koalapy.model.units import Instant
from koalapy.store import schema, upgrade
from koalapy.store.contract import StoreUnreadable
from koalapy.store.open import FILE_NAME, open_store
from koalapy.store.sqlite import WRITES, engine_of
from koalapy.store.upgrade import MIGRATIONS, migrate

WISH = ComponentRequest(processors=2, executable="./a.out")
JOB = Job(
    id=JobId(7),
    owner="mona",
    request=Request(name="poisson", components=(WISH,)),
    state=JobState.WAITING,
    position=3,
    submitted_at=Instant(5),
)
LINE = History(job=JOB.id, at=Instant(5), kind="work_submitted")

NEXT = """
import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "{head}"


def upgrade():
    op.create_table("colours", sa.Column("name", sa.Text, primary_key=True))
    op.add_column("work", sa.Column("colour", sa.Text, server_default="red", nullable=False))
    {more}
"""


@contextmanager
def writing(file: Path) -> Iterator[Connection]:
    engine = engine_of(file)
    with engine.execution_options(**{WRITES: True}).begin() as connection:
        yield connection
    engine.dispose()


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The directory of a store of this version with a job in it, closed."""
    store = open_store("sqlite", tmp_path / "state")
    store.commit(Change(jobs=(JOB,), history=(LINE,)))
    store.close()
    return tmp_path / "state"


@pytest.fixture
def newer(tmp_path: Path) -> Path:
    """Directory with the migrations and one more."""
    return scripts_with(tmp_path / "newer", more="pass")


def scripts_with(place: Path, more: str) -> Path:
    shutil.copytree(MIGRATIONS, place)
    (place / "versions" / "r9999_next.py").write_text(NEXT.format(head=schema.SCHEMA_VERSION, more=more))
    return place


def test_the_constant_names_the_last_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_heads() == [schema.SCHEMA_VERSION]
    versions = [script.revision for script in scripts.walk_revisions()]
    assert versions == sorted(versions, reverse=True)


def test_the_migrations_make_the_tables_that_the_code_uses(tmp_path: Path) -> None:
    with writing(tmp_path / "migrated") as connection:
        migrate(connection)
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, schema.metadata) == []


def test_a_store_made_at_once_equals_a_migrated_one(tmp_path: Path) -> None:
    with writing(tmp_path / "migrated") as migrated, writing(tmp_path / "made") as made:
        migrate(migrated)
        upgrade.make(made)
        tables = inspect(made).get_table_names()
        assert "alembic_version" in tables
        assert tables == inspect(migrated).get_table_names()
        for table in tables:
            assert shape(made, table) == shape(migrated, table)
        for facts in ("alembic_version", *schema.metadata.tables):
            rows = f"SELECT * FROM {facts}"
            assert made.exec_driver_sql(rows).all() == migrated.exec_driver_sql(rows).all()


def shape(connection: Connection, table: str) -> list[str]:
    """Describe a table: columns in order with types and defaults; keys and indexes with their names."""
    seen = inspect(connection)
    return [
        *map(str, seen.get_columns(table)), str(seen.get_pk_constraint(table)), *map(str, seen.get_foreign_keys(table)),
        *map(str, seen.get_unique_constraints(table)), *map(str, seen.get_indexes(table)),
    ]  # fmt: skip


def test_a_database_without_tables_is_a_new_store(tmp_path: Path) -> None:
    """A koalad that was killed before its first transaction leaves such a database."""
    store = open_store("sqlite", tmp_path)
    store.close()
    with writing(tmp_path / FILE_NAME) as connection:
        for table in inspect(connection).get_table_names():
            connection.exec_driver_sql("PRAGMA defer_foreign_keys = ON")
            connection.exec_driver_sql(f"DROP TABLE {table}")
    again = open_store("sqlite", tmp_path)
    again.commit(Change(jobs=(JOB,), history=(LINE,)))
    assert (again.epoch, again.jobs()) == (1, [JOB])
    again.close()


def test_a_migration_keeps_the_records_of_an_older_store(old: Path, newer: Path) -> None:
    with writing(old / FILE_NAME) as connection:
        migrate(connection, newer)
    with writing(old / FILE_NAME) as connection:
        assert connection.exec_driver_sql("SELECT id, colour FROM work").all() == [(7, "red")]
        assert connection.exec_driver_sql("SELECT kind FROM history").all() == [("work_submitted",)]
        assert connection.exec_driver_sql("SELECT version_num FROM alembic_version").all() == [("9999",)]


def test_an_older_store_is_migrated_when_it_is_opened(old: Path, newer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newer koalapy is this one with one more migration."""
    monkeypatch.setattr(schema, "SCHEMA_VERSION", "9999")
    monkeypatch.setattr(upgrade, "MIGRATIONS", newer)
    store = open_store("sqlite", old)
    assert (store.jobs(), store.history(JOB.id), store.epoch) == ([JOB], [LINE], 2)
    store.close()
    with writing(old / FILE_NAME) as connection:
        assert connection.exec_driver_sql("SELECT colour FROM work").all() == [("red",)]


def test_a_migration_that_fails_leaves_the_store_as_it_was(old: Path, tmp_path: Path) -> None:
    broken = scripts_with(tmp_path / "broken", more='op.execute("INSERT INTO nowhere VALUES (1)")')
    with pytest.raises(OperationalError, match="nowhere"), writing(old / FILE_NAME) as connection:
        migrate(connection, broken)
    store = open_store("sqlite", old)
    assert store.jobs() == [JOB]
    store.close()
    with writing(old / FILE_NAME) as connection:
        assert "colours" not in inspect(connection).get_table_names()


def test_a_newer_store_is_refused_and_kept(old: Path, newer: Path) -> None:
    with writing(old / FILE_NAME) as connection:
        migrate(connection, newer)
        connection.exec_driver_sql("UPDATE meta SET written_by = '42.0'")
    content = (old / FILE_NAME).read_bytes()
    with pytest.raises(StoreUnreadable) as refusal:
        open_store("sqlite", old)
    message = str(refusal.value)
    for word in ("9999", "42.0", koalapy.__version__, schema.SCHEMA_VERSION, "Start the newer koalapy"):
        assert word in message
    assert (old / FILE_NAME).read_bytes() == content


def test_a_record_of_a_newer_koalapy_is_set_aside_with_its_unknown_field(old: Path) -> None:
    database = sqlite3.connect(old / FILE_NAME)
    database.execute("""UPDATE work SET record = replace(record, '"owner"', '"colour":"red","owner"')""")
    database.commit()
    database.close()
    store = open_store("sqlite", old)
    assert store.load().jobs == ()
    assert store.unreadable()
    assert all(each.kind == "job" and "colour" in each.why for each in store.unreadable())
    store.close()
