"""A real koalad beside a cluster that lies: its honest cluster's jobs end as they did, and its store loads again."""

import json
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hostile_kcm
import live
import pytest
from hostile_kcm import event, welcome

Document = dict[str, Any]
TIMES = 200  # that each of the lies is sent
MEASURED = {
    "type": "measured", "measured_at": 5, "total": 8, "idle": 0, "ours": 0, "others": 8, "waiting_local": 0,
    "allocated": [], "pending": [], "free_nodes": [],
}  # fmt: skip


def lies() -> list[Document]:
    """Send lies about jobs 1 and 2, which are on another cluster."""
    failure = {"code": "down", "whose": "transient", "message": "It does not answer."}
    result = [1, 66, "exited", "n1", 0, 5, 5, 0, 0, 0, 0]
    bodies: list[Document] = []
    for tag in ("{1}", "{2}"):
        of_it: Document = {"tag": tag, "batch_id": "666"}
        bodies += [
            {"type": "report", **of_it, "phase": "ended", "nodes": [], "ending": "exited", "exit_status": 66},
            {"type": "batch_status", **of_it, "at": 5, "state": "ended", "exit_status": 66},
            {"type": "cleaned_up", "tag": tag, "at": 5},
            {"type": "stuck", "tag": tag, "at": 5, "error": failure},
            {"type": "parameters_ended", "sweep": 1, "tag": tag, "results": [result]},
            {"type": "launcher_suspected", "tag": tag, "host": "n1"},
        ]
    return [event(number, **body) for number, body in enumerate(bodies * TIMES, 2)]


@pytest.fixture
def koala(place: Path) -> Iterator[Any]:
    """One honest cluster, and one whose program reports at first that it is well."""
    sound = [welcome(newest_number=0), event(1, **MEASURED)]
    argv = hostile_kcm.command(place / "script.json", sound)
    good = live.embedded(place)["amsterdam"]
    evil = {"batch": "slurm", "connect": f"command:{shlex.join(argv)}"}
    made = live.Koala(place, {"amsterdam": good, "evil": evil})
    yield made
    made.stop()


def cluster(koala: Any, name: str) -> Document:
    with koala.client() as grid:
        return next(each for each in grid.clusters() if each["name"] == name)


def test_false_reports_of_a_cluster_about_anothers_jobs_change_nothing(
    koala: Any, place: Path, shell: Callable[..., Document]
) -> None:
    gate = koala.work / "gate"
    assert koala("up").status == 0
    waits = f"while [ ! -e {gate} ]; do sleep 0.1; done"
    jobs = [koala.submit(shell(f"{waits}; exit {status}", cluster="amsterdam")) for status in (0, 3)]
    assert jobs == [1, 2]
    koala.until(lambda: {koala.job(job)["state"] for job in jobs} == {"running"})
    malformed = event(len(lies()) + 2, **{**MEASURED, "idle": "many"})
    koala.until(lambda: cluster(koala, "evil")["total"] == 8)
    hostile_kcm.deliver(place / "script.json", [welcome(newest_number=0), *lies(), malformed])
    koala.until(lambda: cluster(koala, "evil")["foreign_reports"] >= len(lies()))
    koala.until(lambda: "measured.idle" in str(cluster(koala, "evil")))
    assert {koala.job(job)["state"] for job in jobs} == {"running"}
    assert koala("status").status == 0
    gate.touch()
    ended = [koala.end(job) for job in jobs]
    assert [each["state"] for each in ended] == ["done", "failed"]
    assert [each["components"][0]["exit_status"] for each in ended] == [0, 3]
    log = (place / "state" / "koala" / "live" / "koalad.log").read_text().splitlines()
    reported = [line for line in map(json.loads, log) if line["event"] == "foreign_reports"]
    assert [line["cluster"] for line in reported] == ["evil"] * len(reported)
    assert 0 < len(reported) < 10
    assert koala("down").status == 0
    assert koala("up").status == 0
    assert sorted(koala.ids()) == jobs
    assert [koala.job(job)["state"] for job in jobs] == ["done", "failed"]
