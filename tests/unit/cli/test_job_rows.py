"""The rows of `koala jobs`."""

from datetime import datetime
from types import TracebackType
from typing import Any, Self

import pytest
from engine_play import Play
from engine_play import component as wish
from typer.testing import CliRunner

from koalapy.cli import jobs
from koalapy.cli.jobs import run_time
from koalapy.cli.main import app
from koalapy.views.jobs import job as document_of

START = "2026-11-29T12:00:00.000000Z"
NOW = datetime.fromisoformat("2026-11-29T12:10:00Z")


def at(minute: int) -> str:
    return f"2026-11-29T12:{minute:02}:00.000000Z"


def component(started: bool, ended_at: str | None) -> dict[str, Any]:
    return {"started_at": START if started else None, "ended_at": ended_at}


@pytest.mark.parametrize(
    ("components", "finished_at", "shown"),
    [
        pytest.param([component(True, at(1)), component(True, at(2))], at(5), "2m00s", id="recorded late"),
        pytest.param([component(True, at(1))], None, "1m00s", id="its output is being fetched"),
        pytest.param([component(True, at(1)), component(True, None)], None, "10m00s", id="one runs"),
        pytest.param([component(True, at(1)), component(True, None)], at(5), "5m00s", id="one was lost"),
        pytest.param([component(True, at(1)), component(False, None)], at(5), "1m00s", id="one was left out"),
        pytest.param([], at(5), "5m00s", id="flow"),
        pytest.param([], None, "10m00s", id="sweep that runs"),
    ],
)
def test_the_run_time_ends_with_the_last_component(
    components: list[dict[str, Any]], finished_at: str | None, shown: str
) -> None:
    job: Any = {"started_at": START, "finished_at": finished_at, "components": components}
    assert run_time(job, NOW) == shown


def test_a_job_that_has_not_started_has_no_run_time() -> None:
    job: Any = {"started_at": None, "finished_at": None, "components": []}
    assert run_time(job, NOW) is None


class Koalad:
    """A koalad with these jobs."""

    def __init__(self, found: list[Any]) -> None:
        self._found = found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def jobs(self, states: list[str], labels: list[str], parts: bool) -> list[Any]:
        return self._found

    def unreadable(self) -> dict[str, Any]:
        return {"records": []}


@pytest.mark.parametrize(("length", "shown"), [(128, f"{'x' * 29}…"), (30, "x" * 30)])
def test_a_long_name_is_cut(play: Play, monkeypatch: pytest.MonkeyPatch, length: int, shown: str) -> None:
    job = play.submit(wish(4, "alpha"))
    document = {**document_of(play.job(job)), "name": "x" * length}
    monkeypatch.setattr(jobs, "Grid", lambda grid: Koalad([document]))
    answer = CliRunner().invoke(app, ["jobs"])
    assert answer.exit_code == 0, answer.output
    assert answer.stdout.splitlines()[1].split()[1] == shown
