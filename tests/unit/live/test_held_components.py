"""A job of two components in the queues of two clusters, of which one stays busy past the barrier's time-out."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import live
import pytest
from scrapes import metrics_of, value

Document = dict[str, Any]
CLUSTERS = ("amsterdam", "delft")


@pytest.fixture(params=["2s"])
def koala(place: Path, request: pytest.FixtureRequest) -> Iterator[live.Koala]:
    """koalad with a short time-out of the barrier, and no wait for idle processors."""
    made = live.Koala(place, live.embedded(place, *CLUSTERS), queue_after="0s", barrier={"timeout": request.param})
    assert made("up").status == 0
    with made.client() as grid:
        made.until(lambda: all(each["idle"] == 4 for each in grid.clusters()))
    yield made
    made.stop()


def kinds(koala: live.Koala, job: int) -> list[str]:
    return [each["kind"] for each in koala("show", job, "--json").document["events"]]


def test_a_job_starts_though_one_cluster_is_free_long_after_the_other(
    koala: live.Koala, shell: Callable[..., Document]
) -> None:
    gate, lines = koala.work / "gate", koala.work / "lines"
    filler = koala.submit(shell(f"while [ ! -e {gate} ]; do sleep 0.1; done", 4, cluster="delft"))
    koala.until(lambda: koala.job(filler)["state"] == "running")
    components = [shell(f"echo {name} >>{lines}", 2, cluster=name) for name in CLUSTERS]
    waits = koala.submit(*components, when_busy="queue", barrier={"wait": "5m"})
    gives_back = koala.submit(*components, when_busy="queue", barrier={"wait": "3s"})
    koala.until(lambda: all("attempt_at_barrier" in kinds(koala, job) for job in (waits, gives_back)))
    koala.until(lambda: "component_given_back" in kinds(koala, gives_back))
    explained = koala("explain", gives_back)
    assert explained.status == 0
    assert "Component 0 is queued again at" in explained.out
    (held,) = koala("explain", waits, "--json").document["held"]
    assert (held["component"], held["cluster"], held["processors"]) == (0, "amsterdam", 2)
    metrics = metrics_of(koala)
    assert value(metrics, "koala_held_processors", cluster="amsterdam") == 2
    assert value(metrics, "koala_held_processors", cluster="delft") == 0
    assert not lines.exists(), "nothing starts alone"
    bounded = koala.write("bounded.yaml", {"components": [shell("true", 4, cluster="delft")], "when_busy": "wait"})
    expired = koala.end(koala("submit", bounded, "--expires", "1s", "--json").document["id"])
    assert expired["state"] == "failed"
    assert "It has not started within 1s." in (expired["reason"] or "")
    koala("submit", bounded, "--begin", "2001-01-01").refused(2, "2001-01-01", "has passed", "+2h")
    koala("submit", bounded, "--begin", "2h", "--expires", "1h").refused(2, "is not before its `expires`")
    later = koala("submit", bounded, "--begin", "+1s", "--json").document["id"]
    koala.until(lambda: "may_begin" in kinds(koala, later))
    assert koala("cancel", later).status == 0
    queued = {job: koala.job(job)["components"][1]["batch_id"] for job in (waits, gives_back)}

    gate.touch()
    for job, attempts in ((waits, [1, 1]), (gives_back, [2, 1])):
        ended = koala.end(job)
        assert (ended["state"], ended["submission_failures"], ended["completion_failures"]) == ("done", 0, 0)
        assert [each["attempt"] for each in ended["components"]] == attempts
        assert ended["components"][1]["batch_id"] == queued[job], "its place in the queue was kept"
        assert ended["held_processor_seconds"] > 4
    assert sorted(lines.read_text().split()) == ["amsterdam"] * 4 + ["delft"] * 4


@pytest.mark.parametrize("koala", ["2m"], indirect=True)
def test_a_sweep_runs_on_held_nodes_until_the_job_starts(koala: live.Koala, shell: Callable[..., Document]) -> None:
    gate, lines, numbers = koala.work / "gate", koala.work / "lines", koala.work / "numbers"
    wait = f"while [ ! -e {gate} ]; do sleep 0.1; done"
    koala.submit(shell(wait, 4, cluster="delft"))
    koala.until(lambda: koala.job(1)["state"] == "running")
    components = [shell(f"echo {name} >>{lines}", 4, cluster=name) for name in CLUSTERS]
    job = koala.submit(*components, when_busy="queue", barrier={"wait": "10m"})
    koala.until(lambda: "attempt_at_barrier" in kinds(koala, job))
    program = ["/bin/sh", "-c", f"echo {{x}} >>{numbers}; while [ ! -e {gate} ]; do sleep 0.05; done"]
    sweep = koala("sweep", "-t", "1m", "-p", "x=1:12", "--json", "--", *program).document["id"]
    koala.until(lambda: numbers.exists() and len(numbers.read_text().split()) == 4)
    assert "component_filled" in kinds(koala, job)
    assert not lines.exists()
    with koala.client() as grid:
        assert {each["name"] for each in grid.clusters()} == {*CLUSTERS, f"pilot~{job}"}
    koala.kill()
    assert koala("up").status == 0
    assert "Sweeps may use the processors of component 0" in koala("explain", job).out
    assert len(numbers.read_text().split()) == 4, "what runs there goes on"
    gate.touch()
    ended, swept = koala.end(job), koala.end(sweep)
    assert (ended["state"], ended["submission_failures"], swept["state"]) == ("done", 0, "done")
    assert [each["attempt"] for each in ended["components"]] == [1, 1]
    assert swept["sweep"] is not None
    assert swept["sweep"]["done"] == 12
    assert {*numbers.read_text().split()} == {str(number) for number in range(1, 13)}
    used = {row["job"]: row for row in koala("usage", "--by", "job", "--json").document["rows"]}
    assert 0 < used[job]["used"] <= used[job]["held"]
    with koala.client() as grid:
        koala.until(lambda: {each["name"] for each in grid.clusters()} == {*CLUSTERS})
