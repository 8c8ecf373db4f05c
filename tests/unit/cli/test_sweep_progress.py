"""The progress of a sweep as people read it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from koalapy.cli.runners import nodes_of
from koalapy.cli.sweep_progress import SweepBars, counted, progress_of, until

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def from_now(**time: float) -> str:
    return (NOW + timedelta(**time)).isoformat()


def runner(**fields: Any) -> Any:
    cluster = {"cluster": "alpha", "nodes": 3, "starting": 0, "suspended": 0}
    known = {"id": 7, "state": "running", "parameters": 1000, "done": 421, "failed": 0, "clusters": [cluster]}
    return {**known, "parameters_per_minute": None, "ends_at": None, **fields}


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "421 of 1000 done, 3 nodes"),
        ({"failed": 3}, "421 of 1000 done, 3 failed, 3 nodes"),
        ({"clusters": [{"nodes": 3, "suspended": 2}]}, "421 of 1000 done, 3 nodes, 2 of them suspended"),
        ({"state": "waiting", "done": 0}, "0 of 1000 done, waiting"),
        ({"parameters_per_minute": 239.7, "ends_at": from_now(minutes=5, seconds=1)}, None),
    ],
)
def test_the_progress_of_a_sweep_is_one_line(fields: dict[str, Any], text: str | None) -> None:
    expected = text or "421 of 1000 done, 3 nodes, 240 a minute, ends in 5m"
    assert progress_of(runner(**fields), NOW) == expected


def test_the_progress_of_collecting_output_is_shown() -> None:
    known: Any = {"parameters": 600, "parameters_done": 200, "bytes_moved": 2_000_000, "bytes_per_second": 1_500.0}
    unknown: Any = dict.fromkeys(known)
    finished = runner(done=1000, parameters_per_minute=240)
    assert progress_of(finished, NOW, [unknown]) == "1000 of 1000 done, fetching output files of parameters"
    expected = "1000 of 1000 done, fetching output files of parameters: 400 of 1200 done, 4 MB, 3 KB/s"
    assert progress_of(finished, NOW, [known, known, unknown]) == expected


def test_failed_parameters_are_counted_only_if_there_are_any() -> None:
    assert counted(runner(done=2, parameters=2, failed=0)) == "2 of 2 done"
    assert counted(runner(done=2, parameters=2, failed=1)) == "2 of 2 done, 1 failed"


@pytest.mark.parametrize(
    ("time", "text"),
    [({"seconds": 90.4}, "90s"), ({"minutes": 90, "seconds": 1}, "90m"), ({"hours": 3, "seconds": 9}, "3h")],
)
def test_remaining_time_is_shown_in_one_unit(time: dict[str, float], text: str) -> None:
    assert until(from_now(**time), NOW) == text


def test_an_overdue_end_has_no_remaining_time() -> None:
    assert until(from_now(seconds=-5), NOW) == "0s"


def test_starting_nodes_are_counted_separately() -> None:
    clusters = [
        {"cluster": "alpha", "nodes": 3, "starting": 1},
        {"cluster": "beta", "nodes": 0, "starting": 0},
        {"cluster": "gamma", "nodes": 2, "starting": 0},
    ]
    assert nodes_of(runner(clusters=clusters)) == "alpha:3+1, gamma:2"
    assert nodes_of(runner(clusters=[])) is None


def test_piped_output_repeats_no_equal_line(capsys: pytest.CaptureFixture[str]) -> None:
    with SweepBars() as bars:
        for done in (0, 1, 2):
            bars.show([runner(done=done)])
    assert capsys.readouterr().err == "sweep 7: 0 of 1000 done, 3 nodes\n"
