"""A store that was restored from a backup: what ran since runs on, and nothing of it runs twice."""

import os
import shutil
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import live
import pytest

from koalapy.client.daemon import wait_for_end

Document = dict[str, Any]
PATIENCE_S = live.PATIENCE_S
JOBS_AHEAD = 100_000


class Backup:
    """A backup of one grid's store, made while its koalad runs."""

    def __init__(self, koala: Any) -> None:
        self._koala = koala
        self._state = koala.root / "state" / "koala" / "live"
        self._file = koala.root / "backup.sqlite"
        source, target = sqlite3.connect(self._state / "store.sqlite"), sqlite3.connect(self._file)
        with source, target:
            source.backup(target)
        source.close()
        target.close()

    def restore(self) -> None:
        """koalad is killed at once, and another comes up over the backup."""
        pid = int(self._koala("status", "--json").document["pid"])
        os.kill(pid, signal.SIGKILL)
        assert wait_for_end(pid, PATIENCE_S)
        for name in ("store.sqlite-wal", "store.sqlite-shm"):
            (self._state / name).unlink(missing_ok=True)
        shutil.copyfile(self._file, self._state / "store.sqlite")
        assert self._koala("up").status == 0


class Program:
    """A job's: it reports its start and end, and runs until it may end."""

    def __init__(self, koala: Any, name: str) -> None:
        self.gate, self.lines = koala.work / f"{name}.gate", koala.work / f"{name}.lines"
        self.script = f"echo started >>{self.lines}; while [ ! -e {self.gate} ]; do sleep 0.1; done"
        self.script += f"; echo ended >>{self.lines}"

    @property
    def said(self) -> str:
        return self.lines.read_text() if self.lines.exists() else ""

    def may_end(self) -> None:
        self.gate.touch()


def submit(koala: Any, shell: Callable[..., Document], program: Program, **fields: Any) -> int:
    return int(koala.submit(shell(program.script, **fields)))


def running(koala: Any, job: int, program: Program) -> None:
    koala.until(lambda: koala.job(job)["state"] == "running" and program.said)


def full(koala: Any, shell: Callable[..., Document], program: Program) -> int:
    """A job that has all processors of all clusters, and runs."""
    sizes = {"amsterdam": 4, "delft": 4, "leiden": 2}
    parts = [shell(program.script, size, cluster=name, launch="once") for name, size in sizes.items()]
    job = int(koala.submit(*parts))
    koala.until(lambda: koala.job(job)["state"] == "running" and program.said == "started\n" * 3)
    return job


def settled(koala: Any) -> None:
    """Every cluster is connected, and has nothing that koalad has yet to acknowledge."""
    koala.until(lambda: all(each["connection"] == "up" for each in koala("clusters", "--json").document["clusters"]))


def test_yesterdays_backup_costs_nobody_a_job(fresh: Any, shell: Callable[..., Document]) -> None:
    fresh("up")
    fresh.known()
    a, b, c = (Program(fresh, name) for name in "abc")
    first = submit(fresh, shell, a, cluster="delft")
    running(fresh, first, a)
    backup = Backup(fresh)
    a.may_end()
    assert fresh.end(first)["state"] == "done"
    second = submit(fresh, shell, b, cluster="delft")
    running(fresh, second, b)

    backup.restore()
    ended = fresh.end(first)
    assert (ended["state"], ended["completion_failures"]) == ("done", 0)
    third = submit(fresh, shell, c)
    assert third > second + JOBS_AHEAD - 2
    running(fresh, third, c)
    c.may_end()
    assert fresh.end(third)["state"] == "done"
    assert fresh.ids() == [first, third]

    assert b.said == "started\n"
    b.may_end()
    fresh.until(lambda: b.said == "started\nended\n")
    assert (a.said, c.said) == ("started\nended\n", "started\nended\n")
    reported = [event["kind"] for event in fresh("show", first, "--json").document["events"]]
    assert "store_restored" in reported
    log = (fresh.root / "state" / "koala" / "live" / "koalad.log").read_text()
    assert log.count('"event": "store_restored", "level"') + log.count('"event": "store_restored", "job"') >= 1


