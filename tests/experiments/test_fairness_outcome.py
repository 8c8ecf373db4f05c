"""The fairness experiment's table and figure: the same rows give the same bytes."""

import csv
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from koalapy.cli.main import app
from koalapy.experiments.catalogue import CS_FAIRNESS
from koalapy.experiments.plan import Options
from koalapy.experiments.sweeps import fairness
from koalapy.experiments.sweeps.fairness import DAS3, SHARES, FairnessOutcome

pytest.importorskip("matplotlib")

from koalapy.experiments.files import write
from koalapy.experiments.sweeps.outcome import means


def outcomes(chosen: list[fairness.FairnessTask]) -> list[FairnessOutcome]:
    return [
        FairnessOutcome(
            [
                {"workload": each.workload, "policy": each.policy, "set": each.number, "user": user, "done": 10 * user,
                 "per_minute": user / 6, "preemptions": each.number, "nodes": 3.5, "lost_hours": 0.25}
                for user in (1, 2, 3)
            ],
            {f"user {user}": [user, 2, 3] for user in (1, 2, 3)},
        )
        for each in chosen
    ]  # fmt: skip


def test_the_system_is_that_of_the_papers_table_1() -> None:
    assert DAS3 == {"vu": 85, "uva": 41, "delft": 68, "multimedian": 46, "leiden": 32}
    assert sum(DAS3.values()) == 272
    assert sum(DAS3[name] * share for name, share in SHARES.items()) / 272 == pytest.approx(0.4, abs=0.01)


def test_there_is_a_run_for_each_policy_workload_and_set() -> None:
    chosen = fairness.tasks(1, 2)
    assert len(chosen) == len(set(chosen)) == 8


def test_means_are_over_the_sets() -> None:
    chosen = fairness.tasks(1, 2)
    rows = means([row for outcome in outcomes(chosen) for row in outcome.rows])
    assert len(rows) == 12
    assert {row["preemptions"] for row in rows} == {1.5}
    assert [row["done"] for row in rows[:3]] == [10, 20, 30]


def test_the_files_are_the_same_every_time(tmp_path: Path) -> None:
    plan, made = CS_FAIRNESS.plan(Options(sets=1)), outcomes(fairness.tasks(1, 1))
    first, again = (write(CS_FAIRNESS.name, plan.rows(made), plan.figure(made), tmp_path / name) for name in ("a", "b"))
    assert [path.name for path in first] == ["cs-fairness.csv", "cs-fairness.png", "cs-fairness.svg"]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    with first[0].open() as file:
        assert len(list(csv.DictReader(file))) == 12


def test_the_experiment_is_listed_and_refuses_options_that_it_does_not_have() -> None:
    koala = CliRunner()
    listed = koala.invoke(app, ["sim", "list", "--json"])
    assert fairness.NAME in [each["name"] for each in json.loads(listed.stdout)["experiments"]]
    refused = koala.invoke(app, ["sim", "run", fairness.NAME, "--loads", "50"])
    assert refused.exit_code == 2
    assert "knows neither --loads nor --jobs" in refused.stderr
