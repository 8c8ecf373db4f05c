"""A group of two clusters, of real Slurm and real Grid Engine, whose first choice is refused by its batch system."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from real_grid import Koalad

pytest.importorskip("classad2")

ATTRIBUTES = {"alpha": 3000, "beta": 2000, "gamma": 1000}


@pytest.fixture
def koalad(testgrid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Koalad]:
    """alpha is the best cluster, and Slurm refuses each batch job there, for a feature that no node has."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    clusters: dict[str, Any] = {name: {"attributes": {"AverageSI": rank}} for name, rank in ATTRIBUTES.items()}
    clusters["alpha"]["native"] = ["--constraint=no-such-feature"]
    running = Koalad(testgrid, tmp_path, clusters=clusters)
    try:
        running.idle()
        yield running
    finally:
        running.stop()


def test_the_next_group_is_taken_when_the_first_choice_is_refused(koalad: Koalad) -> None:
    """20 processors: alpha alone first, then beta and gamma together; real programs run on both."""
    component = {
        "processors": 20,
        "executable": "sh",
        "arguments": ["-c", "echo $KOALA_COMPONENT $KOALA_SIZE"],
        "requirements": 'OpSys == "Linux" && TotalCPUs >= 16',
        "rank": "AverageSI",
        "spread": True,
        "walltime": "5m",
    }
    listed = koalad.grid.match({"components": [component]}, directory=koalad.directory)["components"][0]["choices"]
    assert [[each["cluster"] for each in choice["clusters"]] for choice in listed] == [["alpha"], ["beta", "gamma"]]
    job = koalad.end(koalad.submit(component))
    assert job["state"] == "done", job
    assert [(each["cluster"], each["processors"]) for each in job["components"]] == [("beta", 16), ("gamma", 4)]
    assert job["submission_failures"] == 0
    refused = job["choices"][0]["refused"]
    assert refused is not None
    assert refused["message"].startswith("alpha: ")
    output = b"".join(koalad.grid.output(job["id"])).decode().split("\n")
    assert sorted(filter(None, output)) == ["0 20"] * 16 + ["1 20"] * 4
