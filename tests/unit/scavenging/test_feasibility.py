"""Why a sweep gets no more nodes, cluster by cluster."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from engine_play import UNREACHABLE, component
from sweep_play import NODE, SweepPlay

from koalapy.model.cluster import ClusterSettings, Scavenge
from koalapy.model.events import ClusterMeasured
from koalapy.model.identity import JobId
from koalapy.policies.scavenging import ScavengingPolicies
from koalapy.policies.sweep_order import IN_ORDER, SweepOrder
from koalapy.scavenging.launchers import START_TIMEOUT

CLUSTERS = {"alpha": 16, "beta": 16}


def why(play: SweepPlay, sweep: JobId) -> dict[str, str]:
    return play.engine.scavenger.why_no_more(play.now, play.record(sweep))


def ruled(**rules: object) -> SweepPlay:
    alpha = ClusterSettings(
        name="alpha",
        batch="slurm",
        processors_per_node=NODE,
        scavenge=Scavenge(**rules),  # type: ignore[arg-type]
    )
    return SweepPlay(CLUSTERS, clusters={"alpha": alpha})


def test_where_nodes_are_for_the_taking_nothing_is_reported() -> None:
    play = SweepPlay(CLUSTERS)
    assert why(play, play.sweep(8)) == {}


def test_a_cluster_of_which_it_has_all_is_idle_no_more() -> None:
    play = SweepPlay(CLUSTERS)
    sweep = play.sweep()
    play.start_all(sweep)
    assert why(play, sweep) == dict.fromkeys(CLUSTERS, "none of its nodes is idle altogether")
    assert why(play, play.sweep(cluster="beta")) == {"beta": "none of its nodes is idle altogether"}


def full(play: SweepPlay, **processors: int) -> None:
    """Measure every cluster once more: nothing is idle, and these have its processors."""
    play.apply(
        *(
            ClusterMeasured(
                cluster=name,
                state=replace(play.measurement(name).state, idle=0, free_nodes=(), whole_nodes=(), **processors),  # type: ignore[arg-type]
            )
            for name in play.sizes
        )
    )


@pytest.mark.parametrize("processors", [{"others": 16, "ours": 0}, {"others": 0, "ours": 16}, {"others": 9, "ours": 7}])
def test_others_and_another_koalad_of_this_user_are_blamed(processors: dict[str, int]) -> None:
    play = SweepPlay(CLUSTERS)
    full(play, **processors)
    used = "no node of it was ever seen idle; 16 of its 16 processors are used by others"
    assert why(play, play.sweep()) == dict.fromkeys(CLUSTERS, used)


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        pytest.param({"off": True}, "the grid file keeps sweeps off it", id="off"),
        pytest.param({"max_nodes": 0}, "sweeps may hold 0 of its nodes, no more", id="most"),
        pytest.param({"max_nodes": 2}, "sweeps may hold 2 of its nodes, no more", id="held"),
    ],
)
def test_the_site_s_rules_are_reported(rules: dict[str, object], words: str) -> None:
    play = ruled(**rules)
    sweep = play.sweep()
    play.start_all(sweep)
    assert why(play, sweep)["alpha"] == words


def waiting(play: SweepPlay, sweep: JobId) -> None:
    play.wanted["alpha"] = 64
    play.measure()


def lost(play: SweepPlay, sweep: JobId) -> None:
    play.lose("alpha")


def late(play: SweepPlay, sweep: JobId) -> None:
    """Its Launchers there have not started in time."""
    play.apply(after=START_TIMEOUT)
    play.go()


@pytest.mark.parametrize(
    ("befalls", "words"),
    [
        pytest.param(waiting, "others' jobs wait for its nodes", id="waiting"),
        pytest.param(lost, str(UNREACHABLE).rstrip("."), id="lost"),
        pytest.param(late, "Launchers did not start there in time; the next comes in 30s", id="late"),
    ],
)
def test_what_befell_a_cluster_is_reported(befalls: Callable[[SweepPlay, JobId], None], words: str) -> None:
    play = SweepPlay(CLUSTERS)
    sweep = play.sweep()
    befalls(play, sweep)
    assert why(play, sweep)["alpha"] == words


def test_one_parameter_may_be_too_large_for_a_node() -> None:
    small = ClusterSettings(name="alpha", batch="slurm", processors_per_node=2)
    play = SweepPlay(CLUSTERS, clusters={"alpha": small})
    sweep = play.sweep(1000, processors=3)
    assert why(play, sweep)["alpha"] == "one parameter needs 3 processors of one node, and its largest node has 2"


def test_an_order_may_stay_away_from_it() -> None:
    away = SweepOrder(IN_ORDER.feed, lambda pool, clusters: ["alpha"])
    play = SweepPlay(CLUSTERS, policies=ScavengingPolicies(order=away))
    assert why(play, play.sweep())["alpha"] == "the sweep's order stays away from it"


def test_a_sweep_that_waits_has_a_reason() -> None:
    play = SweepPlay(CLUSTERS, max_runners=1)
    first, second = play.sweep(), play.sweep()
    waits_because = play.engine.scavenger.waits_because
    assert (waits_because(first), waits_because(second)) == ("", "1 sweep is active, and there is room for no more.")


def test_jobs_of_the_grid_come_first() -> None:
    play = SweepPlay({"alpha": 16})
    play.submit(component(16))
    assert why(play, play.sweep()) == {"alpha": "none of its nodes is idle altogether"}
