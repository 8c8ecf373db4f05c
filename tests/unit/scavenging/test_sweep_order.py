"""A sweep's order in the engine: which parameters a cluster runs next, and where the sweep takes nodes."""

from collections.abc import Mapping, Sequence

from engine_play import UNREACHABLE
from sweep_play import SweepPlay

from koalapy.model.events import ClusterLost
from koalapy.model.intervals import Intervals
from koalapy.policies.scavenging import ScavengingPolicies
from koalapy.policies.sweep_order import IN_ORDER, Pool, SweepOrder

TWO = {"alpha": 8, "beta": 8}


def test_back_home_feeds_returned_parameters_to_the_cluster_with_their_files() -> None:
    play = SweepPlay(TWO)
    sweep = play.sweep(100, order="back-home")
    play.start_all(sweep)
    play.want(sweep, "alpha", 8)
    play.back(sweep, "alpha", Intervals(((3, 8),)), begun=Intervals(((3, 8),)))
    assert play.want(sweep, "beta", 4) == Intervals(((9, 12),)), "alpha has nodes and will want these parameters"
    assert play.want(sweep, "alpha", 4) == Intervals(((3, 6),))


def test_an_order_sees_the_sweep_s_nodes_and_excludes_clusters() -> None:
    seen: list[Mapping[str, int]] = []

    def exclude(pool: Pool, clusters: Sequence[str]) -> Sequence[str]:
        seen.append(pool.holds)
        return [each for each in clusters if each == "alpha"]

    play = SweepPlay(TWO, policies=ScavengingPolicies(order=SweepOrder(IN_ORDER.feed, exclude)))
    sweep = play.sweep()
    play.start_all(sweep)
    assert (play.holds(sweep), seen[0], seen[-1]) == ({"beta": 2}, {}, {"beta": 2})


def test_an_order_that_feeds_nothing_to_held_nodes_is_reported() -> None:
    """The order is followed all the same: it may keep the parameters for another cluster."""
    only_beta = SweepOrder(lambda pool, cluster, most: pool.waiting.lowest(most if cluster == "beta" else 0))
    play = SweepPlay(TWO, policies=ScavengingPolicies(order=only_beta))
    sweep = play.sweep(100)
    play.start_all(sweep)
    assert not play.want(sweep, "alpha", 8)
    fault = "Its order of parameters failed: it feeds nothing to alpha, where nodes are held for it, of 100 that wait."
    assert play.engine.scavenger.faults(sweep) == (fault,)
    assert play.want(sweep, "beta", 8) == Intervals(((1, 8),))
    [still] = play.engine.scavenger.faults(sweep)
    assert "nothing to alpha, where nodes are held for it, of 100 that wait" in still
    assert [line.details["message"] for line in play.history if line.kind == "policy_failed"] == [fault]
    play.apply(ClusterLost(cluster="alpha", reason=UNREACHABLE))
    play.back(sweep, "beta", Intervals(((8, 8),)))
    play.want(sweep, "beta", 1)
    assert play.engine.scavenger.faults(sweep) == ()
