"""`koala sim`: its report of a broken promise is enough to reproduce it, and its errors are sentences."""

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
from typer.testing import CliRunner

from koalapy.chaos import run as chaos
from koalapy.chaos.fault_schedule import BYZANTINE, FAULTS, JOB_ACTIONS, schedule_of
from koalapy.chaos.plan import parse_faults
from koalapy.cli.main import app
from koalapy.coallocation import barrier
from koalapy.model import records as model_records
from koalapy.model.states import AttemptState, JobState

EVENTS = "900"


@pytest.fixture
def koala() -> CliRunner:
    return CliRunner()


@pytest.fixture
def hasty() -> Iterator[None]:
    """Release jobs as soon as the first component has come, against the table of transitions."""

    def release(core: Any, now: Any, job: Any) -> None:
        came = any(each.id in core.at_barrier for each in job.present)
        if job.state is JobState.CLAIMING and came:
            barrier._release(core, now, job, job.present)

    every = dict.fromkeys(AttemptState, frozenset(AttemptState))
    with patch.object(barrier, "release_if_whole", release), patch.object(model_records, "ATTEMPT_TRANSITIONS", every):
        yield


def test_a_seed_without_a_violation_is_reported(koala: CliRunner) -> None:
    said = koala.invoke(app, ["sim", "chaos", "--seed", "5", "--events", "300"])
    assert said.exit_code == 0, said.output
    assert "no violation" in said.stdout
    assert "seed 5:" in said.stderr


def test_a_violation_is_shown_with_the_shortest_actions_and_reproduced_by_them(koala: CliRunner, hasty: None) -> None:
    command = ["sim", "chaos", "--seed", "1", "--seeds", "3", "--events", EVENTS, "--tries", "40"]
    said = koala.invoke(app, command)
    assert said.exit_code == 1, said.output
    assert "Broken: no component starts before the barrier is whole." in said.stdout
    seed, only = re.findall(r"koala sim chaos --seed (\d+) --events 900 --only '([\d,-]*)'", said.stdout)[0]
    count = int(re.findall(r"It takes (\d+) action", said.stdout)[0])
    assert count <= 5
    again = ["sim", "chaos", "--seed", seed, "--events", EVENTS, "--only", only, "--tries", "0", "--json"]
    document = json.loads(koala.invoke(app, again).stdout)
    assert document["schema"] == "koala.chaos/1"
    assert document["violation"]["details"] in said.stdout
    assert len(document["violation"]["actions"]) == count


def test_json_has_the_figures(koala: CliRunner) -> None:
    document = json.loads(koala.invoke(app, ["sim", "chaos", "--seed", "5", "--events", "300", "--json"]).stdout)
    assert document["violation"] is None
    assert document["events"] >= 300
    assert re.fullmatch("[0-9a-f]{32}", document["digest"])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--only", "x"], "'x' names no actions"),
        (["--only", "100000"], "There is no action 100000"),
        (["--only", "1", "--seeds", "2"], "leave out --seeds"),
        (["--faults", "node_lost,rain"], "There is no fault 'rain'; the faults are submit_refused, "),
        (["--faults", ","], "No fault is named"),
    ],
)
def test_invalid_actions_are_refused_with_a_sentence(koala: CliRunner, options: list[str], words: str) -> None:
    said = koala.invoke(app, ["sim", "chaos", *options])
    assert said.exit_code == 2
    assert words in " ".join(said.stderr.replace("│", " ").split())


def test_only_the_named_faults_occur(koala: CliRunner) -> None:
    faults = parse_faults("kcm killed, cluster_is_byzantine", FAULTS | BYZANTINE)
    kinds = {action.kind for action in schedule_of(1, 5_000, faults)}
    assert kinds & (FAULTS | BYZANTINE).keys() == {"kcm_killed", "cluster_is_byzantine"}
    assert kinds & JOB_ACTIONS.keys()


def test_a_violation_under_named_faults_is_reproduced_by_its_command(koala: CliRunner, hasty: None) -> None:
    command = ["sim", "chaos", "--faults", "job_killed,node_lost", "--events", EVENTS, "--tries", "20", "--seeds", "3"]
    said = koala.invoke(app, command)
    assert said.exit_code == 1, said.output
    shown = r"koala (sim chaos --seed \d+ --events 900 --faults job_killed,node_lost --only '.*')"
    (again,) = re.findall(shown, said.stdout)
    document = json.loads(koala.invoke(app, [*shlex.split(again), "--tries", "0", "--json"]).stdout)
    assert document["faults"] == ["job_killed", "node_lost"]
    assert document["violation"]["details"] in said.stdout


def test_an_interrupt_shows_the_finished_seeds(koala: CliRunner) -> None:
    real, seeds = chaos.run, []

    def interrupted(seed: int, *arguments: Any, **options: Any) -> Any:
        seeds.append(seed)
        if len(seeds) > 1:
            raise KeyboardInterrupt
        return real(seed, *arguments, **options)

    with patch.object(chaos, "run", interrupted):
        said = koala.invoke(app, ["sim", "chaos", "--seed", "7", "--seeds", "9", "--events", "100"])
    assert said.exit_code == 130
    assert "interrupted after 1 of 9 seeds; no promise was broken." in said.stderr
    assert "`--seed 8` goes on from there." in said.stderr


def test_the_list_names_faults_and_promises(koala: CliRunner) -> None:
    said = koala.invoke(app, ["sim", "list"])
    assert "no program runs twice for one attempt" in said.stdout
    assert "old kcm lives" in said.stdout
    listed = json.loads(koala.invoke(app, ["sim", "list", "--json"]).stdout)
    assert "commit_fails" in listed["chaos"]["faults"]
