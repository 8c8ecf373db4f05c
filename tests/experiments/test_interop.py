"""The SC'07 experiments: systems, streams of jobs, properties of every architecture, and files."""

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from koalapy.experiments import catalogue as all_experiments
from koalapy.experiments import files
from koalapy.experiments.interop import catalogue
from koalapy.experiments.interop.architectures import ARCHITECTURES
from koalapy.experiments.interop.architectures.simulation import Options, Simulation
from koalapy.experiments.interop.experiment import with_loads
from koalapy.experiments.interop.outcome import mean
from koalapy.experiments.interop.run import Part
from koalapy.experiments.interop.series import COLUMNS as SERIES_COLUMNS
from koalapy.experiments.interop.series import lasting
from koalapy.experiments.interop.streams import GridJob, draw_set
from koalapy.experiments.interop.system import System, read_system
from koalapy.experiments.interop.tally import COLUMNS, Tally
from koalapy.experiments.plan import Options as PlanOptions
from koalapy.experiments.plan import Plan, Row, outcomes
from koalapy.model.errors import RequestError
from koalapy.model.neighbour import Relation
from koalapy.model.units import DAY, MINUTE, SECOND, Duration, Instant

TWO = System("two", {"a": 4, "b": 4, "x": 0}, {"a": "x", "b": "x", "x": None})
BOTH = pytest.mark.parametrize("architecture", list(ARCHITECTURES))


def job(number: int, home: str = "a", processors: int = 1, runtime_s: int = 100, at_s: int = 0) -> GridJob:
    at, runtime = Instant(at_s * SECOND), Duration(runtime_s * SECOND)
    return GridJob(at, number, home, f"{home}-0", processors, runtime)


def row(architecture: str, jobs: list[GridJob], system: System = TWO, **options: object) -> dict[str, float]:
    simulation = Simulation(system, jobs, replace(Options(cool_down=True), **options), seed=1)  # type: ignore[arg-type]
    ARCHITECTURES[architecture](simulation)
    assert simulation.free == {name: system.processors[name] for name in system.clusters}, (
        "all processors are free again"
    )
    return simulation.tally.row()


# ---- systems


def test_the_paper_s_sites_are_linked_as_its_first_figure_has_them() -> None:
    both = catalogue.system("das2-grid5000")
    assert len(both.clusters) == 20
    assert both.neighbours("das2")["grid5000"] is Relation.SIBLING
    assert set(both.neighbours("fs0")) == {"das2", "fs1", "fs2", "fs3", "fs4"}
    assert both.neighbours("paraci") == {
        "tartopom": Relation.SIBLING, "parasol": Relation.SIBLING, "paravent": Relation.SIBLING,
        "rennes": Relation.PARENT,
    }  # fmt: skip
    assert both.neighbours("gdx") == {"orsay": Relation.PARENT}
    assert len([site for site, parent in both.parents.items() if parent == "grid5000"]) == 9
    assert both.total == catalogue.system("das2").total + catalogue.system("grid5000").total


@pytest.mark.parametrize(
    ("sites", "words"),
    [
        ("a: {processors: 4, parent: b}", "not a site"),
        ("a: {processors: 4, parent: b}, b: {parent: a}", "below itself"),
        ("a: {}", "no site has processors"),
        ("a: {processors: many}", "not a whole number"),
    ],
)
def test_an_invalid_system_is_refused(sites: str, words: str) -> None:
    with pytest.raises(RequestError, match=words):
        read_system(f"koala: 1\nsystem: x\nsites: {{{sites}}}\n", "x.yaml")


# ---- jobs


@pytest.mark.parametrize("load", [0.3, 0.8])
def test_a_set_brings_the_wanted_load(load: float) -> None:
    das = catalogue.system("das2")
    jobs = draw_set(das, {"das2": load}, seed=1, number=1)
    work = sum(each.processors * each.runtime for each in jobs)
    assert work == pytest.approx(load * das.total * DAY, rel=0.05)
    assert jobs == sorted(jobs)
    assert all(0 <= each.arrived < DAY and each.processors <= das.processors[each.home] for each in jobs)


