"""`koala` and a store that is in use, locked by another program, of an older koalapy, or of a newer one."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import live

from koalapy.store import schema

Document = dict[str, Any]


def store_of(koala: Any) -> Path:
    return Path(koala.root / "state" / "koala" / "live" / "store.sqlite")


def change(file: Path, script: str) -> None:
    connection = sqlite3.connect(file)
    with connection:
        connection.executescript(script)
    connection.close()


def test_a_second_koalad_on_one_file_is_refused(place: Path, shell: Callable[..., Document]) -> None:
    store = f"sqlite:///{place}/shared/grid.sqlite"
    one, two = (live.Koala(place / name, live.embedded(place / name, "delft"), store=store) for name in ("one", "two"))
    try:
        assert one("up").status == 0
        pid = one("status", "--json").document["pid"]
        answer = two("up")
        answer.refused(1, f"The store in {place}/shared is in use by process {pid}.", "koala down")
        two("status").refused(3, "is not running")
        assert one.end(one.submit(shell("true")))["state"] == "done"
        assert one("down").status == 0
        assert two("up").status == 0
        assert two.ids() == [1]
    finally:
        one.stop()
        two.stop()


def test_a_file_that_another_program_locks_stops_new_work_and_loses_nothing(
    small: Any, shell: Callable[..., Document]
) -> None:
    small("up")
    small.known()
    gate = small.work / "gate"
    running = small.submit(shell(f"while [ ! -e {gate} ]; do sleep 0.1; done; echo over"))
    small.until(lambda: small.job(running)["state"] == "running")
    other = sqlite3.connect(store_of(small), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    small.until(lambda: small("status", "--json").document["state"] == "store_failing")
    assert "Nothing new is taken up: Another program keeps" in small("status").out
    file = small.write("late.yaml", {"name": "late", "components": [shell("true")]})
    small("submit", file).refused(1, "Nothing new can be recorded: Another program keeps", "End that program")
    gate.touch()
    other.execute("ROLLBACK")
    other.close()
    small.until(lambda: small("status", "--json").document["state"] == "ready")
    assert small.end(running)["state"] == "done"
    assert small("logs", running).out == "over\n"
    assert small.end(small.submit(shell("true")))["state"] == "done"
    assert small.ids() == [1, 2]


def test_a_database_that_is_moved_away_stops_new_work_until_it_is_back(
    small: Any, shell: Callable[..., Document]
) -> None:
    small("up")
    assert small.end(small.submit(shell("true")))["state"] == "done"
    file = store_of(small)
    away = file.with_name("away.sqlite")
    file.rename(away)
    small.until(lambda: small("status", "--json").document["state"] == "store_failing")
    assert "store.sqlite is not there any more: it was moved, removed or replaced. Move it back" in small("status").out
    job = small.write("late.yaml", {"name": "late", "components": [shell("true")]})
    small("submit", job).refused(1, "Nothing new can be recorded: The database", "Move it back")
    away.rename(file)
    small.until(lambda: small("status", "--json").document["state"] == "ready")
    assert small.end(small.submit(shell("true")))["state"] == "done"
    assert small.ids() == [1, 2]


def test_a_store_of_a_newer_koalapy_is_refused_and_kept(small: Any, shell: Callable[..., Document]) -> None:
    small("up")
    assert small.end(small.submit(shell("true")))["state"] == "done"
    assert small("down").status == 0
    file = store_of(small)
    change(file, "UPDATE alembic_version SET version_num = '9999'; UPDATE meta SET written_by = '7.5';")
    before = file.read_bytes()
    small("up").refused(1, "has schema 9999, written by koalapy 7.5", "Start the newer koalapy, or restore a backup")
    assert file.read_bytes() == before
    change(file, f"UPDATE alembic_version SET version_num = '{schema.SCHEMA_VERSION}';")
    assert small("up").status == 0
    assert small.ids() == [1]
