"""Rules at work: what sweeps have of a cluster's nodes, what they give back and are charged, how many are active."""

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


def ruled(offset: Duration = Duration(0), **rules: Any) -> SweepPlay:
    """`offset`: of the clock on the wall. By UTC it is 13:46:40."""
    alpha = ClusterSettings(name="alpha", batch="slurm", processors_per_node=NODE, scavenge=Scavenge(**rules))
    return SweepPlay(ONE, clusters={"alpha": alpha}, offsets=((Instant(0), offset),))


def show(play: SweepPlay, **state: Any) -> None:
    """The next measurement of alpha, and what is different in it."""
    measured = play.measurement("alpha")
    play.tell(replace(measured, state=replace(measured.state, **state)))


@pytest.mark.parametrize(("busy", "held"), [(2, {"alpha": 2}), (3, {})])
def test_the_share_is_one_of_a_clusters_nodes(busy: int, held: dict[str, int]) -> None:
    play = ruled(idle_share=0.5)
    play.busy["alpha"] = busy
    play.measure()
    assert play.holds(play.sweep()) == held


@pytest.mark.parametrize("answers", [True, False], ids=["measured", "batch-system-silent"])
def test_hours_begin_and_end_by_the_clock_on_the_wall_though_nothing_else_happens(answers: bool) -> None:
    play = ruled(HOUR, hours=parse_hours("47-49 14 * * *"))
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


def test_where_others_jobs_are_hidden_nothing_grows_unless_the_batch_system_takes_nodes_back_by_itself() -> None:
    play = ruled()
    show(play, others_hidden=True)
    sweep = play.sweep()
    assert play.holds(sweep) == {}
    why = play.engine.scavenger.why_no_more(play.now, play.job(sweep))
    assert why == {"alpha": "others' jobs cannot be seen there, so that sweeps could be in their way"}
    for native in ("queue", "qos"):
        play = ruled(**{native: "low"})
        show(play, others_hidden=True)
        sweep = play.sweep()
        assert {getattr(each.request, native) for each in play.pending if isinstance(each, SubmitAttempt)} == {"low"}
        play.start_all(sweep)
        play.wanted["alpha"] = 2 * NODE
        play.measure()
        assert play.holds(sweep) == {"alpha": 4}, "those that wait start as if there were no sweep"


def test_what_another_koalapy_of_the_same_user_waits_for_is_left_to_it() -> None:
    """No local job waits for that, and no job of this one."""
    play = ruled()
    show(play, wanted_local=2 * NODE)
    assert play.holds(play.sweep()) == {"alpha": 2}


def test_launchers_that_have_not_started_make_room_for_a_grid_job_too() -> None:
    play = ruled()
    sweep = play.sweep()
    assert play.holds(sweep) == {"alpha": 4}
    play.submit(component(6))
    assert play.holds(sweep) == {"alpha": 2}


def test_what_the_batch_system_takes_back_by_itself_is_no_failure() -> None:
    play = ruled(qos="low")
    sweep = play.sweep()
    play.start_all(sweep)
    for launcher in play.staying(sweep):
        play.end(play.attempts(launcher.id)[0], 143, "killed")
        play.go()
    play.measure()
    assert {"launcher_lost", "cluster_excluded"}.isdisjoint(play.kinds)
    assert play.holds(sweep) == {"alpha": 4}


def test_a_sweeps_story_tells_how_many_parameters_begin_anew() -> None:
    play = SweepPlay(ONE)
    sweep = play.sweep()
    play.start_all(sweep)
    running = tuple((play.attempts(each.id)[0], 3, Instant(7)) for each in play.staying(sweep))
    play.tell(LaunchersSeen(cluster="alpha", launchers=running))
    play.wanted["alpha"] = 2 * NODE
    play.measure()
    told = [line.details for line in play.history if line.kind == "sweep_preempted"]
    assert told == [{"cluster": "alpha", "nodes": 2, "parameters": 6}]


def test_all_processors_of_a_launchers_node_are_charged_from_its_start_to_its_end() -> None:
    play = SweepPlay({"alpha": NODE})
    sweep = play.sweep(8)
    play.start_all(sweep)
    [launcher] = play.staying(sweep)
    play.tell(after=Duration(MINUTE))
    play.end(play.attempts(launcher.id)[0], 137, "killed")
    play.go()
    over = play.jobs[launcher.id].components[0]
    assert over.allocated_at is not None
    assert over.ended_at is not None
    assert play.runner(sweep).charged == NODE * (over.ended_at - over.allocated_at) > NODE * MINUTE


# ---- admission


def test_dynamic_admission_lets_in_whom_the_prediction_has_nodes_for_by_priority_and_age() -> None:
    """Of 8 nodes, half of them on a cluster that is lost and comes back; 3 for each runner."""
    rules = {"admission": "dynamic", "nodes_per_runner": 3}
    play = SweepPlay({"alpha": 16, "beta": 16}, policies=ScavengingPolicies(admission=dynamic), **rules)
    play.lose("beta")
    play.measure()
    sweeps = [play.sweep(), play.sweep(priority=9), play.sweep(priority=1), play.sweep(priority=1)]
    waits = "1 sweep is active, and there is room for no more."
    assert [play.engine.scavenger.waits_because(sweep) for sweep in sweeps] == ["", waits, waits, waits]
    play.reach("beta")
    play.measure()
    assert [play.job(sweep).state is JobState.RUNNING for sweep in sweeps] == [True, False, True, False]


def test_of_a_cluster_that_is_out_of_reach_no_nodes_are_expected_though_sweeps_have_them() -> None:
    play = SweepPlay({"alpha": 16, "beta": 16})
    play.start_all(play.sweep())
    assert play.engine.scavenger.prediction.forecast(play.now) == pytest.approx(8)
    play.lose("beta")
    play.measure()
    assert play.engine.scavenger.prediction.forecast(play.now) < 5


def test_the_grid_file_names_the_admission_policy() -> None:
    assert scavenging_policies(Settings(clusters=(), scavenging=Scavenging(admission="dynamic"))).admission is dynamic
