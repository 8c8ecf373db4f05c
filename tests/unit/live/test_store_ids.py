"""A real koalad whose store has few ids left, or none."""

import sqlite3
from collections.abc import Callable
from typing import Any

from koalapy.model.identity import FIRST_LAUNCHER

Document = dict[str, Any]


def test_a_job_that_finds_no_id_is_refused_and_nothing_is_overwritten(
    small: Any, shell: Callable[..., Document]
) -> None:
    small("up")
    assert small.end(small.submit(shell("true")))["state"] == "done"
    assert "used up" not in small("status").out
    assert small("down").status == 0
    with sqlite3.connect(small.root / "state/koala/live/store.sqlite") as store:
        store.execute("UPDATE counters SET value = ? WHERE name = 'next_job'", [FIRST_LAUNCHER - 1])
    store.close()
    assert small("up").status == 0
    assert "The ids of jobs are nearly used up: 1 of 8,388,607 are left." in small("status").out
    file = small.write("job.yaml", {"name": "job", "components": [shell("true")]})
    small("submit", file, file).refused(2, "The ids of jobs are used up: 1 are left", "docs/store.md")
    last = small.submit(shell("true"))
    assert last == FIRST_LAUNCHER - 1
    small("submit", file).refused(2, "The ids of jobs are used up: 0 are left", "docs/store.md")
    assert small.end(last)["state"] == "done"
    assert small.ids() == [1, last]
