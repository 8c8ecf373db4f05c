"""Shared directories that are none: homes that nodes do not see, full disks, places that nobody may write to."""

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import real_grid

from koalapy.testgrid import repair

sh = real_grid.sh
NODES = ("beta-c1", "beta-c2", "beta-c3", "beta-c4")


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Starts a koalad over beta alone, whose entry in the grid file is changed so."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with contextlib.ExitStack() as stack:

        def begin(testgrid: Any, **changed: Any) -> Any:
            koalad = real_grid.Koalad(testgrid, tmp_path, {"beta": changed}, retries={"submission": 1})
            stack.callback(koalad.stop)
            return koalad

        yield begin


def failed(koalad: Any) -> tuple[str, str]:
    """The code and the sentences of a job that could not be started."""
    job = koalad.end(koalad.submit(sh(1, "true")))
    assert job["state"] == "failed", job
    return job["reason_code"], str(koalad.grid.explain(job["id"]))


def test_a_home_that_the_nodes_do_not_share_is_reported_with_what_to_set(
    testgrid: Any, start: Callable[..., Any]
) -> None:
    koalad = start(testgrid, shared=None)
    koalad.idle()
    code, reported = failed(koalad)
    assert code == "not_shared", reported
    assert "shared:" in reported


@pytest.mark.slow
def test_a_directory_that_the_nodes_may_not_write_to_is_reported(testgrid: Any, start: Callable[..., Any]) -> None:
    """As where root is squashed, or the export is for reading."""
    koalad = start(testgrid)
    koalad.idle()
    with contextlib.ExitStack() as stack:
        for node in NODES:
            _mount(testgrid, node, "ro")
            stack.callback(_mount, testgrid, node, "rw")
        code, reported = failed(koalad)
    assert code == "not_shared", reported
    assert "cannot write to it" in reported


def test_a_full_disk_is_reported_before_anything_is_sent(testgrid: Any, start: Callable[..., Any]) -> None:
    koalad = start(testgrid)
    koalad.idle()
    repair.fill_disk(testgrid.containers)
    try:
        code, reported = failed(koalad)
    finally:
        repair.free_disk(testgrid.containers)
    assert code == "shared_full", reported
    assert koalad.end(koalad.submit(sh(1, "true")))["state"] == "done"


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["0755", "0000"])
def test_a_directory_of_somebody_else_is_reported_of_the_cluster(
    mode: str, testgrid: Any, start: Callable[..., Any]
) -> None:
    testgrid.containers.check("beta", ["install", "-d", "-m", mode, "/shared/locked"])
    try:
        koalad = start(testgrid, shared="/shared/locked/koala")
        [beta] = koalad.until(lambda: [each for each in koalad.grid.clusters() if each["reason"]])
    finally:
        testgrid.containers.check("beta", ["rm", "-rf", "/shared/locked"])
    assert "/shared/locked" in beta["reason"]
    assert "shared:" in beta["reason"]


def _mount(testgrid: Any, host: str, how: str) -> None:
    pid = str(testgrid.containers.all()[host].attrs["State"]["Pid"])
    subprocess.run(["nsenter", "-t", pid, "-m", "mount", "-o", f"remount,bind,{how}", "/shared"], check=True)
