"""The rules of sweeps: the nodes that they hold, return and are charged for, and how many sweeps are active."""

from dataclasses import replace
from typing import Any

import pytest
from engine_play import component
from sweep_play import NODE, SweepPlay

from koalapy.config.hours import parse_hours
from koalapy.model.cluster import ClusterSettings, Scavenge
from koalapy.model.commands import SubmitAttempt
from koalapy.model.events import LaunchersSeen
from koalapy.model.settings import Scavenging, Settings
from koalapy.model.states import JobState
from koalapy.model.units import HOUR, MINUTE, Duration, Instant
from koalapy.policies.admission import dynamic
from koalapy.policies.scavenging import ScavengingPolicies
from koalapy.runtime.load_policies import scavenging_policies

ONE = {"alpha": 16}


def play_with_rules(offset: Duration = Duration(0), **rules: Any) -> SweepPlay:
    """`offset` is that of local time. The time is 13:46:40 UTC."""
    alpha = ClusterSettings(name="alpha", batch="slurm", processors_per_node=NODE, scavenge=Scavenge(**rules))
    return SweepPlay(ONE, clusters={"alpha": alpha}, offsets=((Instant(0), offset),))


def show(play: SweepPlay, **state: Any) -> None:
    """Deliver the next measurement of alpha with the given fields."""
    measured = play.measurement("alpha")
    play.apply(replace(measured, state=replace(measured.state, **state)))


@pytest.mark.parametrize(("busy", "held"), [(2, {"alpha": 2}), (3, {})])
def test_idle_share_is_a_share_of_the_cluster_s_nodes(busy: int, held: dict[str, int]) -> None:
    play = play_with_rules(idle_share=0.5)
    play.busy["alpha"] = busy
    play.measure()
    assert play.holds(play.sweep()) == held


@pytest.mark.parametrize("answers", [True, False], ids=["measured", "batch-system-silent"])
def test_hours_begin_and_end_by_local_time_without_any_other_event(answers: bool) -> None:
    play = play_with_rules(HOUR, hours=parse_hours("47-49 14 * * *"))
    sweep = play.sweep()
    assert play.holds(sweep) == {}
    play.wake()
    assert (play.now % HOUR // MINUTE, play.holds(sweep)) == (47, {"alpha": 4})
    play.start_all(sweep)
    while play.now % HOUR < 50 * MINUTE:
        assert play.holds(sweep) == {"alpha": 4}
        play.wake()
        if answers:
            play.measure()
    assert (play.now % HOUR // MINUTE, play.holds(sweep), play.kinds[-1]) == (50, {}, "sweep_preempted")


def test_where_other_users_jobs_are_hidden_only_preemptible_sweeps_grow() -> None:
    play = play_with_rules()
    show(play, others_hidden=True)
    sweep = play.sweep()
    assert play.holds(sweep) == {}
    why = play.engine.scavenger.why_no_more(play.now, play.record(sweep))
    assert why == {"alpha": "others' jobs cannot be seen there, so that sweeps could be in their way"}
    for native in ("queue", "qos"):
        rule: dict[str, Any] = {native: "low"}
        play = play_with_rules(**rule)
        show(play, others_hidden=True)
        sweep = play.sweep()
        assert {getattr(each.request, native) for each in play.pending if isinstance(each, SubmitAttempt)} == {"low"}
        play.start_all(sweep)
        play.wanted["alpha"] = 2 * NODE
        play.measure()
        assert play.holds(sweep) == {"alpha": 4}, "a preemptible sweep was shrunk for local jobs"


def test_nodes_that_another_koalad_of_the_user_waits_for_are_left_idle() -> None:
    """Neither a local job nor a job of this koalad waits for these nodes."""
    play = play_with_rules()
    show(play, wanted_local=2 * NODE)
    assert play.holds(play.sweep()) == {"alpha": 2}


def test_launchers_that_have_not_started_are_reclaimed_for_a_grid_job_too() -> None:
    play = play_with_rules()
    sweep = play.sweep()
    assert play.holds(sweep) == {"alpha": 4}
    play.submit(component(6))
    assert play.holds(sweep) == {"alpha": 2}


def test_a_launcher_that_the_batch_system_preempts_is_no_failure() -> None:
    play = play_with_rules(qos="low")
    sweep = play.sweep()
    play.start_all(sweep)
    for launcher in play.staying(sweep):
        play.end(launcher.id, 143, "killed")
        play.go()
    play.measure()
    assert {"launcher_lost", "cluster_excluded"}.isdisjoint(play.kinds)
    assert play.holds(sweep) == {"alpha": 4}


def test_the_history_counts_the_parameters_that_start_again() -> None:
    play = SweepPlay(ONE)
    sweep = play.sweep()
    play.start_all(sweep)
    running = tuple((each.id, 3, Instant(7)) for each in play.staying(sweep))
    play.apply(LaunchersSeen(cluster="alpha", launchers=running))
    play.wanted["alpha"] = 2 * NODE
    play.measure()
    recorded = [line.details for line in play.history if line.kind == "sweep_preempted"]
    assert recorded == [{"cluster": "alpha", "nodes": 2, "parameters": 6}]


def test_all_processors_of_a_launcher_s_node_are_charged_from_start_to_end() -> None:
    play = SweepPlay({"alpha": NODE})
    sweep = play.sweep(8)
    play.start_all(sweep)
    [launcher] = play.staying(sweep)
    play.apply(after=Duration(MINUTE))
    play.end(launcher.id, 137, "killed")
    play.go()
    ended = play.pilots[launcher.id]
    assert ended.allocated_at is not None
    assert ended.ended_at is not None
    assert play.record(sweep).charged == NODE * (ended.ended_at - ended.allocated_at) > NODE * MINUTE


# ---- admission


def test_dynamic_admission_admits_by_priority_and_age_while_predicted_nodes_suffice() -> None:
    """There are 8 nodes, half of them on a cluster that is lost and reconnects; each runner counts for 3."""
    rules: dict[str, Any] = {"admission": "dynamic", "nodes_per_runner": 3}
    play = SweepPlay({"alpha": 16, "beta": 16}, policies=ScavengingPolicies(admission=dynamic), **rules)
    play.lose("beta")
    play.measure()
    sweeps = [play.sweep(), play.sweep(priority=9), play.sweep(priority=1), play.sweep(priority=1)]
    waits = "1 sweep is active, and there is room for no more."
    assert [play.engine.scavenger.waits_because(sweep) for sweep in sweeps] == ["", waits, waits, waits]
    play.reach("beta")
    play.measure()
    assert [play.record(sweep).state is JobState.RUNNING for sweep in sweeps] == [True, False, True, False]


def test_no_nodes_of_an_unreachable_cluster_are_predicted() -> None:
    play = SweepPlay({"alpha": 16, "beta": 16})
    play.start_all(play.sweep())
    assert play.engine.scavenger.prediction.forecast(play.now) == pytest.approx(8)
    play.lose("beta")
    play.measure()
    assert play.engine.scavenger.prediction.forecast(play.now) < 5


def test_the_grid_file_names_the_admission_policy() -> None:
    assert scavenging_policies(Settings(clusters=(), scavenging=Scavenging(admission="dynamic"))).admission is dynamic
