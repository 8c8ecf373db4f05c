"""The nodes that sweeps may have: what an idleness policy is shown of a cluster, and how many Launchers must stop."""

import pytest
from engine_play import BUSY_QUEUE, UNREACHABLE, component, make
from sweep_play import NODE, SweepPlay

from koalapy.model.attempt import Attempt
from koalapy.model.cluster import ClusterSettings
from koalapy.model.commands import RecallParameters
from koalapy.model.events import ClusterLost
from koalapy.model.identity import JobId, launcher_id
from koalapy.model.states import JobState
from koalapy.policies.idleness import ClusterNodes, any_idle
from koalapy.policies.scavenging import ScavengingPolicies
from koalapy.scavenging.reclaim import nodes_for


class Seen:
    """An idleness policy that allows all that is idle, and keeps what it was shown."""

    def __init__(self) -> None:
        self.shown: list[tuple[int, int, int]] = []

    def __call__(self, sight: ClusterNodes) -> int:
        self.shown.append((sight.total, sight.idle, sight.held))
        return any_idle(sight)


def test_a_policy_is_shown_whole_nodes() -> None:
    seen = Seen()
    play = SweepPlay({"alpha": 18}, policies=ScavengingPolicies(idleness=seen))
    play.start_all(play.sweep(NODE))
    assert (4, 3, 1) in seen.shown
    assert {type(total) for total, _, _ in seen.shown} == {int}, "18 processors are four nodes of four"


@pytest.mark.parametrize("how", ["lost", "refuses"])
def test_nothing_is_idle_on_a_cluster_that_is_out_of_reach_or_refuses_jobs(how: str) -> None:
    seen = Seen()
    play = SweepPlay({"alpha": 16}, policies=ScavengingPolicies(idleness=seen))
    sweep = play.sweep(NODE)
    play.start_all(sweep)
    if how == "lost":
        play.apply(ClusterLost(cluster="alpha", reason=UNREACHABLE))
    else:
        for job in range(100, 120):
            play.engine.core.information.refused(play.now, "alpha", JobId(job), BUSY_QUEUE)
    seen.shown.clear()
    other = play.sweep(8 * NODE)
    if how == "refuses":
        play.measure()
    assert seen.shown
    assert all(idle + held == 1 for _, idle, held in seen.shown), "the one that a sweep has"
    assert play.staying(other) == []
    assert play.record(other).state is JobState.RUNNING


def test_on_a_cluster_of_which_no_node_was_seen_a_sweep_may_run() -> None:
    alpha = ClusterSettings(name="alpha", batch="slurm")
    play = SweepPlay({"alpha": 16}, clusters={"alpha": alpha})
    play.busy["alpha"] = 4
    play.restart()
    play.engine.core.node_sizes.clear()
    request = make(component(2, threads_per_process=2))
    assert play.engine.scavenger.may_go(request) == {"alpha": 0}


@pytest.mark.parametrize(
    ("lack", "sizes", "count"),
    [(0, [4, 8], 0), (1, [2, 8], 1), (8, [2, 8, 4], 1), (9, [2, 4, 8], 2), (12, [2, 4, 8], 2), (99, [2, 4, 8], 3)],
)
def test_as_few_launchers_stop_as_free_what_is_lacking(lack: int, sizes: list[int], count: int) -> None:
    launchers = [
        Attempt(id=launcher_id(number), cluster="alpha", request=component(size)) for number, size in enumerate(sizes)
    ]
    assert nodes_for(lack, launchers) == count


def test_a_single_parameter_is_recalled_for_a_launcher_without_work() -> None:
    play = SweepPlay({"alpha": 4, "beta": 4})
    sweep = play.sweep(10)
    play.start_all(sweep)
    assert [len(play.want(sweep, name, 10)) for name in ("alpha", "beta")] == [5, 5]
    play.ran(play.staying(sweep, "beta")[0], play.record(sweep).out_on("beta"))
    play.want(sweep, "beta", 4)
    recalls = [hint for hint in play.hints if isinstance(hint, RecallParameters)]
    assert [(each.cluster, each.most) for each in recalls] == [("alpha", 1)]
