"""Equipartition-All and Equipartition-PerSite as the paper has them (CCGrid 2009, section 5.3)."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koalapy.policies.fairshare import EQUIPARTITION_ALL, EQUIPARTITION_PERSITE
from koalapy.policies.shares import ClusterShare, FairShare, Nodes, RunnerShare, reclaim_error, share_error

BOTH = [pytest.param(EQUIPARTITION_ALL, id="all"), pytest.param(EQUIPARTITION_PERSITE, id="persite")]
PLENTY = 1_000


def runner(
    sweep: int, user: str = "", wants: int = PLENTY, reclaimed: Mapping[str, int] | None = None, **holds: int
) -> RunnerShare:
    return RunnerShare(sweep=sweep, user=user or f"user{sweep}", wants=wants, holds=holds, reclaimed=reclaimed or {})


def sites(**idle: int) -> list[ClusterShare]:
    return [ClusterShare(cluster=cluster, idle=count) for cluster, count in idle.items()]


def totals(nodes: Nodes) -> list[int]:
    return [sum(on.values()) for on in nodes.values()]


def on(nodes: Nodes, cluster: str) -> list[int]:
    return [each.get(cluster, 0) for each in nodes.values()]


def test_persite_gives_everybody_the_same_on_every_cluster() -> None:
    nodes = EQUIPARTITION_PERSITE.share([runner(1), runner(2)], sites(A=6, B=4), False)
    assert nodes == {1: {"A": 3, "B": 2}, 2: {"A": 3, "B": 2}}


def test_persite_gives_what_is_left_over_to_who_has_fewest_grid_wide() -> None:
    nodes = EQUIPARTITION_PERSITE.share([runner(1), runner(2), runner(3)], sites(A=4, B=4, C=4), False)
    assert (on(nodes, "A"), on(nodes, "B"), on(nodes, "C")) == ([2, 1, 1], [1, 2, 1], [1, 1, 2])


def test_what_is_left_over_sees_the_equal_parts_of_clusters_yet_to_come() -> None:
    """Sweep 1 may not go to B: A's odd node is for it, though it is no poorer on A alone."""
    claimants = [RunnerShare(sweep=2, user="b", wants=9), RunnerShare(sweep=1, user="a", wants=9, excluded=("B",))]
    nodes = EQUIPARTITION_PERSITE.share(claimants, sites(A=3, B=2), False)
    assert nodes == {2: {"A": 1, "B": 2}, 1: {"A": 2}}


def test_all_gives_everybody_the_same_grid_wide() -> None:
    nodes = EQUIPARTITION_ALL.share([runner(1), runner(2), runner(3)], sites(A=85, B=41, C=68, D=46, E=32), False)
    assert totals(nodes) == [91, 91, 90]


def test_all_keeps_a_runner_on_few_clusters() -> None:
    nodes = EQUIPARTITION_ALL.share([runner(1), runner(2)], sites(A=5, B=5), False)
    assert nodes == {1: {"A": 5}, 2: {"B": 5}}
    assert EQUIPARTITION_ALL.share([runner(1), runner(2)], sites(A=4, B=3), False) == {1: {"A": 4}, 2: {"B": 3}}
    assert EQUIPARTITION_ALL.share([runner(1, wants=2, B=1)], sites(A=3, B=1), False) == {1: {"B": 2}}


@pytest.mark.parametrize("policy", BOTH)
def test_nobody_gets_more_than_it_has_a_use_for(policy: FairShare) -> None:
    assert totals(policy.share([runner(1, wants=2), runner(2)], sites(A=6, B=4), False)) == [2, 8]


@pytest.mark.parametrize("policy", BOTH)
def test_a_users_sweeps_share_that_users_nodes(policy: FairShare) -> None:
    claimants = [runner(1, "ann"), runner(2, "bob"), runner(3, "ann")]
    assert totals(policy.share(claimants, sites(A=8, B=8), False)) == [4, 8, 4]