def test_a_set_is_the_same_for_the_same_seed_and_its_jobs_for_any_load() -> None:
    das = catalogue.system("das2")
    first, again, other, fuller = (
        draw_set(das, {"das2": load}, seed, 1) for seed, load in ((1, 0.3), (1, 0.3), (2, 0.3), (1, 0.6))
    )
    assert first == again != other
    few = [(each.processors, each.runtime) for each in first if each.home == "fs0"]
    assert [(each.processors, each.runtime) for each in fuller if each.home == "fs0"][: len(few)] == few


# ---- architectures


@BOTH
def test_every_job_runs_once_and_all_processors_come_back(architecture: str) -> None:
    das = catalogue.system("das2")
    jobs = draw_set(das, {"das2": 0.7}, seed=3, number=1)[:600]
    found = row(architecture, jobs, das)
    assert found["started"] == found["finished"] == len(jobs)
    assert found["goodput"] == pytest.approx(sum(each.processors * each.runtime for each in jobs) / (365 * DAY))


@BOTH
def test_the_same_seed_gives_the_same_row(architecture: str) -> None:
    das = catalogue.system("das2")
    jobs = draw_set(das, {"das2": 0.9}, seed=3, number=1)[:300]
    assert row(architecture, jobs, das) == row(architecture, jobs, das)


@pytest.mark.parametrize("architecture", ["cern", "central", "sep-c"])
def test_a_job_that_starts_at_once_has_no_wait(architecture: str) -> None:
    assert row(architecture, [job(1), job(2), job(3)])["wait_s"] == 0


@pytest.mark.parametrize("architecture", ["condor", "fcondor", "dmm"])
def test_matchmaking_waits_for_its_cycle(architecture: str) -> None:
    assert 0 < row(architecture, [job(1)])["wait_s"] <= 300


@pytest.mark.parametrize(
    ("architecture", "shares"), [("sep-c", 0), ("condor", 0), ("cern", 1), ("fcondor", 1), ("dmm", 1)]
)
def test_an_architecture_that_shares_uses_the_other_cluster(architecture: str, shares: int) -> None:
    """Eight jobs on a cluster of four, for longer than any cycle."""
    found = row(architecture, [job(number, runtime_s=10_000) for number in range(1, 9)])
    assert (found["wait_s"] < 1000) == bool(shares)
    assert (found["delegations"] > 0) == (architecture == "dmm")


def test_without_backfilling_a_large_job_blocks_its_cluster() -> None:
    jobs = [job(1, runtime_s=1000), job(2, processors=4, at_s=1), job(3, at_s=2)]
    assert row("sep-c", jobs)["wait_s"] == pytest.approx((0 + 999 + 1098) / 3)


def test_a_job_that_took_no_time_has_the_slowdown_of_one_that_took_a_second() -> None:
    at_once, waiting = job(1, processors=4, runtime_s=9), job(2, runtime_s=0)
    assert row("sep-c", [at_once, waiting])["slowdown"] == pytest.approx((1 + 10) / 2)


def test_fcondor_serves_first_the_user_who_has_used_less() -> None:
    greedy = [job(number, processors=4, runtime_s=1000) for number in (1, 2)]
    modest = job(3, processors=4, runtime_s=10, at_s=1)._replace(user="a-1")
    one = System("one", {"a": 4}, {"a": None})
    simulation = Simulation(one, [*greedy, modest], Options(cool_down=True), seed=1)
    started: list[int] = []
    start = simulation.start
    simulation.start = lambda job, *rest: (started.append(job.number), start(job, *rest))[1]  # type: ignore[method-assign, func-returns-value]
    ARCHITECTURES["fcondor"](simulation)
    assert started == [1, 3, 2]


def test_a_job_manager_of_many_users_submits_to_one_cluster_at_a_time() -> None:
    """If one user's job does not fit, all jobs of the manager move on, although a processor is free at home."""
    four = System("four", dict.fromkeys("abcd", 4), dict.fromkeys("abcd"))
    full = [job(number, home, 4, 9000) for number, home in enumerate("bcd", 1)]
    in_vain = [job(4, processors=3, runtime_s=9000), job(5, processors=2, at_s=1)]
    small = [job(number, runtime_s=10, at_s=400 * number)._replace(user="a-1") for number in range(6, 20)]
    waits = {
        owner: row("fcondor", [*full, *in_vain, *small], four, job_managers=owner)["wait_s"]
        for owner in ("user", "cluster")
    }
    assert waits["user"] < waits["cluster"]


