"""Runs one maintenance task in a process of its own, killed at one step after the other, and what is left each time.

    python _maintenance_killed.py DIRECTORY TASK

A step is a file that is opened for writing, made, renamed or removed; a connection to a database, every SQL statement,
and each few hundred operations within one. For each step a copy of DIRECTORY/seed is made, a koalad is killed at the
step. A second one makes up the run an hour later. For each step DIRECTORY/at once has a JSON object of what the
first koalad left, and DIRECTORY/found one of what is there in the end. The last ones are of a koalad that was not
killed.
"""

import json
import os
import shutil
import signal
import sqlite3
import sys
import traceback
from collections.abc import Callable
from contextlib import closing
from dataclasses import fields
from datetime import UTC
from itertools import count
from pathlib import Path
from typing import Any

from koalapy.config.maintenance import MAINTENANCE, Maintenance
from koalapy.model.units import HOUR, SECOND, Instant
from koalapy.model.usage import Sum
from koalapy.runtime.maintenance.runner import Runner
from koalapy.runtime.maintenance.task import Koalad
from koalapy.store.open import FILE_NAME, open_store

NOON = Instant(1_795_348_800 * SECOND)
OPERATIONS = 500  # of SQLite's machine: a vacuum is one statement
_FILES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "sqlite3.connect")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Steps:
    """Counts down from `left`, once that is set; the process is killed at the last one."""

    def __init__(self) -> None:
        self.left = 0
        sys.addaudithook(self._happened)
        connect = sqlite3.connect

        def traced(*arguments: Any, **options: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*arguments, **options)
            connection.set_trace_callback(self.take)
            connection.set_progress_handler(self.take, OPERATIONS)
            return connection

        sqlite3.connect = sqlite3.dbapi2.connect = traced  # type: ignore[assignment]

    def take(self, *_: object) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def _happened(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _FILES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITES):
            self.take()


def maintain(place: Path, task: str, now: Instant, killed_at: int | None) -> None:
    """Open the store, and run the task as cron does, or make up the run that was cut off."""
    steps = Steps()
    store = open_store("sqlite", place / "state")
    given: dict[str, Any] = {each.name: None for each in fields(Koalad) if each.name not in ("ending", "began")}
    given |= {
        "grid": "das",
        "store": store,
        "now": lambda: now,
        "ask": lambda question: question(None),
        "clusters": list,
        "charges": lambda since: {},
        "usage": lambda by, since: {("ada",): Sum(run=3_600 * SECOND, attempts=2)},
    }
    reported: dict[str, Any] = {"task": task, "cron": "0 3 * * *"}
    if task != "vacuum":
        reported |= {"to": str(place / "to")}
    if task == "backup":
        reported |= {"keep": 1}
    known = {"policies": {MAINTENANCE: [task]}}
    runner = Runner([Maintenance.model_validate(reported, context=known)], Koalad(**given), UTC)
    if killed_at is not None:
        steps.left = killed_at
    runner._by_cron(task, made_up=bool(runner.missed()))
    store.close()


def left(place: Path) -> dict[str, Any]:
    """Return what a user finds: the store's jobs, the last run, and the contents of each file in the directory."""
    store = open_store("sqlite", place / "state")
    runs = [(run.name, run.ended is not None, run.well) for run in store.maintenance()]
    jobs = len(store.jobs())
    store.close()
    made = sorted((place / "to").iterdir()) if (place / "to").exists() else []
    size = sum(path.stat().st_size for path in (place / "state").glob(f"{FILE_NAME}*"))
    return {"jobs": jobs, "runs": runs, "size": size, "files": [[path.suffix, _content(path)] for path in made]}


def _content(path: Path) -> str | int:
    """The text of a report, the number of jobs in a backup; nothing of what is unfinished."""
    if path.suffix == ".csv":
        return path.read_text()
    if path.suffix != ".sqlite":
        return ""
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        (jobs,) = connection.execute("SELECT count(*) FROM work").fetchone()
    return int(jobs)


def write(path: Path, found: dict[str, Any]) -> None:
    with path.open("a") as file:
        file.write(json.dumps(found) + "\n")


def in_child(act: Callable[[], object]) -> int:
    """Run it in a process of its own. Returns the signal that killed it, or 0; raises SystemExit if it failed."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            act()
            status = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return os.WTERMSIG(status)
    if os.WEXITSTATUS(status):
        raise SystemExit(f"It failed with {os.WEXITSTATUS(status)}.")
    return 0


def main(directory: Path, task: str) -> None:
    for step in count(1):
        place = directory / "played"
        shutil.copytree(directory / "seed", place)
        killed = in_child(lambda: maintain(place, task, NOON, step))  # noqa: B023
        in_child(lambda: write(directory / "at once", left(place)))  # noqa: B023
        if killed:
            in_child(lambda: maintain(place, task, Instant(NOON + HOUR), None))  # noqa: B023
        in_child(lambda: write(directory / "found", {"step": step, "killed": killed, **left(place)}))  # noqa: B023
        shutil.rmtree(place)
        if not killed:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
