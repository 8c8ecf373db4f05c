"""How far a sweep is, in a person's words."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from koalapy.cli.runners import nodes_of
from koalapy.cli.sweep_progress import SweepBars, counted, progress_of, until

Document = dict[str, Any]


NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def ahead(**time: float) -> str:
    return (NOW + timedelta(**time)).isoformat()


def runner(**fields: Any) -> Document:
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
        ({"parameters_per_minute": 239.7, "ends_at": ahead(minutes=5, seconds=1)}, None),
    ],
)
def test_a_sweep_in_a_line(fields: Document, text: str | None) -> None:
    expected = text or "421 of 1000 done, 3 nodes, 240 a minute, ends in 5m"
    assert progress_of(runner(**fields), NOW) == expected


def test_of_what_is_brought_the_share_is_told() -> None:
    known = {"parameters": 600, "parameters_done": 200, "bytes_moved": 2_000_000, "bytes_per_second": 1_500.0}
    unknown = dict.fromkeys(known)
    over = runner(done=1000, parameters_per_minute=240)
    assert progress_of(over, NOW, [unknown]) == "1000 of 1000 done, bringing what they left"
    told = "1000 of 1000 done, bringing what they left: that of 400 of 1200 is here, 4 MB, 3 KB/s"
    assert progress_of(over, NOW, [known, known, unknown]) == told


def test_what_failed_is_counted_only_where_something_did() -> None:
    assert counted({"done": 2, "parameters": 2, "failed": 0}) == "2 of 2 done"
    assert counted({"done": 2, "parameters": 2, "failed": 1}) == "2 of 2 done, 1 failed"


@pytest.mark.parametrize(
    ("time", "text"),
    [({"seconds": 90.4}, "90s"), ({"minutes": 90, "seconds": 1}, "90m"), ({"hours": 3, "seconds": 9}, "3h")],
)
def test_time_to_come_is_told_in_one_unit(time: dict[str, float], text: str) -> None:
    assert until(ahead(**time), NOW) == text


def test_an_end_that_should_have_come_is_no_time_away() -> None:
    assert until(ahead(seconds=-5), NOW) == "0s"


def test_nodes_on_their_way_are_told_apart() -> None:
    clusters = [
        {"cluster": "alpha", "nodes": 3, "starting": 1},
        {"cluster": "beta", "nodes": 0, "starting": 0},
        {"cluster": "gamma", "nodes": 2, "starting": 0},
    ]
    assert nodes_of(runner(clusters=clusters)) == "alpha:3+1, gamma:2"
    assert nodes_of(runner(clusters=[])) is None


def test_piped_the_same_is_not_said_again_and_again(capsys: pytest.CaptureFixture[str]) -> None:
    with SweepBars() as bars:
        for done in (0, 1, 2):
            bars.show([runner(done=done)])
    assert capsys.readouterr().err == "sweep 7: 0 of 1000 done, 3 nodes\n"