@pytest.mark.parametrize("policy", BOTH)
def test_a_new_runner_makes_the_others_shrink(policy: FairShare) -> None:
    claimants = [runner(1, A=6, B=6), runner(2, A=6, B=6), runner(3)]
    nodes = policy.share(claimants, sites(A=0, B=0), True)
    assert totals(nodes) == [8, 8, 8]


def test_persite_shrinks_on_every_cluster() -> None:
    nodes = EQUIPARTITION_PERSITE.share([runner(1, A=6, B=3), runner(2)], sites(A=0, B=0), True)
    assert nodes == {1: {"A": 3, "B": 2}, 2: {"A": 3, "B": 1}}


@pytest.mark.parametrize("policy", BOTH)
def test_a_second_newcomer_does_not_make_others_go_for_nodes_that_are_coming(policy: FairShare) -> None:
    """Sweep 1 had 12 and gave 6 up for sweep 2, which are not free yet: with 3 the parts are 4."""
    site = ClusterShare(cluster="A", idle=0, coming=6)
    assert policy.share([runner(1, A=6), runner(2), runner(3)], [site], True) == {1: {"A": 4}, 2: {"A": 4}, 3: {"A": 4}}


@pytest.mark.parametrize("policy", BOTH)
def test_what_is_coming_is_not_given_before_it_is_there(policy: FairShare) -> None:
    assert totals(policy.share([runner(1, A=6), runner(2)], [ClusterShare(cluster="A", idle=1, coming=5)], False)) == [
        6,
        1,
    ]


@pytest.mark.parametrize("policy", BOTH)
def test_a_finished_runner_leaves_its_nodes_to_the_rest(policy: FairShare) -> None:
    assert totals(policy.share([runner(1, A=2), runner(2, A=2)], sites(A=2), True)) == [3, 3]


@pytest.mark.parametrize("policy", BOTH)
def test_a_user_who_starts_a_second_sweep_gets_no_more_nodes(policy: FairShare) -> None:
    claimants = [runner(1, "ann", A=4), runner(2, "bob", A=4), runner(3, "ann")]
    assert totals(policy.share(claimants, sites(A=0), True)) == [2, 4, 2]


def test_all_gives_back_to_the_same_runners_without_sharing_anew() -> None:
    """Sweep 1 lost 3 nodes on A; as they come back they are its own, though sweep 2 has fewer of A."""
    claimants = [runner(1, A=5, reclaimed={"A": 3}), runner(2, A=1, B=7)]
    assert EQUIPARTITION_ALL.share(claimants, sites(A=3, B=0), False) == {1: {"A": 8}, 2: {"A": 1, "B": 7}}


def test_all_gives_back_to_the_runner_with_the_largest_deficit() -> None:
    claimants = [runner(1, A=1, reclaimed={"A": 1}), runner(2, A=1, reclaimed={"A": 3})]
    assert EQUIPARTITION_ALL.share(claimants, sites(A=2), False) == {1: {"A": 1}, 2: {"A": 3}}


def test_all_counts_reclaimed_nodes_as_their_former_owners() -> None:
    """A node taken from nobody, while sweep 1 waits for two: both have 4 by right, and the older comes first."""
    claimants = [runner(1, A=2, reclaimed={"A": 2}), runner(2, B=4)]
    assert EQUIPARTITION_ALL.share(claimants, sites(B=2), False) == {1: {"A": 2, "B": 1}, 2: {"B": 5}}


def test_all_forgets_deficits_when_the_runners_change() -> None:
    claimants = [runner(1, A=1, reclaimed={"A": 9}), runner(2, A=4), runner(3)]
    assert totals(EQUIPARTITION_ALL.share(claimants, sites(A=4), True)) == [3, 3, 3]


@pytest.mark.parametrize("policy", BOTH)
def test_nothing_changes_hands_on_a_closed_cluster(policy: FairShare) -> None:
    excluded = ClusterShare(cluster="A", idle=3, excluded=True)
    assert policy.share([runner(1, A=6), runner(2)], [excluded], True) == {1: {"A": 6}, 2: {}}


