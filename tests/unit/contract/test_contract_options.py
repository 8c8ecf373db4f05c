"""The options of the contract suite: what a target refuses, and the logins of its other users."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from koalapy_adapters.contract import plugin
from koalapy_adapters.contract.target import LOWEST, QUEUE, Target, login

SETTINGS = {"batch": "local", "connect": "local:", "slots": 1, "shared": "/shared/me"}


def target(**more: Any) -> Target:
    return Target(name="here", head="here", settings=lambda: SETTINGS, **more)


def test_a_neighbour_has_a_shared_directory_of_its_own() -> None:
    other = {"connect": "docker://other@head"}
    assert login(target()).config["shared"] == "/shared/me"
    assert login(target(), {}).config["shared"] == "/shared/me"
    assert login(target(), other).config.get("shared") is None
    assert login(target(), {**other, "shared": "/shared/other"}).config["shared"] == "/shared/other"


def config(**options: Any) -> pytest.Config:
    given = {"--batch": "pbs", "--connect": "ssh://me@head", "--set": [], "--neighbour": [], "--operator": []}
    return cast(pytest.Config, SimpleNamespace(getoption={**given, **options}.get))


def test_a_target_may_state_that_it_starts_the_lowest_before_others() -> None:
    (found,) = plugin._named(config(**{"--refuses": "queue,lowest", "--array": "qsub -J 1-2"}))
    assert found.refuses == frozenset({QUEUE, LOWEST})
    assert found.array == "qsub -J 1-2"
    with pytest.raises(pytest.UsageError, match="lowest"):
        plugin._named(config(**{"--refuses": "queue,highest"}))
