"""The lines on standard error while a command waits for a job."""

from pathlib import Path
from typing import Any

import pytest

from koalapy.cli import progress
from koalapy.cli.progress import StateLines
from koalapy.client import Grid

WHY = "vu: A line of `setup` failed. Correct it; the shell's output shows why."


def job(state: str, reason: str | None = None, *clusters: str) -> Any:
    components = [{"cluster": cluster} for cluster in clusters]
    return {"id": 6, "state": state, "reason": reason, "finished_at": None, "components": components}


def test_the_line_of_a_try_that_ends_gives_the_reason_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(progress, "_QUIET_S", 0.0)
    (tmp_path / "grid.yaml").write_text("grid: das\n")
    lines = StateLines(Grid(tmp_path / "grid.yaml"))
    for each in (
        job("claiming", None, "vu", "leiden"),
        job("stopping", WHY, "vu", "leiden"),
        job("waiting", WHY),
        job("claiming", None, "leiden", "uva"),
        job("waiting", "uva: It is full."),
        job("running", None, "leiden"),
        job("stopping", None, "leiden"),
    ):
        lines.print_changes(each)
    assert capsys.readouterr().err.splitlines() == [
        "job 6 is claiming (vu, leiden)",
        f"job 6 is stopping (vu, leiden): {WHY}",
        "job 6 is waiting",
        "job 6 is claiming (leiden, uva)",
        "job 6 is waiting: uva: It is full.",
        "job 6 is running (leiden)",
        "job 6 is ending (leiden)",
    ]
