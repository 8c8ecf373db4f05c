"""`Grid` does all that `koala` does, against a real koalad."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import live
import pytest

from koalapy import Grid
from koalapy.client.calls import NotReachable
from koalapy.client.daemon import wait_for_end
from koalapy.model.errors import RequestError, TransientError

Document = dict[str, Any]


@pytest.fixture
def grid(koala: Any) -> Iterator[Grid]:
    koala.known()
    with koala.client() as made:
        yield made
    koala.clear()


def test_a_job_from_its_submission_to_its_output(
    grid: Grid, koala: Any, shell: Callable[..., Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(koala.work)
    (koala.work / "given").write_text("given\n")
    job = {
        "name": "mine",
        "components": [shell("cat given; cp given made")],
        "stage_in": ["given"],
        "stage_out": ["made"],
    }
    number = grid.submit(job)
    found = grid.wait([number], live.PATIENCE_S)[0]
    assert (found["id"], found["name"], found["state"]) == (number, "mine", "done"), found["reason"]
    assert b"".join(grid.output(number)) == b"given\n"
    assert (koala.work / "made").read_text() == "given\n"
    assert grid.jobs(ids=[number]) == [found]
    assert found in grid.jobs(["done"])
    shown = grid.show(number)
    assert shown["schema"] == "koala.job/1"
    assert shown["job"] == found
    assert grid.explain(number)["summary"] == "It is done."


def test_the_examples_of_the_docs_run(
    grid: Grid, koala: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in koala.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(koala.work)
    page = (Path(__file__).parents[3] / "docs" / "python.md").read_text()
    names: dict[str, Any] = {}
    said = []
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(block, names)
        said.append(capsys.readouterr().out.splitlines())
    hello, listed, refused, cancelled, swept = said
    assert hello[0] == "done"
    assert len(hello) == 3
    assert any(line.split()[1:3] == ["done", "2"] for line in listed)
    assert refused[0].startswith("wrong_value ")
    assert refused[1:] == ["no_such_job"]
    assert cancelled == ["cancelled"]
    assert sorted(swept) == [f"{number} {{'x': '{number}'}} 0" for number in (1, 2, 3)]


def test_a_job_file_with_other_values(grid: Grid, koala: Any, shell: Callable[..., Document]) -> None:
    file = koala.write("mine.yaml", {"components": [shell("echo here")]})
    for path in (file, str(file)):
        number = grid.submit(path, overrides={"name": "other"})
        assert grid.wait([number])[0]["name"] == "other"


def test_many_jobs_by_one_call(grid: Grid, koala: Any, shell: Callable[..., Document]) -> None:
    file = koala.write("mine.yaml", {"components": [shell("exit 0")]})
    long = {"name": "long", "components": [shell("sleep 1000")]}
    first, second, third = grid.submit_many([file, long, long], directory=koala.work, keys=["one of", "these", "keys"])
    assert grid.submit_many([long], keys=["these"]) == [second]
    assert grid.submit_many([]) == []
    assert grid.wait([first])[0]["name"] == "mine"
    changed = grid.cancel_many([third, first, second])
    assert {job["id"] for job in changed["jobs"]} == {second, third}
    assert [refused["id"] for refused in changed["refused"]] == [first]
    assert {job["state"] for job in grid.wait([second, third])} == {"cancelled"}


def test_the_same_key_is_the_same_job(grid: Grid, shell: Callable[..., Document]) -> None:
    job = {"components": [shell("true")]}
    first = grid.submit(job, key="a key of mine")
    assert grid.submit(job, key="a key of mine") == first
    assert grid.submit(job) != first
    grid.wait([first])
    assert grid.submit(job, key="a key of mine") == first  # also when it is over


def test_hold_release_cancel(grid: Grid, koala: Any, shell: Callable[..., Document]) -> None:
    blocker = grid.submit({"components": [shell("sleep 1000", 4, cluster="delft")]})
    koala.until(lambda: grid.jobs(ids=[blocker])[0]["state"] == "running")
    job = grid.submit({"components": [shell("true", 4, cluster="delft")], "when_busy": "wait"})
    assert grid.hold(job)["state"] == "held"
    assert grid.release(job)["state"] in ("waiting", "claiming")
    with pytest.raises(RequestError) as refused:
        grid.release(job)
    assert refused.value.reason.code == "wrong_state"
    assert grid.cancel(job, force=True)["state"] in ("stopping", "cancelled")
    assert grid.cancel(blocker)["state"] in ("stopping", "cancelled")
    assert [each["state"] for each in grid.wait([job, blocker], live.PATIENCE_S)] == ["cancelled"] * 2
    with pytest.raises(RequestError, match="is final already"):
        grid.cancel(job)


def test_wait_for_none_for_many_and_for_too_long(grid: Grid, shell: Callable[..., Document]) -> None:
    assert grid.wait([]) == []
    job = grid.submit({"components": [shell("sleep 1000")]})
    with pytest.raises(TimeoutError, match=f"Job {job} is not final yet"):
        grid.wait([job], 0.1)
    with pytest.raises(RequestError, match="There is no job 999999"):
        grid.wait([999999])
    over = grid.submit({"components": [shell("true")]})
    many = grid.wait([over] * 2500)
    assert {each["id"] for each in many} == {over}
    assert len(many) == 2500
    assert [each["id"] for each in grid.jobs(ids=range(1, 5000))] == [each["id"] for each in grid.jobs()]


def test_clusters_and_status(grid: Grid) -> None:
    assert [each["name"] for each in grid.clusters()] == ["amsterdam", "delft", "leiden"]
    assert grid.status()["state"] == "ready"
    assert grid.is_up()
    assert not grid.up()


def test_up_and_down(small: Any, monkeypatch: pytest.MonkeyPatch, shell: Callable[..., Document]) -> None:
    for name in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.setenv(name, small.environment[name])
    with Grid(small.grid_file) as grid:
        with pytest.raises(NotReachable) as refused:
            grid.status()
        assert refused.value.reason.message == "koalad of grid live is not running."
        assert isinstance(refused.value, TransientError)
        assert grid.up()
        pid = grid.status()["pid"]
        job = grid.submit({"components": [shell("sleep 1000")]})
        grid.down(cancel=True)
        assert wait_for_end(pid, 0)
        assert not grid.is_up()
        assert grid.up()
        assert grid.jobs(ids=[job])[0]["state"] == "cancelled"
        grid.down()
    small.until(lambda: not small.processes())


def test_bytes_that_are_no_utf8_are_refused_with_where_they_are(grid: Grid, shell: Callable[..., Document]) -> None:
    with pytest.raises(RequestError) as refused:
        grid.submit({"components": [shell("true") | {"arguments": [os.fsdecode(b"caf\xe9")]}]})
    assert refused.value.reason.code == "not_utf8"
    assert "caf" in refused.value.reason.message
