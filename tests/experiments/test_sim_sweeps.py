"""Sweeps in the simulated world, end to end: fair shares, and no parameter lost or done twice."""

import pytest

from koalapy.experiments.plan import Options, Row
from koalapy.experiments.sweeps import fairness, makespan
from koalapy.experiments.sweeps.grid import GridPlan, SweepGrid
from koalapy.experiments.sweeps.workload import GridJob, wblock, wburst
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration
from koalapy.policies.fairshare import EQUIPARTITION_ALL, EQUIPARTITION_PERSITE
from koalapy.policies.shares import FairShare

NODES = {"vu": 6, "delft": 3}
SHARES = {"vu": 0.5, "delft": 0.0}


def grid(policy: FairShare = EQUIPARTITION_PERSITE, parameters: int = 60, users: int = 3, runs: int = 20) -> SweepGrid:
    durations = (Duration(runs * SECOND),) * parameters
    return SweepGrid(
        GridPlan(nodes=NODES, local=dict.fromkeys(NODES, 0), fairshare=policy, durations=durations, users=users), 1
    )


def done(grid: SweepGrid, sweep: int) -> list[int]:
    return sorted(each.number for each in grid.program_log.parameters.of(sweep) if each.done)


@pytest.mark.parametrize("policy", [EQUIPARTITION_ALL, EQUIPARTITION_PERSITE], ids=["all", "persite"])
def test_two_sweeps_share_the_nodes_and_every_parameter_is_done_once(policy: FairShare) -> None:
    played = grid(policy)
    played.play((), Duration(12 * MINUTE))
    assert len(played.sweeps) == 3
    for sweep in played.sweeps:
        assert done(played, sweep) == list(range(1, 61))
        assert len(played.program_log.parameters.of(sweep)) == 60
    assert all(cluster.quiescent for cluster in played.clusters.values())


def test_a_grid_job_gets_the_nodes_of_sweeps_at_once() -> None:
    played = grid(runs=600)
    job = GridJob(Duration(3 * MINUTE), "vu", 6, Duration(MINUTE))
    played.play([job], Duration(6 * MINUTE))
    runs = [run for tag in played.program_log.tags() for run in played.program_log.runs(tag) if len(run.nodes) == 6]
    [run] = runs
    submitted = played.began + MINUTE + job.at
    assert run.began - submitted < 60 * SECOND
    broken_off = [each for each in played.program_log.parameters.tries if each.ended is not None and not each.done]
    assert len(broken_off) == 6


def test_an_interrupted_parameter_runs_again() -> None:
    played = grid(parameters=9, users=1, runs=60)
    played.play([GridJob(Duration(150 * SECOND), "vu", 4, Duration(MINUTE))], Duration(12 * MINUTE))
    [sweep] = played.sweeps
    assert done(played, sweep) == list(range(1, 10))
    assert len(played.program_log.parameters.of(sweep)) >= 9


@pytest.mark.parametrize("workload", [wblock, wburst])
def test_a_workload_is_reproducible_and_has_the_wanted_load(workload: object) -> None:
    assert workload in (wblock, wburst)
    make = wblock if workload is wblock else wburst
    jobs = make(7, NODES, SHARES, HOUR)
    assert jobs == make(7, NODES, SHARES, HOUR) != make(8, NODES, SHARES, HOUR)
    assert {job.cluster for job in jobs} == {"vu"}
    assert max(job.nodes for job in jobs) <= 3


def test_a_block_load_alternates_every_ten_minutes() -> None:
    """The load is on for ten minutes and off for ten. While it is on, about the wanted nodes are busy."""
    nodes = {"vu": 100}
    jobs = wblock(1, nodes, {"vu": 0.4}, HOUR)
    for minute, wanted in ((8, 40), (12, 40), (17, 0), (28, 40), (37, 0)):
        at = minute * MINUTE
        assert sum(job.nodes for job in jobs if job.at <= at < job.at + job.lasts) == wanted


def test_a_run_reports_for_each_user_what_was_done_held_and_preempted(monkeypatch: pytest.MonkeyPatch) -> None:
    """This is the fairness experiment on few nodes, until its first block has begun."""
    monkeypatch.setattr(fairness, "DAS3", {"vu": 15, "delft": 10})
    monkeypatch.setattr(fairness, "SHARES", {"vu": 0.4, "delft": 0.0})
    monkeypatch.setattr(fairness, "LASTS", (Duration(20 * SECOND), Duration(40 * SECOND)))
    tasks = fairness.tasks(1, 1, Duration(7 * MINUTE))
    blocks = [each.outcome() for each in tasks if each.workload == "WBlock"]
    assert [row["policy"] for row in fairness.rows_of(blocks)] == [name for name in fairness.POLICIES for _ in range(3)]
    for outcome in blocks:
        assert [row["user"] for row in outcome.rows] == [1, 2, 3]
        assert all(float(row["done"]) > 0 and float(row["nodes"]) > 1 for row in outcome.rows)
        assert sum(float(row["preemptions"]) for row in outcome.rows) > 0
        assert all(len(held) == 21 and max(held) == 5 for held in outcome.held.values())
    assert blocks[0].held != blocks[1].held


@pytest.mark.parametrize("by", ["Launchers", "jobs"])
def test_a_makespan_is_that_of_all_parameters_and_the_same_in_each_run(by: str) -> None:
    """Seventy parameters of a minute on 32 nodes take three rounds at least."""
    row = makespan.MakespanTask(by, 70, 1, seed=1).outcome()
    assert row == makespan.MakespanTask(by, 70, 1, seed=1).outcome()
    assert row["ideal_s"] == 180
    assert 1 < float(row["of_ideal"]) < 1.5


def test_launchers_waste_less_between_parameters_than_jobs_do() -> None:
    launchers, jobs = (float(makespan.MakespanTask(by, 160, 1, seed=1).outcome()["makespan_s"]) for by in makespan.BY)
    assert launchers < jobs


def test_the_makespans_have_a_row_for_each_run_and_a_figure_with_the_ideal() -> None:
    plan = makespan.CS_MAKESPAN.plan(Options(sets=2))
    assert len(plan.tasks) == 2 * 2 * 8
    rows: list[Row] = [
        {"by": by, "parameters": 32, "set": number, "makespan_s": span, "ideal_s": 60, "of_ideal": span / 60}
        for by, spans in (("Launchers", (63, 69)), ("jobs", (66, 78)))
        for number, span in enumerate(spans, 1)
    ]
    assert plan.table(rows).lines == [("32", "Launchers", "66", "1.100"), ("32", "jobs", "72", "1.200")]
    (axes,) = plan.figure(rows).axes
    assert axes.get_legend_handles_labels()[1] == ["by Launchers", "by jobs", "ideal"]
