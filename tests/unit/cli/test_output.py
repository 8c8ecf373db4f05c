"""Tables on terminals of any width, and where there is none."""

import io

import pytest
from rich.console import Console

from koalapy.cli import output

COLUMNS = ("CLUSTER", "BATCH", "CONNECTION", "TOTAL", "IDLE", "OURS", "PROC HOURS", "")
ROW = ("amsterdam-of-the-north", "slurm 24.11.3", "connected", 1000, 10, 5, None, "3s")


@pytest.mark.parametrize("width", [1, 20, 40, 50, 60, 70, 80, 400])
def test_a_table_shows_every_column_however_narrow_the_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(output, "out", Console(file=screen, width=width, force_terminal=True, no_color=True))
    output.table(COLUMNS, [ROW, ROW])
    shown = screen.getvalue() or capsys.readouterr().out
    for word in ("CLUSTER", "TOTAL", "HOURS", "connected", "1000", "10", "5", "3s"):
        assert word in shown, shown
    assert bool(screen.getvalue()) == (width >= 50), "a table where it fits"


def test_no_colour_is_asked_for_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    output.table(COLUMNS, [])
    assert capsys.readouterr().out == "CLUSTER  BATCH  CONNECTION  TOTAL  IDLE  OURS  PROC HOURS\n"