@pytest.mark.parametrize("ended", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["still runs", "has ended"])
def test_a_job_that_waited_in_the_backup_is_found_where_it_went(
    fresh: Any, shell: Callable[..., Document], ended: bool
) -> None:
    """It went to the cluster that had most room then, which has least now."""
    fresh("up")
    fresh.known()
    a, b = Program(fresh, "a"), Program(fresh, "b")
    first = full(fresh, shell, a)
    held = submit(fresh, shell, b)
    fresh("hold", held)
    fresh.until(lambda: fresh.job(held)["state"] == "held")
    backup = Backup(fresh)
    a.may_end()
    assert fresh.end(first)["state"] == "done"
    fresh("release", held)
    running(fresh, held, b)
    went = fresh.job(held)["components"][0]
    if ended:
        b.may_end()
        assert fresh.end(held)["state"] == "done"

    backup.restore()
    assert fresh.job(held)["state"] == "held"
    settled(fresh)
    assert fresh("release", held).status == 0
    fresh.until(lambda: fresh.job(held)["state"] in ("running", "done"))
    found = fresh.job(held)["components"][0]
    assert (found["cluster"], found["attempt"]) == (went["cluster"], went["attempt"])
    b.may_end()
    assert fresh.end(held)["state"] == "done"
    assert b.said == "started\nended\n"
    assert fresh.end(first)["state"] == "done"
    assert a.said == "started\n" * 3 + "ended\n" * 3


def test_a_job_whose_cluster_is_out_of_reach_waits(fresh: Any, shell: Callable[..., Document]) -> None:
    """It may be running there: only that cluster can report so."""
    fresh("up")
    fresh.known()
    a, b = Program(fresh, "a"), Program(fresh, "b")
    full(fresh, shell, a)
    held = submit(fresh, shell, b)
    backup = Backup(fresh)
    a.may_end()
    running(fresh, held, b)
    cluster = fresh.job(held)["components"][0]["cluster"]
    other = "leiden" if cluster != "leiden" else "delft"
    assert fresh.end(fresh.submit(shell("true", cluster=other)))["state"] == "done"  # so that one in reach knows more
    shared = fresh.root / cluster
    away = fresh.root / "away"
    shared.rename(away)
    shared.write_text("no directory")
    backup.restore()
    fresh.until(
        lambda: any(f"once {cluster} can report" in line for line in fresh("status", "--json").document["troubles"])
    )
    third = fresh.submit(shell("true", cluster=other))
    assert fresh.end(third)["state"] == "done"
    assert fresh.job(held)["state"] == "waiting"
    shared.unlink()
    away.rename(shared)
    fresh.until(lambda: fresh.job(held)["state"] == "running")
    b.may_end()
    assert fresh.end(held)["state"] == "done"
    assert b.said == "started\nended\n"


def test_a_koalad_that_another_replaced_leaves_the_cluster_to_it(place: Path, shell: Callable[..., Document]) -> None:
    """Somebody started a second koalad over a copy of the store."""
    (place / "clusters").mkdir()
    clusters = live.embedded(place / "clusters")
    one, two = (live.Koala(place / name, clusters) for name in ("one", "two"))
    try:
        one("up")
        one.known()
        program = Program(one, "a")
        job = submit(one, shell, program)
        running(one, job, program)
        (place / "two" / "state" / "koala" / "live").mkdir(parents=True)
        Backup(one)
        shutil.copyfile(one.root / "backup.sqlite", place / "two" / "state" / "koala" / "live" / "store.sqlite")
        assert two("up").status == 0
        two.until(
            lambda: two.job(job)["state"] == "running" and len(two("clusters", "--json").document["clusters"]) == 3
        )
        settled(two)
        one.until(lambda: str(one("status", "--json").document["troubles"]).count("has taken this cluster over") == 3)
        settled(two)
        assert one("down").status == 0
        program.may_end()
        assert two.end(job)["state"] == "done"
        assert program.said == "started\nended\n"
    finally:
        one("down")
        two.stop()
