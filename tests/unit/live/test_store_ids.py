"""A real koalad whose store has few ids left, or none."""

import sqlite3
from collections.abc import Callable
from typing import Any

from koalapy.model.identity import FIRST_PILOT

Document = dict[str, Any]


def test_a_job_that_finds_no_id_is_refused_and_nothing_is_overwritten(
    fresh: Any, shell: Callable[..., Document]
) -> None:
    fresh("up")
    assert fresh.end(fresh.submit(shell("true")))["state"] == "done"
    assert "used up" not in fresh("status").out
    assert fresh("down").status == 0
    with sqlite3.connect(fresh.root / "state/koala/live/store.sqlite") as store:
        store.execute("UPDATE counters SET value = ? WHERE name = 'next_job'", [FIRST_PILOT - 1])
    store.close()
    assert fresh("up").status == 0
    assert "The ids of jobs are nearly used up: 1 of 8,388,607 are left." in fresh("status").out
    file = fresh.write("job.yaml", {"name": "job", "components": [shell("true")]})
    fresh("submit", file, file).refused(2, "The ids of jobs are used up: 1 are left", "docs/store.md")
    last = fresh.submit(shell("true"))
    assert last == FIRST_PILOT - 1
    fresh("submit", file).refused(2, "The ids of jobs are used up: 0 are left", "docs/store.md")
    assert fresh.end(last)["state"] == "done"
    assert fresh.ids() == [1, last]
