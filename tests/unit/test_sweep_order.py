"""A user's own order in the engine: which parameters run next on a cluster, and where its sweep takes nodes."""

from collections.abc import Mapping, Sequence

from sweep_play import SweepPlay

from koalapy.model.intervals import Intervals
from koalapy.policies.scavenging import ScavengingPolicies
from koalapy.policies.sweep_order import IN_ORDER, Pool, SweepOrder

TWO = {"alpha": 8, "beta": 8}


def test_what_came_back_goes_back_to_the_cluster_that_has_its_files() -> None:
    play = SweepPlay(TWO)
    sweep = play.sweep(100, order="back-home")
    play.start_all(sweep)
    play.want(sweep, "alpha", 8)
    play.back(sweep, "alpha", Intervals(((3, 8),)), begun=Intervals(((3, 8),)))
    assert play.want(sweep, "beta", 4) == Intervals(((9, 12),)), "alpha has nodes, and will want its own"
    assert play.want(sweep, "alpha", 4) == Intervals(((3, 6),))


def test_an_order_sees_where_its_sweep_is_and_says_where_it_goes() -> None:
    seen: list[Mapping[str, int]] = []

    def avoid(pool: Pool, clusters: Sequence[str]) -> Sequence[str]:
        seen.append(pool.holds)
        return [each for each in clusters if each == "alpha"]

    play = SweepPlay(TWO, policies=ScavengingPolicies(order=SweepOrder(IN_ORDER.feed, avoid)))
    sweep = play.sweep()
    play.start_all(sweep)
    assert (play.holds(sweep), seen[0], seen[-1]) == ({"beta": 2}, {}, {"beta": 2})
