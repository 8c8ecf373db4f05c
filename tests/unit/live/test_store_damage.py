"""A real koalad over a store in which some jobs' records are damaged: they are held, and repaired by command."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

Document = dict[str, Any]


def damage(store: Path, job: int, how: Callable[[Document], str]) -> str:
    """The record's text as it was: that of the job, or of its attempt if that is to be mistyped."""
    where = "attempts WHERE job = ?" if how is mistyped else "work WHERE id = ?"
    with closing(sqlite3.connect(store)) as database, database:
        (text,) = database.execute(f"SELECT record FROM {where}", [job]).fetchone()
        table, _, condition = where.partition(" ")
        database.execute(f"UPDATE {table} SET record = ? {condition}", [how(json.loads(text)), job])
    return str(text)


def cut(record: Document) -> str:
    return json.dumps(record)[:200]


def mistyped(record: Document) -> str:
    record["batch_id"] = {"a": 1}
    return json.dumps(record)


def lacking(record: Document) -> str:
    del record["owner"]
    return json.dumps(record)


def in_no_state(record: Document) -> str:
    record["state"] = "sleeping"
    return json.dumps(record)


DAMAGES = {1: cut, 2: mistyped, 3: lacking, 4: in_no_state}
NAMES = {1: "job/1", 2: "attempt/2.0.1", 3: "job/3", 4: "job/4"}


def test_damaged_jobs_are_held_and_all_others_go_on(
    fresh: Any, shell: Callable[..., Document], processes: Callable[[bytes], list[int]], request: pytest.FixtureRequest
) -> None:
    fresh("up")
    fresh.known()
    gate: Path = fresh.work / "gate"
    request.addfinalizer(gate.touch)
    program = shell(f"while [ ! -e {gate} ]; do sleep 0.1; done")
    jobs = [fresh.submit(program) for _ in range(5)]
    assert jobs == [1, 2, 3, 4, 5]
    fresh.until(lambda: all(fresh.job(job)["state"] == "running" for job in jobs))
    components = {job: fresh.job(job)["components"][0] for job in jobs}
    assert fresh("down").status == 0
    store = fresh.root / "state/koala/live/store.sqlite"
    texts = {job: damage(store, job, how) for job, how in DAMAGES.items()}

    assert fresh("up").status == 0
    fresh.until(lambda: all(each["connection"] == "up" for each in fresh("clusters", "--json").document["clusters"]))
    assert fresh.ids() == [5]
    listed = fresh("jobs", "--json").document
    assert [each["job"] for each in listed["unreadable"]] == [1, 3, 4, 2]
    lines = fresh("jobs").out.splitlines()
    assert [line.split()[0] for line in lines if "unreadable" in line] == ["1", "3", "4", "2"]
    fresh("show", 2).refused(2, "A record of job 2 cannot be read (batch_id", "koala repair attempt/2.0.1")
    fresh("cancel", 3).refused(2, "The record of job 3 cannot be read", "owner")
    said = fresh("status")
    assert said.status == 0
    assert all(f"The record {name} cannot be read" in said.out for name in NAMES.values())
    assert "koala repair job/1" in said.out
    assert fresh("status", "--unknown", "--json").document["tags"] == []
    assert fresh.end(fresh.submit(shell("true")))["state"] == "done"
    assert fresh.ids() == [5, 6]
    for job in jobs:
        assert processes(f"KOALA_ALLOCATION_JOB={components[job]['batch_id']}".encode())

    fresh("repair").refused(1, "is in use by process", "koala down")
    assert fresh("down").status == 0
    assert [each["record"] for each in fresh("repair", "--json").document["records"]] == [
        NAMES[job] for job in (1, 3, 4, 2)
    ]
    exported = fresh.work / "record.json"
    assert fresh("repair", NAMES[2], "--export", exported).status == 0
    assert exported.stat().st_mode & 0o777 == 0o600
    fresh("repair", NAMES[2], "--import", exported).refused(2, "is not a record of kind attempt", "batch_id")
    record = json.loads(exported.read_text())
    record["batch_id"] = components[2]["batch_id"]
    exported.write_text(json.dumps(record, indent=4))
    assert fresh("repair", NAMES[2], "--import", exported).status == 0
    assert fresh("repair", "job/1", "--export", "-").out.strip() == json.dumps(json.loads(texts[1]))[:200]
    for job in (1, 4):
        whole = fresh.write(f"{job}.json", texts[job])
        assert fresh("repair", f"job/{job}", "--import", whole).status == 0
    fresh("repair", "job/3", "--drop").refused(2, "needs confirmation on a terminal", "--export FILE")
    assert fresh("repair", "job/3", "--drop", "--yes").status == 0
    assert fresh("repair").out == "All records of the store can be read.\n"

    assert fresh("up").status == 0
    assert fresh.ids() == [1, 2, 4, 5, 6]
    (tag,) = fresh.until(lambda: fresh("status", "--unknown", "--json").document["tags"])
    assert (tag["own"], tag["attempt"]) == (True, "3.0.1")
    assert fresh("clean", tag["tag"], "--yes").status == 0
    gate.touch()
    assert [fresh.end(job)["state"] for job in (1, 2, 4, 5)] == ["done"] * 4
    assert all(fresh.job(job)["components"][0]["attempt"] == 1 for job in (1, 2, 4, 5))
    assert fresh.submit(shell("true")) == 7
