"""The table of `koala pilots`."""

from types import TracebackType
from typing import Any, Self

import pytest
from typer.testing import CliRunner

from koalapy.cli import pilots
from koalapy.cli.main import app


class Koalad:
    """A koalad with one pilot, on which these jobs are."""

    def __init__(self, jobs: list[int]) -> None:
        self._jobs = jobs

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def pilots(self, *, ended: bool) -> list[dict[str, Any]]:
        return [
            {
                "name": "pilot~9", "state": "bound", "on": "delft", "processors": 8, "shared": False, "ended_at": None,
                "ends_at": None, "jobs": self._jobs, "reason": None,
            }
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("jobs", "shown"),
    [([*range(280, 411)], "280-410"), ([4], "4"), ([3, 4, 7, 9, 10, 11], "3-4, 7, 9-11"), ([], "-")],
)
def test_the_jobs_of_a_pilot_are_shown_in_ranges(monkeypatch: pytest.MonkeyPatch, jobs: list[int], shown: str) -> None:
    monkeypatch.setattr(pilots, "Grid", lambda grid: Koalad(jobs))
    answer = CliRunner().invoke(app, ["pilots"])
    assert answer.exit_code == 0, answer.output
    assert answer.stdout.splitlines()[1].endswith(f"  {shown}")
