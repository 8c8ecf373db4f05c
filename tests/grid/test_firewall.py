"""Firewalls that close while jobs run: between koalad and a head, and between a head and its nodes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from real_grid import Koalad, sh

from koalapy.testgrid import firewall

ONCE = "echo once >>$HOME/ran-$KOALA_JOB_ID; while [ ! -e $HOME/go ]; do sleep 0.1; done; echo done; touch $HOME/over"
HOWS = ["REJECT", pytest.param("DROP", marks=pytest.mark.slow)]
Begin = Callable[[str], Koalad]


@pytest.fixture
def koalad(testgrid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Begin]:
    """Over one cluster. Whatever became of the test, everything passes again before it is ended."""
    begun: list[Koalad] = []

    def begin(cluster: str) -> Koalad:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        begun.append(Koalad(testgrid, tmp_path, {cluster: {"poll": "1s"}}))
        return begun[-1]

    yield begin
    firewall.open_all(testgrid.containers)
    for each in begun:
        each.stop()


def running(koalad: Koalad, script: str) -> int:
    """A job that has reported something already."""
    job = koalad.submit(sh(1, script))
    koalad.until(lambda: koalad.job(job)["started_at"])
    return job


@pytest.mark.parametrize("how", HOWS)
def test_a_job_ends_behind_a_closed_firewall_and_is_reported_when_it_opens(
    koalad: Begin, testgrid: Any, how: firewall.How
) -> None:
    live = koalad("gamma")
    job = running(live, ONCE)
    firewall.block(testgrid.containers, "gamma", [firewall.KOALAD], how)
    live.until(lambda: live.grid.clusters()[0]["connection"] != "up")
    testgrid.shell("gamma", "touch go")
    testgrid.eventually(lambda: testgrid.exec("gamma", ["test", "-e", "over"]).exit_status == 0, "it ended")
    assert live.job(job)["state"] == "running"
    firewall.open_all(testgrid.containers)
    ended = live.end(job)
    assert (ended["state"], ended["completion_failures"]) == ("done", 0), ended
    assert b"".join(live.grid.output(job)).endswith(b"done\n")
    assert testgrid.shell("gamma", f"cat ran-{job}; rm ran-{job} go over") == "once\n"


@pytest.mark.slow
@pytest.mark.parametrize("how", HOWS)
def test_a_job_on_a_node_that_its_head_cannot_reach_is_reported_by_its_record(
    koalad: Begin, testgrid: Any, how: firewall.How
) -> None:
    live = koalad("alpha")
    job = running(live, ONCE)
    (node,) = live.job(job)["components"][0]["hosts"]
    firewall.block(testgrid.containers, node, ["alpha"], how)
    testgrid.shell("alpha", "touch go")
    ended = live.end(job)
    assert (ended["state"], ended["completion_failures"]) == ("done", 0), ended
    firewall.open_all(testgrid.containers)
    assert testgrid.shell("alpha", f"cat ran-{job}; rm ran-{job} go over") == "once\n"
    live.until(lambda: not live.batch_jobs())