@pytest.mark.parametrize("policy", BOTH)
def test_an_odd_node_stays_with_whoever_has_it(policy: FairShare) -> None:
    assert policy.share([runner(1, A=1), runner(2, A=2)], sites(A=0), True) == {1: {"A": 1}, 2: {"A": 2}}


def test_persite_takes_evenly_on_the_cluster() -> None:
    claimants = [runner(1, A=4, B=9), runner(2, A=4), runner(3, A=3)]
    assert EQUIPARTITION_PERSITE.reclaim(claimants, "A", 5) == {1: 2, 2: 2, 3: 1}


def test_all_takes_from_whoever_has_most_grid_wide() -> None:
    claimants = [runner(1, A=4, B=9), runner(2, A=9), runner(3, B=20)]
    assert EQUIPARTITION_ALL.reclaim(claimants, "A", 5) == {1: 4, 2: 1}


@pytest.mark.parametrize("policy", BOTH)
def test_among_equals_the_youngest_gives_first(policy: FairShare) -> None:
    assert policy.reclaim([runner(1, A=2), runner(2, A=2)], "A", 1) == {2: 1}


@pytest.mark.parametrize("policy", BOTH)
def test_of_a_users_sweeps_the_one_with_most_gives_first(policy: FairShare) -> None:
    bob = runner(3, "bob", A=4)
    assert policy.reclaim([runner(1, "ann", A=1), runner(2, "ann", A=4), bob], "A", 1) == {2: 1}
    assert policy.reclaim([runner(1, "ann", A=4), runner(2, "ann", A=1), bob], "A", 1) == {1: 1}


@pytest.mark.parametrize("policy", BOTH)
def test_no_more_can_be_taken_than_there_is(policy: FairShare) -> None:
    assert policy.reclaim([runner(1, A=2), runner(2, A=1)], "A", 9) == {1: 2, 2: 1}


# ---- what no answer may be


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        pytest.param({9: {"A": 1}}, "it names sweep 9, which is not active", id="stranger"),
        pytest.param({1: {"A": -1}}, "it gives sweep 1 -1 nodes on A", id="negative"),
        pytest.param({1: {"A": 1.5}}, "it gives sweep 1 1.5 nodes on A", id="fraction"),
        pytest.param({1: {"Z": 1}}, "it gives sweep 1 1 node on Z", id="unknown-cluster"),
        pytest.param({1: {"A": 1, "B": 5}}, "it gives sweep 1 6 nodes, where it has a use for 5", id="useless"),
        pytest.param({1: {"A": 1}, 2: {"A": 3}}, "it gives away 4 nodes on A, which has 3", id="overfull"),
        pytest.param({1: {"A": 1, "C": 1}}, "it gives away 1 node on C, which has 0", id="closed"),
        pytest.param({1: {}}, "it shrinks sweep 1, though the runners are the same", id="shrinks"),
    ],
)
def test_a_wrong_share_is_distinguished(answer: Nodes, wrong: str) -> None:
    claimants = [runner(1, wants=5, A=1), runner(2)]
    there = [*sites(A=2, B=9), ClusterShare(cluster="C", idle=1, excluded=True)]
    assert share_error({1: {"A": 1}, 2: {}}, claimants, there, False) == ""
    assert share_error({1: {"A": 1}, **answer}, claimants, there, False) == wrong


def test_a_barred_cluster_may_be_kept_but_not_grown_on() -> None:
    claimants = [RunnerShare(sweep=1, user="ann", wants=9, holds={"A": 1}, excluded=("A",))]
    assert share_error({1: {"A": 1}}, claimants, sites(A=4), False) == ""
    assert share_error({1: {"A": 2}}, claimants, sites(A=4), False) == (
        "it gives sweep 1 2 nodes on A, where it may not grow"
    )


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        pytest.param({1: 3}, "it takes 3 nodes of sweep 1 on A, which holds 2", id="more-than-held"),
        pytest.param({1: -1}, "it takes -1 nodes of sweep 1 on A, which holds 2", id="negative"),
        pytest.param({7: 1}, "it takes 1 node of sweep 7 on A, which holds 0", id="stranger"),
        pytest.param({1: 1}, "it takes 1 node on A, where 2 must be taken", id="too-few"),
        pytest.param({1: 2, 2: 1}, "it takes 3 nodes on A, where 2 must be taken", id="too-many"),
    ],
)
def test_a_wrong_reclaim_is_distinguished(answer: Mapping[int, int], wrong: str) -> None:
    claimants = [runner(1, A=2), runner(2, A=1)]
    assert reclaim_error({1: 2}, claimants, "A", 2) == ""
    assert reclaim_error(answer, claimants, "A", 2) == wrong