def test_binding_processors_of_another_site_takes_time() -> None:
    jobs = [job(number, processors=4, runtime_s=10_000) for number in (1, 2)]
    waits = [row("dmm", jobs, binding=(bind, bind))["wait_s"] for bind in (Duration(0), MINUTE)]
    assert waits[1] - waits[0] == pytest.approx(30)


def test_reports_of_free_processors_are_counted_apart_from_delegation() -> None:
    """To delegate one request takes four messages: it, its lease, the claim and the release."""
    found = row("dmm", [job(number, processors=4, runtime_s=10_000) for number in (1, 2)])
    assert (found["delegations"], found["dmm"]) == (0.5, 4)
    assert found["report_free"] > 0


def test_without_reports_a_site_asks_neighbours_that_have_nothing() -> None:
    """Both clusters are full when the third job comes. Only a site that knows this asks no neighbour, and retries."""
    jobs = [job(number, home, processors=4, runtime_s=9000) for number, home in ((1, "a"), (2, "b"))]
    found = {
        reports: row("dmm", [*jobs, job(3, processors=4, at_s=4000)], reports=reports) for reports in (True, False)
    }
    assert found[True]["dmm"] == 0 < found[False]["dmm"]
    assert found[False]["report_free"] == 0 < found[True]["report_free"]
    assert found[False]["finished"] == 3


def test_a_request_that_does_not_fit_is_passed_no_more_often_than_the_bound() -> None:
    """A job of all processors of its cluster; small ones come all the time."""
    one = System("two", {"a": 4, "b": 4}, {"a": None, "b": None})
    small = [job(number, home, runtime_s=900, at_s=300 * number) for number in range(2, 60) for home in ("a", "b")]
    large = job(1, processors=4, at_s=700)
    waits = {passes: _wait_of(large, sorted([*small, large]), one, passes) for passes in (2, 1000)}
    assert waits[2] < waits[1000]


def _wait_of(wanted: GridJob, jobs: list[GridJob], system: System, passes: int) -> Duration:
    jobs = [each._replace(number=place) for place, each in enumerate(jobs, 1)]
    simulation = Simulation(system, jobs, Options(cool_down=True, max_passes=passes), seed=1)
    starts: list[Instant] = []
    start = simulation.start

    def noted(job: Any, *rest: Any) -> Any:
        if job.processors == wanted.processors:
            starts.append(simulation.now)
        return start(job, *rest)

    simulation.start = noted  # type: ignore[method-assign, assignment]
    ARCHITECTURES["dmm"](simulation)
    return Duration(starts[0] - wanted.arrived)


TWO_GRIDS = System(
    "grids", {"g": 0, "s": 0, "a": 4, "b": 4, "c": 4, "h": 0, "d": 4},
    {"g": None, "s": "g", "a": "s", "b": "s", "c": "g", "h": None, "d": "h"},
)  # fmt: skip


def test_the_figures_of_a_run_are_those_of_section_5_1() -> None:
    """The run is measured after 2,000 seconds, when the last job has not ended. See section 5.1."""
    tally = Tally(TWO_GRIDS, jobs=6, until=Instant(2000 * SECOND))
    for number, (cluster, runtime) in enumerate([("a", 400), ("b", 500), ("c", 600), ("d", 700), ("a", 5000)]):
        started = Instant(100 * SECOND)
        tally.start(job(number, "a", 2, runtime, at_s=50), started, cluster, started, links=number % 2)
    found = tally.row()
    years = {
        where: found[f"goodput_{where}"] * 365 * 86_400 for where in ("local", "intra_site", "intra_grid", "inter_grid")
    }
    assert years == pytest.approx({"local": 800, "intra_site": 1000, "intra_grid": 1200, "inter_grid": 1400})
    assert found["goodput"] * 365 * 86_400 == pytest.approx(4400)
    assert (found["jobs"], found["started"], found["finished"]) == (6, 5, 4)
    assert found["utilisation"] == pytest.approx(2 * (400 + 500 + 600 + 700 + 1900) / (16 * 2000))
    assert (found["wait_s"], found["response_s"], found["delegations"]) == (50, 50 + 7200 / 5, 2 / 5)
    assert found["keep_alive"] == 2 * (1 + 1 + 2 + 2 + 6)


