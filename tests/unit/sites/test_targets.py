"""The neighbour that a request goes to: by every policy only one that may be asked, and none where there is none."""

import pytest

from koalapy.model.neighbour import Relation
from koalapy.policies.delegation import TargetPolicy, best_fit, most_free, nearest, round_robin
from koalapy.sites.targets import first_target

POLICIES = [nearest, most_free, best_fit, round_robin]
NEIGHBOURS = {"far": Relation.PARENT, "near": Relation.CHILD, "beside": Relation.SIBLING}
FREE: dict[str, int | None] = {"far": 64, "near": 8, "beside": None}


def target(policy: TargetPolicy, processors: int, *without: str, asked: int = 0) -> str | None:
    return first_target(policy, processors, NEIGHBOURS, FREE.get, without, asked)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.__name__)
def test_no_neighbour_is_asked_that_has_too_little_or_may_not_be_asked(policy: TargetPolicy) -> None:
    for asked in range(6):
        assert target(policy, 9, asked=asked) in ("far", "beside")
        assert target(policy, 8, "far", asked=asked) in ("near", "beside")
        assert target(policy, 65, asked=asked) == "beside", "nobody knows how much it has"
        assert target(policy, 65, "beside", asked=asked) is None
        assert target(policy, 1, *NEIGHBOURS, asked=asked) is None


def test_the_nearest_one_is_a_child_then_a_sibling_then_a_parent() -> None:
    assert [target(nearest, 8), target(nearest, 8, "near"), target(nearest, 8, "near", "beside")] == [
        "near",
        "beside",
        "far",
    ]
