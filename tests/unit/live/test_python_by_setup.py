"""A cluster whose Python only lines of `setup` bring: head node, wrapper and node agents."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import live
import pytest


@pytest.fixture
def grid(place: Path) -> Iterator[Any]:
    module = place / "module"
    module.mkdir()
    (module / "site-python").symlink_to(sys.executable)
    cluster = {
        "batch": "local",
        "connect": "local:",
        "slots": 2,
        "poll": "500ms",
        "max_age": "1m",
        "shared": str(place / "shared"),
        "python": "site-python",
        "setup": [f'PATH="{module}:$PATH"', "export PATH", "echo 'loaded'"],
    }
    made = live.Koala(place / "grid", {"here": cluster})
    yield made
    made.stop()


def test_a_job_where_python_comes_from_setup(grid: Any) -> None:
    assert grid("up").status == 0
    job = grid.end(grid.submit(live.sh("echo $KOALA_RANK", processors=2)))
    assert job["state"] == "done", job["reason"]
    assert sorted(grid("logs", job["id"]).out.split()) == ["0", "1"]
    (launcher,) = (grid.root.parent / "shared" / "bin").glob("python-*")
    assert launcher.stat().st_mode & 0o777 == 0o700