def test_the_bounded_slowdown_of_a_short_job_counts_ten_seconds() -> None:
    tally = Tally(TWO, jobs=1, until=None)
    tally.start(job(1, runtime_s=2), Instant(38 * SECOND), "a", Instant(38 * SECOND), links=0)
    assert (tally.row()["slowdown"], tally.row()["bounded_slowdown"]) == (20, 4)


def test_past_use_counts_half_after_each_half_life() -> None:
    """The user of 12 processor-hours a day ago, which count as 3, goes before the user of 4 recent ones."""
    one = System("one", {"a": 4}, {"a": None})
    was_greedy = job(1, processors=4, runtime_s=3 * 3600)._replace(user="a-1")
    is_modest = job(2, processors=4, runtime_s=3600, at_s=47 * 3600)
    both = [job(number, processors=4, runtime_s=60, at_s=48 * 3600 + 10)._replace(user=user)
            for number, user in ((3, "a-1"), (4, "a-0"))]  # fmt: skip
    simulation = Simulation(one, [was_greedy, is_modest, *both], Options(cool_down=True), seed=1)
    started: list[int] = []
    start = simulation.start
    simulation.start = lambda job, *rest: (started.append(job.number), start(job, *rest))[1]  # type: ignore[method-assign, func-returns-value]
    ARCHITECTURES["fcondor"](simulation)
    assert started == [1, 2, 3, 4]


def test_no_job_passes_the_first_one_of_a_common_queue() -> None:
    jobs = [
        job(1, processors=4, runtime_s=1000),
        job(2, "b", runtime_s=1000),
        job(3, processors=4, at_s=1),
        job(4, at_s=2),
    ]
    for architecture in ("cern", "central"):
        assert row(architecture, jobs)["wait_s"] > (999 + 998) / 4 - 1


def test_the_central_scheduler_sees_freed_processors_at_its_monitor_s_next_poll() -> None:
    jobs = [job(1, processors=4), job(2, "b", processors=4), job(3, processors=4, at_s=1)]
    waits = [row(architecture, jobs)["wait_s"] * 3 for architecture in ("cern", "central")]
    assert waits[0] == 99
    assert 99 < waits[1] <= 99 + 60


# ---- experiments


def test_every_experiment_of_koalapy_can_be_read() -> None:
    names = list(catalogue.experiments())
    assert "dmm-load" in names
    for name in names:
        experiment = catalogue.experiment(name)
        assert experiment.experiment == name
        assert catalogue.system(experiment.system).clusters


def made(plan: Plan[Part], name: str, directory: Path) -> dict[str, bytes]:
    parts = list(outcomes(plan.tasks, 1))
    written = files.write(name, plan.rows(parts), plan.figure(parts), directory, plan.more(parts))
    return {path.name: path.read_bytes() for path in written}


def test_the_same_seed_writes_the_same_bytes_in_one_process_and_in_two(tmp_path: Path) -> None:
    """The two processes of the command line have another hash seed, too."""
    experiment = all_experiments.experiment("dmm-two-days")
    once = made(experiment.plan(PlanOptions(jobs=90)), experiment.name, tmp_path / "once")
    arguments = ["sim", "run", experiment.name, "--jobs", "90", "--workers", "2", "--out", str(tmp_path / "again")]
    command = [sys.executable, "-m", "koalapy.cli.main", *arguments]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": "7"})
    assert {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()} == once
    assert sorted(once) == [f"dmm-two-days{end}" for end in ("-hours.csv", ".csv", ".png", ".svg")]


