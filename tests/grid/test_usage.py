"""The sums of `koala usage` equal what real batch systems account for, to the second.

Compared is each batch job's span, from its start to its end, times its processors: on delta with Slurm's database by
sacct, on alpha with what Slurm's controller knows (scontrol), on gamma with Grid Engine's qacct.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from real_grid import Koalad, sh


@pytest.fixture
def koalad(testgrid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Koalad]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    running = Koalad(testgrid, tmp_path, clusters={name: {} for name in ("alpha", "gamma", "delta")})
    try:
        running.idle()
        yield running
    finally:
        running.stop()


def ask(testgrid: Any, cluster: str, *command: str) -> str:
    status, output = testgrid.exec(cluster, ["bash", "-lc", " ".join(command)], user="koala")
    assert status == 0, output
    return str(output)


def slurm_database(testgrid: Any, batch_id: str) -> tuple[float, int]:
    line = ask(testgrid, "delta", f"sacct -n -X -P -j {batch_id} --format=ElapsedRaw,AllocCPUS,CPUTimeRAW").strip()
    elapsed, processors, product = map(int, line.split("|"))
    assert elapsed * processors == product
    return elapsed, processors


def slurm_controller(testgrid: Any, batch_id: str) -> tuple[float, int]:
    shown = ask(testgrid, "alpha", f"scontrol show job {batch_id}")
    said = dict(re.findall(r"(StartTime|EndTime|NumCPUs)=(\S+)", shown))
    span = datetime.fromisoformat(said["EndTime"]) - datetime.fromisoformat(said["StartTime"])
    return span.total_seconds(), int(said["NumCPUs"])


def grid_engine(testgrid: Any, batch_id: str) -> tuple[float, int]:
    said = dict(
        re.findall(r"^(start_time|end_time|slots) +(.*?) *$", ask(testgrid, "gamma", f"qacct -j {batch_id}"), re.M)
    )
    start, end = (datetime.strptime(said[name], "%a %b %d %H:%M:%S %Y") for name in ("start_time", "end_time"))
    return (end - start).total_seconds(), int(said["slots"])


ACCOUNTS = {"alpha": slurm_controller, "gamma": grid_engine, "delta": slurm_database}


def test_usage_is_what_the_batch_systems_account_for(koalad: Koalad, testgrid: Any) -> None:
    """One job over three clusters, after whose end koalad is killed: the accounting is asked all the same."""
    script = "sleep 4"
    job = koalad.submit(
        *(sh(processors, script, cluster=name) for name, processors in (("alpha", 4), ("gamma", 2), ("delta", 2)))
    )
    done = koalad.end(job)
    assert done["state"] == "done", done["reason"]
    koalad.kill()
    koalad.start()
    koalad.until(lambda: koalad.grid.usage()["total"]["estimated"] == 0)
    used = {row["cluster"]: row for row in koalad.grid.usage("cluster")["rows"]}
    for component in done["components"]:
        cluster = component["cluster"]
        assert cluster is not None
        span, processors = ACCOUNTS[cluster](testgrid, str(component["batch_id"]))
        assert used[cluster]["total"] == span * processors, cluster
        assert processors == component["processors"]
        assert used[cluster]["held"] + used[cluster]["run"] == pytest.approx(used[cluster]["total"])
        assert used[cluster]["run"] > 2 * processors
        assert used[cluster]["attempts"] == 1
    assert koalad.grid.usage("job")["rows"][0]["job"] == job
