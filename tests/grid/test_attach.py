"""The terminal of a job on compute nodes of a real cluster, over real SSH."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import real_grid

SLURM, GRID_ENGINE, BY_FILES = "alpha", "gamma", "beta"


@pytest.fixture
def koalad(testgrid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    made = real_grid.Koalad(testgrid, tmp_path, {SLURM: {}, GRID_ENGINE: {}, BY_FILES: {"relay": "files"}})
    yield made
    made.stop()


def shown_until(pieces: Iterator[bytes], words: bytes) -> bytes:
    """Read until the terminal shows these words."""
    shown = b""
    while words not in shown:
        shown += next(pieces)
    return shown


@pytest.mark.parametrize(
    "cluster", [SLURM, *[pytest.param(each, marks=pytest.mark.slow) for each in (GRID_ENGINE, BY_FILES)]]
)
def test_a_shell_on_a_node_is_typed_to_left_and_found_again(koalad: Any, cluster: str) -> None:
    koalad.idle()
    component = {"processors": 2, "executable": "/bin/sh", "cluster": cluster}
    job = koalad.submit(component, interactive=True)
    koalad.until(lambda: koalad.job(job)["state"] in ("running", "failed"))
    with koalad.grid.attach(job) as terminal:
        pieces = terminal.read()
        terminal.resize(33, 99)
        terminal.write(b"stty size; echo on $(hostname)\n")
        assert b"33 99" in shown_until(pieces, b"\non ")
    with koalad.grid.attach(job, take=True) as terminal:
        pieces = terminal.read()
        assert b"33 99" in shown_until(pieces, b"\non ")
        terminal.write(b"sleep 1000\n")
        shown_until(pieces, b"sleep 1000")
        terminal.write(b"\x03")
        terminal.write(b"exit 7\n")
        for _ in pieces:
            pass
    (ended,) = koalad.grid.wait([job], real_grid.PATIENCE_S)
    assert ended["components"][0]["exit_status"] == 7