def test_the_table_has_a_row_for_each_architecture_load_and_set(tmp_path: Path) -> None:
    plan = all_experiments.experiment("dmm-load").plan(PlanOptions(loads=[10, 30], sets=2, jobs=20))
    table, *_ = files.write("x", plan.rows(list(outcomes(plan.tasks, 1))), Figure(), tmp_path)
    assert table.read_bytes().startswith(
        b"architecture,load,set,jobs,finished,goodput,wait_s,slowdown,utilisation,delegations,"
    )
    assert table.read_bytes().count(b"\n") == 1 + 2 * 2 * 6


def test_a_variant_may_be_run_by_some_architectures_only() -> None:
    plan = all_experiments.experiment("dmm-passes").plan(PlanOptions(loads=[50], sets=1, jobs=20))
    found = [(row["architecture"], row["varied"]) for row in plan.rows(list(outcomes(plan.tasks, 1)))]
    assert found == [("dmm", "1000 passes"), ("fcondor", "1000 passes"), ("dmm", "48 passes")]


def test_every_experiment_but_two_has_a_bound_of_passes_that_no_request_of_a_day_reaches() -> None:
    """Both give it with and without: the page compares them."""
    bounds = {
        name: [each.options(variant).max_passes for variant in each.variants]
        for name in catalogue.experiments()
        for each in [catalogue.experiment(name)]
    }
    two = {name: found for name, found in bounds.items() if set(found) != {Options().max_passes}}
    assert two == {"dmm-passes": [1000, 48], "dmm-passes-imbalance": [1000, 48]}


def test_a_shortened_day_causes_a_warning() -> None:
    """The first jobs are those of the early morning."""
    experiment = all_experiments.experiment("dmm-load")
    cut = experiment.plan(PlanOptions(loads=[10], sets=1, jobs=100))
    (warning,) = cut.notes(list(outcomes(cut.tasks, 1)))
    assert "WARNING: --jobs ran 100 of up to 3,065 jobs" in warning
    whole = experiment.plan(PlanOptions(loads=[10], sets=1, jobs=3065))
    assert whole.notes(list(outcomes(whole.tasks, 1))) == []


def test_a_figure_names_the_varied_parameter_and_the_loads() -> None:
    plan = all_experiments.experiment("dmm-threshold").plan(PlanOptions(loads=[10, 30], sets=1, jobs=5))
    axes, *_ = plan.figure(list(outcomes(plan.tasks, 1))).axes
    assert axes.get_xlabel() == "threshold"
    assert axes.get_legend_handles_labels()[1] == ["dmm 10 %", "dmm 30 %"]


@pytest.mark.parametrize("changed", [{"targets": "best-fit"}, {"delegation": "smallest-first"}, {"dttl": 0}])
def test_a_policy_of_dmm_changes_the_rows_of_dmm_only(changed: dict[str, object]) -> None:
    das, jobs, rows = crowded()
    for architecture, usual in rows.items():
        assert (usual != row(architecture, jobs, das, **changed)) == (architecture == "dmm")


