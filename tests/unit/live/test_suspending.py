"""Jobs on a pilot that are suspended for one of priority 0: real programs, which go on and get their sums right."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import live
import pytest

STEPS = 60
# Adds the numbers up to STEPS, and leaves each in a file. A second process, in a session of its own, does likewise.
COUNT = f"""
count() {{
    i=0; sum=0
    while [ $i -lt {STEPS} ]; do i=$((i + 1)); sum=$((sum + i)); echo $i >> "$1"; sleep 0.05; done
    echo $sum > "$1.sum"
}}
if [ -n "$SECOND" ]; then count "$SECOND"; exit; fi
SECOND={{place}}/second setsid -w sh "$0" & count {{place}}/first; wait; cat {{place}}/first.sum {{place}}/second.sum
"""


@pytest.fixture(scope="module")
def grid() -> Iterator[Any]:
    """A grid of one cluster with four processors, on which a pilot holds three; its jobs may be suspended."""
    with tempfile.TemporaryDirectory(prefix="ks", dir="/tmp") as root:
        place = Path(root)
        cluster = {"batch": "local", "connect": "local:", "poll": "200ms", "max_age": "1m", "slots": 4}
        koala = live.Koala(
            place, {"delft": cluster | {"shared": str(place / "delft")}},
            scheduling={"preempt": {"how": "suspend"}}, queue_after="1h",
        )  # fmt: skip
        assert koala("up").status == 0
        opened = koala("pilots", "open", "delft", "-n", "3", "--walltime", "30m", "--json")
        assert opened.status == 0, opened
        koala.pilot = opened.document["pilot"]["name"]  # type: ignore[attr-defined]
        yield koala
        koala.stop()


def place_of(grid: Any, name: str) -> Path:
    place = Path(grid.root / name)
    place.mkdir()
    (place / "program").write_text(COUNT.replace("{place}", str(place)))
    return place


def counting(grid: Any, place: Path) -> int:
    """A job of the whole pilot that counts."""
    job = grid.submit(live.sh(f"exec sh {place}/program", 3, cluster=grid.pilot, launch="once", walltime="10m"))
    grid.until(lambda: all(each > 3 for each in progress(place)))
    return int(job)


def urgent(grid: Any, place: Path) -> int:
    """A job of priority 0 that runs until a file is there."""
    wait = f"until test -e {place}/enough; do sleep 0.05; done"
    job = grid.submit(live.sh(wait, 2, cluster=grid.pilot, launch="once", walltime="10m"), priority=0)
    grid.until(lambda: grid.job(job)["state"] == "running")
    return int(job)


def progress(place: Path) -> list[int]:
    files = [place / "first", place / "second"]
    return [len(each.read_text().split()) if each.exists() else 0 for each in files]


def test_a_suspended_job_goes_on_and_its_result_is_right_also_over_a_killed_koalad(grid: Any) -> None:
    place = place_of(grid, "over")
    job = counting(grid, place)
    other = urgent(grid, place)
    grid.until(lambda: grid.job(job)["components"][0]["state"] == "suspended")
    before = progress(place)
    assert all(each < STEPS for each in before)
    time.sleep(0.5)
    grid.kill()
    assert grid("up").status == 0
    grid.until(lambda: grid.job(job)["components"][0]["state"] == "suspended")
    assert progress(place) == before
    found = grid.job(job)
    assert (found["state"], found["suspended_for"]) == ("running", other)
    (line,) = [line for line in grid("jobs").out.splitlines() if line.startswith(f"{job} ")]
    assert f"for job {other}" in line
    assert " suspended " in line
    assert f"suspended for job {other}" in grid("explain", job).out
    assert f"job {job} is suspended for it" in grid("show", other).out
    (place / "enough").touch()
    assert grid.end(other)["state"] == "done"
    assert grid.end(job)["state"] == "done"
    assert progress(place) == [STEPS, STEPS]
    assert grid("logs", job).out.split() == [str(STEPS * (STEPS + 1) // 2)] * 2
    assert f"Job {other} needs its processors no more" in grid("show", job).out
    assert [each["attempt"] for each in grid.job(job)["components"]] == [1]


@pytest.mark.slow
def test_a_suspended_job_can_be_cancelled(grid: Any) -> None:
    place = place_of(grid, "cancelled")
    job = counting(grid, place)
    other = urgent(grid, place)
    grid.until(lambda: grid.job(job)["components"][0]["state"] == "suspended")
    assert grid("cancel", job).status == 0
    assert grid.end(job)["state"] == "cancelled"
    assert grid.job(other)["state"] == "running"
    (place / "enough").touch()
    assert grid.end(other)["state"] == "done"
    assert all(each < STEPS for each in progress(place))