# ---- what every answer is

COUNTS = st.integers(0, 6)
HOLDS = st.dictionaries(st.sampled_from("ABC"), COUNTS)
CLAIMANTS = st.lists(
    st.tuples(st.sampled_from("xyz"), st.integers(0, 20), HOLDS, HOLDS, st.lists(st.sampled_from("ABC"), max_size=1)),
    max_size=5,
)
Drawn = list[tuple[str, int, dict[str, int], dict[str, int], list[str]]]
CLUSTERS = st.tuples(
    *(st.builds(ClusterShare, cluster=st.just(c), idle=COUNTS, coming=COUNTS, excluded=st.booleans()) for c in "ABC")
)


def claimants_of(drawn: Drawn) -> list[RunnerShare]:
    return [
        RunnerShare(sweep=number, user=user, wants=wants, holds=holds, reclaimed=reclaimed, excluded=tuple(excluded))
        for number, (user, wants, holds, reclaimed, excluded) in enumerate(drawn, 1)
    ]


@pytest.mark.parametrize("policy", BOTH)
@given(drawn=CLAIMANTS, there=CLUSTERS, anew=st.booleans())
def test_every_share_is_one_that_may_be(
    policy: FairShare, drawn: Drawn, there: tuple[ClusterShare, ...], anew: bool
) -> None:
    claimants = claimants_of(drawn)
    assert share_error(policy.share(claimants, there, anew), claimants, there, anew) == ""


@pytest.mark.parametrize("policy", BOTH)
@given(drawn=CLAIMANTS, nodes=st.integers(0, 20))
def test_every_reclaim_is_one_that_may_be(policy: FairShare, drawn: Drawn, nodes: int) -> None:
    claimants = claimants_of(drawn)
    assert reclaim_error(policy.reclaim(claimants, "A", nodes), claimants, "A", nodes) == ""


@given(drawn=CLAIMANTS, there=CLUSTERS)
def test_persite_shared_anew_is_equal_on_every_cluster(drawn: Drawn, there: tuple[ClusterShare, ...]) -> None:
    claimants = [
        RunnerShare(sweep=each.sweep, user=f"u{each.sweep}", wants=PLENTY, holds=each.holds)
        for each in claimants_of(drawn)
    ]
    nodes = EQUIPARTITION_PERSITE.share(claimants, there, True)
    for site in there:
        if claimants and not site.excluded:
            assert max(on(nodes, site.cluster)) - min(on(nodes, site.cluster)) <= 1


@pytest.mark.parametrize("policy", BOTH)
@given(drawn=CLAIMANTS, there=CLUSTERS)
def test_asked_again_nothing_moves(policy: FairShare, drawn: Drawn, there: tuple[ClusterShare, ...]) -> None:
    """A new division is kept when the policy is asked again about its result."""
    claimants = [replace(each, wants=PLENTY, excluded=()) for each in claimants_of(drawn)]
    nodes = policy.share(claimants, there, True)
    settled = [replace(each, holds=nodes[each.sweep]) for each in claimants]
    assert policy.share(settled, [left_of(site, claimants, nodes) for site in there], True) == nodes


def left_of(site: ClusterShare, claimants: list[RunnerShare], nodes: Nodes) -> ClusterShare:
    held = sum(each.holds.get(site.cluster, 0) for each in claimants)
    free = held + site.idle + site.coming - sum(on(nodes, site.cluster))
    return ClusterShare(cluster=site.cluster, idle=free, excluded=site.excluded)