@functools.cache
def crowded() -> tuple[System, list[GridJob], dict[str, dict[str, float]]]:
    """A crowded DAS-2, where much is delegated. Returns it, its jobs, and the row of each architecture."""
    das = catalogue.system("das2")
    drawn = draw_set(das, {"das2": 0.3}, seed=3, number=1)[:700]
    jobs = [each._replace(arrived=Instant(each.arrived // 20)) for each in drawn]
    return das, jobs, {architecture: row(architecture, jobs, das) for architecture in ARCHITECTURES}


def test_the_hourly_figures_add_up_to_the_table() -> None:
    plan = all_experiments.experiment("dmm-two-days").plan(PlanOptions(jobs=90))
    parts = list(outcomes(plan.tasks, 1))
    for row in plan.rows(parts):
        seen = [each for each in plan.more(parts)["hours"] if each["architecture"] == row["architecture"]]
        assert [each["hour"] for each in seen] == list(range(len(seen)))
        assert (seen[-1]["arrived"], seen[-1]["finished"], seen[-1]["running"]) == (row["jobs"], row["finished"], 0)
        assert seen[-1]["goodput"] == pytest.approx(row["goodput"])
        assert sum(int(each["dmm"]) for each in seen) <= int(row["dmm"])
        assert all(int(each["waiting"]) >= 0 for each in seen)


def test_a_run_that_has_ended_keeps_its_last_value_while_others_go_on() -> None:
    """Otherwise the mean over the sets would fall whenever one of them ends."""
    row: Row = {"architecture": "dmm", "load": 20, "varied": "-", "dmm": 3, "started": 9}
    seen = [row | {"set": number, "hour": hour} for number, hours in ((1, 2), (2, 4)) for hour in range(hours)]
    first = [each for each in lasting(seen) if each["set"] == 1]
    assert [(each["hour"], each["started"], each["dmm"]) for each in first] == [
        (0, 9, 3),
        (1, 9, 3),
        (2, 9, 0),
        (3, 9, 0),
    ]
    assert len(lasting(seen)) == 8


def test_the_columns_that_a_file_may_name_are_those_of_the_table() -> None:
    plan = all_experiments.experiment("dmm-two-days").plan(PlanOptions(jobs=1))
    parts = list(outcomes(plan.tasks, 1))
    assert tuple(plan.rows(parts)[0]) == ("architecture", "load", "set", *COLUMNS, "varied")
    seen = plan.more(parts)["hours"][0]
    assert tuple(seen) == ("architecture", "load", "set", *SERIES_COLUMNS, "varied")


def test_traces_of_a_user_replace_the_model(tmp_path: Path) -> None:
    """Their path is relative to the file. Their errors come from another process."""
    text = catalogue.experiments()["dmm-long"].read_text() + "traces: {das2: das.swf}\n"
    (tmp_path / "mine.yaml").write_text(text)
    lines = [f"{number} {number * 60} 0 300 {number} -1 -1 1 -1 -1 1 7 -1 -1 -1 fs1 -1 -1\n" for number in (1, 63, 65)]
    (tmp_path / "das.swf").write_text("".join(lines))
    plan = all_experiments.experiment(str(tmp_path / "mine.yaml")).plan(PlanOptions())
    parts = list(outcomes(plan.tasks, 2))
    assert {row["architecture"]: (row["jobs"], row["finished"]) for row in plan.rows(parts)} == dict.fromkeys(
        ("cern", "condor", "dmm", "fcondor", "sep-c"), (2, 2)
    )
    assert plan.notes(parts) == ["Left out of das.swf: 1 larger than their cluster."]
    with pytest.raises(RequestError, match="Leave out --loads"):
        all_experiments.experiment(str(tmp_path / "mine.yaml")).plan(PlanOptions(loads=[50]))
    (tmp_path / "das.swf").write_text("1 2 3\n")
    with pytest.raises(RequestError, match="line 1 has 3 fields"):
        list(outcomes(plan.tasks, 2))


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(RequestError, match="taken is no directory"):
        files.check(tmp_path / "taken" / "deeper")
    files.check(tmp_path / "new" / "deeper")
    (tmp_path / "here" / "x.csv").mkdir(parents=True)
    with pytest.raises(RequestError, match="cannot be written to"):
        files.write("x", [{"a": 1}], Figure(), tmp_path / "here")
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["x.csv"]


def test_a_mean_has_a_confidence_interval() -> None:
    assert mean([3.0]) == (3.0, 0.0)
    value, half = mean([1.0, 2.0, 3.0])
    assert value == 2.0
    assert half == pytest.approx(4.303 / 3**0.5)


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (lambda: all_experiments.experiment("dmm-lode"), "Did you mean dmm-load"),
        (lambda: all_experiments.experiment("dcs-bach"), "Did you mean dcs-batch"),
        (lambda: catalogue.system("das3"), "Did you mean das2"),
        (lambda: catalogue.experiment("./none.yaml"), "cannot be read"),
        (lambda: with_loads(catalogue.experiment("dmm-load"), [0], None), "from 1 to 1000"),
    ],
)
def test_an_experiment_that_cannot_be_run_is_refused_with_a_sentence(refused: Callable[[], object], words: str) -> None:
    with pytest.raises(RequestError) as caught:
        refused()
    assert words in f"{caught.value.reason.message} {caught.value.reason.advice}"
