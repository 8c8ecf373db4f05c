"""The DCS experiment in the simulated world: its program's run time by clusters, its runs, and reproducible files."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from koalapy.cli.main import app
from koalapy.experiments.catalogue import DCS_BATCH
from koalapy.experiments.dcs.batch import BatchTask, cases, rows_of, tasks
from koalapy.experiments.dcs.das2 import Das2
from koalapy.experiments.dcs.workload import MEASURED, SYSTEMS, WIDE, Case, batch, runs
from koalapy.experiments.plan import Options, outcomes
from koalapy.model.units import SECOND

WORST_FIT = Case("144+4x64", 8, "unordered", "fcfs", "worst-fit")


def test_systems_are_the_papers() -> None:
    sizes = {name: [2 * nodes for nodes in clusters.values()] for name, clusters in SYSTEMS.items()}
    assert sizes == {"144+64": [144, 64], "144+3x64": [144, 64, 64, 64], "144+4x64": [144, 64, 64, 64, 64]}


def test_the_papers_experiments_come_first_and_ordered_jobs_are_placed_by_nobody() -> None:
    found = cases()
    assert found[:5] == [*MEASURED]
    assert len(found) == len(set(found))
    assert {case.placement for case in found if case.kind == "ordered"} == {"worst-fit"}


@pytest.mark.parametrize(("system", "clusters"), [("144+64", [2, 2]), ("144+3x64", [1] * 4), ("144+4x64", [1] * 4)])
def test_ordered_jobs_name_as_many_clusters_as_they_can(system: str, clusters: list[int]) -> None:
    for request in batch(Case(system, 8, "ordered", "fcfs", "worst-fit"), 1, 10):
        names = [component.cluster for component in request.components]
        assert sorted(map(names.count, dict.fromkeys(names))) == clusters


def test_half_of_the_jobs_of_a_mix_are_ordered() -> None:
    mixed = batch(Case("144+64", 8, "mixed", "fpfs", "worst-fit"), 1, 10)
    assert [request.components[0].cluster is None for request in mixed] == [False, True] * 5


def test_a_job_takes_longer_the_more_clusters_it_lies_on() -> None:
    spread = {}
    for placement in ("worst-fit", "cluster-minimisation"):
        case = WORST_FIT._replace(placement=placement)
        [job], _ = Das2(case, others=0.0, seed=1).play(batch(case, 1, 1))
        assert job.started_at is not None
        clusters = len({component.cluster for component in job.present})
        ended = [component.ended_at for component in job.present if component.ended_at is not None]
        spread[clusters] = (max(ended) - job.started_at) / SECOND
    assert sorted(spread) == [1, 4]
    assert spread[4] / spread[1] == pytest.approx(1 + 3 * WIDE, rel=0.05)
    assert spread[1] == pytest.approx(runs(WORST_FIT), rel=0.4)


def test_a_whole_batch_is_done_and_its_times_add_up() -> None:
    row, loads = BatchTask(WORST_FIT, others=10, number=1, seed=1, jobs=40).outcome()
    assert (row["jobs"], row["done"]) == (40, 40)
    assert float(row["run_s"]) + float(row["overhead_s"]) <= float(row["response_s"]) <= float(row["makespan_s"])
    assert max(load.ours + load.others for load in loads) <= 1
    assert max(load.ours for load in loads) > 0.7


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    """The files do not depend on the process. The paper's own experiments suffice to show it."""
    pytest.importorskip("matplotlib")
    from koalapy.experiments.dcs.outcome import figure
    from koalapy.experiments.files import write

    chosen = tasks(Options(sets=1, jobs=2))[: len(MEASURED)]

    def made(name: str, workers: int) -> list[bytes]:
        found = list(outcomes(chosen, workers))
        written = write(DCS_BATCH.name, rows_of(found), figure(chosen, found), tmp_path / name)
        assert [path.name for path in written] == ["dcs-batch.csv", "dcs-batch.png", "dcs-batch.svg"]
        return [path.read_bytes() for path in written]

    first = made("first", 1)
    assert made("second", 2) == first
    assert first[0].startswith(b"system,size,kind,queue,placement,others,set,jobs,done,response_s,")


def test_loads_that_leave_no_room_are_refused() -> None:
    assert {task.others for task in tasks(Options(loads=[0, 20]))} == {0, 20}
    refused = CliRunner().invoke(app, ["sim", "run", "dcs-batch", "--loads", "100"])
    assert refused.exit_code == 2
    assert "from 0 to 90" in refused.stderr
