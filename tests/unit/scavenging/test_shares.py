"""When a fair-share policy is asked, and what it is given."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweep_play import SweepPlay

from koalapy.policies.fairshare import EQUIPARTITION_ALL, EQUIPARTITION_PERSITE
from koalapy.policies.scavenging import ScavengingPolicies
from koalapy.policies.shares import ClusterShare, FairShare, Nodes, RunnerShare
from koalapy.scavenging.shares import Shares, within

BOTH = [pytest.param(EQUIPARTITION_ALL, id="all"), pytest.param(EQUIPARTITION_PERSITE, id="persite")]
CLUSTERS = [ClusterShare(cluster="A", idle=3), ClusterShare(cluster="B", idle=2, coming=1)]


class Counted:
    """EQUIPARTITION_ALL, and how often it was asked to share."""

    def __init__(self) -> None:
        self.asked = 0
        self.policy = replace(EQUIPARTITION_ALL, share=self._share)

    def _share(self, claimants: Sequence[RunnerShare], sites: Sequence[ClusterShare], anew: bool) -> Nodes:
        self.asked += 1
        return EQUIPARTITION_ALL.share(claimants, sites, anew)


def test_a_policy_is_asked_again_only_where_what_it_sees_is_another() -> None:
    counted = Counted()
    shares, ann = Shares(counted.policy), RunnerShare(sweep=1, user="ann", wants=9, holds={"A": 1})
    first = shares.node_changes([ann], CLUSTERS, False)
    assert shares.node_changes([replace(ann, holds={"A": 1})], list(CLUSTERS), False) == first
    assert counted.asked == 1
    changes = [
        ([ann], CLUSTERS, True),
        ([replace(ann, holds={"A": 2})], CLUSTERS, True),
        ([replace(ann, reclaimed={"A": 1})], CLUSTERS, True),
        ([replace(ann, excluded=("A",))], CLUSTERS, True),
        ([replace(ann, wants=1)], CLUSTERS, True),
        ([ann], [replace(CLUSTERS[0], idle=0), CLUSTERS[1]], True),
        ([ann], [replace(CLUSTERS[0], excluded=True), CLUSTERS[1]], True),
        ([ann, replace(ann, sweep=2)], CLUSTERS, True),
    ]
    for count, asked in enumerate(changes, 2):
        shares.node_changes(*asked)
        assert counted.asked == count


def test_results_of_a_sweep_that_has_all_its_nodes_ask_no_policy() -> None:
    counted = Counted()
    play = SweepPlay({"alpha": 16}, policies=ScavengingPolicies(fairshare=counted.policy))
    sweep = play.sweep(1000)
    play.start_all(sweep)
    play.want(sweep, "alpha", 100)
    asked = counted.asked
    for number in range(1, 101):
        play.ran(play.staying(sweep)[number % 4], [number])
    assert counted.asked == asked
    assert play.recorded(sweep) == list(range(1, 101))


COUNTS = st.integers(0, 6)
HELD = st.dictionaries(st.sampled_from("ABC"), COUNTS)
DRAWN = st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 60), HELD, HELD), max_size=5)
PLACES = st.tuples(
    *(st.builds(ClusterShare, cluster=st.just(c), idle=COUNTS, coming=COUNTS, excluded=st.booleans()) for c in "ABC")
)


@pytest.mark.parametrize("policy", BOTH)
@given(drawn=DRAWN, there=PLACES, anew=st.booleans())
def test_what_a_runner_wants_beyond_all_there_is_gets_nobody_more_or_less(
    policy: FairShare,
    drawn: list[tuple[str, int, dict[str, int], dict[str, int]]],
    there: tuple[ClusterShare, ...],
    anew: bool,
) -> None:
    claimants = [
        RunnerShare(sweep=number, user=user, wants=wants, holds=holds, reclaimed=reclaimed)
        for number, (user, wants, holds, reclaimed) in enumerate(drawn, 1)
    ]
    assert policy.share(within(claimants, there), there, anew) == policy.share(claimants, there, anew)
