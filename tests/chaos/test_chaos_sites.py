"""Seeds of chaos with several sites, and what a run of them must have seen."""

import json
import os
import subprocess
import sys

import pytest
from halves import HALVES, half_of

from koalapy.chaos.run import Result, run
from koalapy.chaos.site_actions import BESIDE, FAULTS, USERS, schedule_of_sites
from koalapy.world.random_sites import MOST

COURSE = 8_000
SEEDS = 10
LEAST = 100_000  # events of all these seeds
KOALA = [sys.executable, "-m", "koalapy.cli.main", "sim"]


def sites_of(seed: int) -> int:
    return 2 + seed % (MOST - 1)


@pytest.mark.parametrize("first", [pytest.param(1), pytest.param(2001, marks=pytest.mark.slow)])
def test_seeds_of_several_sites_break_no_promise(first: int) -> None:
    results: list[Result] = []
    for seed in half_of(range(first, first + SEEDS)):
        result = run(seed, COURSE, sites=sites_of(seed))
        command = f"koala sim chaos --seed {seed} --events {COURSE} --sites {sites_of(seed)}"
        assert result.violation is None, f"{command}: {result.violation}"
        results.append(result)
    assert sum(each.happened for each in results) >= LEAST / HALVES
    assert sum(each.programs for each in results) >= 100


def test_every_kind_of_action_occurs_within_a_few_seeds() -> None:
    kinds = {action.kind for seed in range(100) for action in schedule_of_sites(seed, 30_000)}
    assert kinds == (USERS | BESIDE | FAULTS).keys()


def test_a_seed_of_several_sites_has_the_same_result_in_every_process() -> None:
    assert _digest("1") == _digest("2")


def _digest(hash_seed: str) -> tuple[str, int]:
    command = [*KOALA, "chaos", "--seed", "5", "--events", "4000", "--sites", "3", "--json"]
    environment = os.environ | {"PYTHONHASHSEED": hash_seed}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    document = json.loads(done.stdout)
    assert document["violation"] is None
    return document["digest"], document["sites"]
