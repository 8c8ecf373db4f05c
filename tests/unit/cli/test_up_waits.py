"""`koala up --wait`: a script goes on once all clusters are connected, and learns it if one is not."""

from collections.abc import Sequence
from typing import Any

import pytest
from typer.testing import CliRunner

from koalapy import __version__
from koalapy.cli import up as up_command
from koalapy.cli.main import app

DOWN = {"message": "delft cannot be reached.", "advice": "koalad tries again."}


class Koalad:
    """A koalad whose clusters have these states, each time that they are asked for."""

    def __init__(self, *looks: Sequence[str], state: str = "ready") -> None:
        self.looks, self.state, self.looked = list(looks), state, 0

    def __call__(self, _grid: object) -> "Koalad":
        return self

    def __enter__(self) -> "Koalad":
        return self

    def __exit__(self, *_: object) -> None: ...

    def up(self) -> bool:
        return True

    def status(self) -> Any:
        return {"grid": "das", "pid": 5, "state": self.state, "version": __version__, "grid_file_changed": False}

    def logins(self, **_: object) -> Any:
        states = self.looks[min(self.looked, len(self.looks) - 1)]
        self.looked += 1
        names = ("amsterdam", "delft")
        return [
            {"cluster": name, "state": state, "reason": DOWN if state == "unreachable" else None, "question": None}
            for name, state in zip(names, states, strict=True)
        ]


UP, CONNECTING, LOST = ("connected", "connected"), ("connected", "connecting"), ("connected", "unreachable")


def up(monkeypatch: pytest.MonkeyPatch, koalad: Koalad, *options: str) -> tuple[int, str]:
    monkeypatch.setattr(up_command, "Grid", koalad)
    monkeypatch.setattr(up_command, "log_in_where_asked", lambda *_: None)
    monkeypatch.setattr(up_command, "_POLL_S", 0.0)
    monkeypatch.setattr(up_command, "_FIRST_CONTACT_S", 0.0)
    answer = CliRunner().invoke(app, ["up", *options])
    return answer.exit_code, answer.stdout


def test_it_waits_for_clusters_that_cannot_be_reached_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    koalad = Koalad(CONNECTING, LOST, LOST, UP)
    assert up(monkeypatch, koalad, "--wait", "10m") == (0, "koalad of grid das is up (pid 5)\n")
    assert koalad.looked == 4


@pytest.mark.parametrize("state", [CONNECTING, LOST, ("login_required", "connected")])
def test_a_cluster_that_is_not_connected_in_time_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, state: tuple[str, str]
) -> None:
    status, printed = up(monkeypatch, Koalad(state), "--wait", "0s")
    assert status == 1
    assert "is not connected" in printed
    assert up(monkeypatch, Koalad(state), "--wait", "0s", "--json")[0] == 1
    assert up(monkeypatch, Koalad(state))[0] == 0, "without --wait all is as it was"


def test_a_koalad_that_stands_by_connects_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert up(monkeypatch, Koalad(UP, state="standing_by"), "--wait", "10m")[0] == 1
    assert up(monkeypatch, Koalad(UP, state="standing_by"))[0] == 0


def test_a_wait_that_is_no_duration_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert up(monkeypatch, Koalad(UP), "--wait", "soon")[0] == 2
