"""Sweeps in the engine: pilots that grow and shrink; parameters that are fed, done and returned."""

import json
from dataclasses import replace
from typing import Any

import pytest
from engine_play import BUSY_QUEUE, INSTANCE, check, component
from koalapy_adapters.launcher import space
from koalapy_adapters.launcher.machine import LEAVE_BEFORE
from koalapy_adapters.messages import from_json, to_json
from sweep_play import NODE, SweepPlay, result

from koalapy.coallocation.restored_store import JOBS_AHEAD
from koalapy.languages.spaces import PARAMETER_WALLTIME
from koalapy.link import translate
from koalapy.model.cluster import ClusterSettings, Scavenge
from koalapy.model.commands import CollectOutput, OutputKind, RecallParameters, SubmitAttempt, TrustLauncher
from koalapy.model.errors import Reason
from koalapy.model.events import (
    AttemptSubmitted,
    BatchStatusSeen,
    CancelRequested,
    ClusterConnected,
    HoldRequested,
    LaunchersSeen,
    LauncherSuspected,
    OutputCollected,
    ParametersEnded,
    ReleaseRequested,
    StoreRestored,
    SubmissionFailed,
)
from koalapy.model.identity import FIRST_LAUNCHER, JobId, launcher_id
from koalapy.model.intervals import Intervals
from koalapy.model.learned import Hour, Past
from koalapy.model.settings import LAUNCHER_WALLTIME
from koalapy.model.states import BatchState, JobState, ReportedEnding
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration, Instant
from koalapy.policies.fairshare import EQUIPARTITION_ALL
from koalapy.policies.scavenging import ScavengingPolicies
from koalapy.policies.shares import FairShare
from koalapy.policies.sweep_order import IN_ORDER, SweepOrder
from koalapy.scavenging.launchers import LEFT_OUT, START_TIMEOUT
from koalapy.scavenging.prediction import SETTLED

ONE = {"alpha": 16}


# ---- the order of parameters


def test_a_sweep_may_name_its_order_and_an_unknown_one_is_the_default() -> None:
    last_first = SweepOrder(lambda pool, cluster, most: Intervals.numbers([*pool.waiting][-most:]))
    orders = {"in-order": IN_ORDER, "last-first": last_first}
    for name, fed in (("last-first", (99, 100)), ("", (1, 2)), ("of a package that was removed", (1, 2))):
        play = SweepPlay(ONE, policies=ScavengingPolicies(orders=orders))
        sweep = play.sweep(100, order=name)
        play.start_all(sweep)
        assert play.want(sweep, "alpha", 2) == Intervals.numbers(fed)


def test_a_policy_that_fails_is_replaced_by_a_fallback_and_recorded_once() -> None:
    def broken(*asked: object) -> Any:
        raise KeyError("vu")

    fairshare, order = FairShare(EQUIPARTITION_ALL.share, broken), SweepOrder(broken, broken)
    policies = ScavengingPolicies(fairshare=fairshare, reclaim=broken, order=order)
    play = SweepPlay(ONE, policies=policies)
    sweep = play.sweep(100)
    play.start_all(sweep)
    assert play.want(sweep, "alpha", 2) == Intervals.numbers((1, 2))
    play.want(sweep, "alpha", 2)
    play.wanted["alpha"] = NODE
    play.measure()
    assert play.holds(sweep) == {"alpha": 3}
    blamed = [line.details["message"] for line in play.history if line.kind == "policy_failed"]
    asked = ("What its order stays away from", "Its order of parameters", "What the fair-share policy takes")
    assert blamed == [f"{each} failed: it raised KeyError: 'vu'." for each in (*asked, "The reclaim policy")]
    assert play.engine.scavenger.faults(sweep) == tuple(blamed)


# ---- growing


def test_a_sweep_grows_on_every_idle_node() -> None:
    play = SweepPlay()
    sweep = play.sweep(1000)
    assert play.record(sweep).state is JobState.RUNNING
    assert play.holds(sweep) == {"alpha": 8, "beta": 4, "gamma": 4}
    submits = [each for each in play.pending if isinstance(each, SubmitAttempt)]
    assert all(each.lowest and each.launcher and each.launcher.slots == NODE for each in submits)
    assert {each.request.processors for each in submits} == {NODE}
    assert min(each.attempt.job for each in submits) == FIRST_LAUNCHER
    grown = next(each for each in play.history if each.kind == "sweep_grown")
    assert grown.details == {"cluster": "alpha", "nodes": 8}


def test_sweeps_are_numbered_by_the_counter_of_jobs_and_launchers_by_another() -> None:
    play = SweepPlay(ONE)
    jobs = [play.submit(component(1)), play.sweep(), play.submit(component(1)), play.sweep()]
    assert jobs == [1, 2, 3, 4]
    assert play.launchers(jobs[1])


def test_a_sweep_gets_no_more_nodes_than_its_parameters_can_use() -> None:
    play = SweepPlay()
    assert sum(play.holds(play.sweep(9)).values()) == 3


def test_a_slot_may_take_several_processors() -> None:
    play = SweepPlay(ONE)
    play.sweep(1000, processors=2)
    submits = [each for each in play.pending if isinstance(each, SubmitAttempt)]
    assert [each.launcher.slots for each in submits if each.launcher] == [2] * 4


@pytest.mark.parametrize("walltime", [MINUTE, HOUR, 2 * HOUR])
def test_a_launcher_is_long_enough_for_a_parameter_of_full_walltime(walltime: int) -> None:
    """Otherwise a parameter that never ends would be returned by each Launcher, and started again for ever."""
    play = SweepPlay(ONE, walltime=Duration(walltime))
    play.sweep()
    (submit, *_) = [each for each in play.pending if isinstance(each, SubmitAttempt)]
    assert submit.launcher is not None
    assert submit.request.walltime >= walltime
    ends_by = submit.launcher.limit + submit.launcher.grace
    assert submit.request.walltime - submit.launcher.grace - LEAVE_BEFORE >= ends_by + 30 * SECOND


def test_a_parameter_without_a_walltime_makes_no_launcher_longer() -> None:
    play = SweepPlay(ONE)
    play.sweep(walltime=PARAMETER_WALLTIME)
    assert {each.request.walltime for each in play.pending if isinstance(each, SubmitAttempt)} == {LAUNCHER_WALLTIME}


def test_launchers_use_the_queue_and_qos_of_the_cluster_s_scavenge_rules() -> None:
    rules = Scavenge(queue="backfill", qos="low")
    cluster = ClusterSettings(name="alpha", batch="slurm", processors_per_node=NODE, scavenge=rules)
    play = SweepPlay(ONE, clusters={"alpha": cluster})
    play.sweep()
    submits = [each for each in play.pending if isinstance(each, SubmitAttempt)]
    assert {(each.request.queue, each.request.qos) for each in submits} == {("backfill", "low")}


def test_processors_committed_to_jobs_are_not_scavenged() -> None:
    play = SweepPlay(ONE)
    play.submit(component(10, "alpha"))
    assert sum(play.holds(play.sweep()).values()) == 1


def test_no_sweep_grows_where_local_jobs_wait_or_nodes_are_partly_busy() -> None:
    play = SweepPlay(ONE)
    play.wanted["alpha"] = 64
    play.measure()
    sweep = play.sweep()
    assert play.holds(sweep) == {}
    play.wanted["alpha"] = 0
    play.busy["alpha"] = 3
    play.measure()
    assert play.holds(sweep) == {"alpha": 1}


def test_the_grid_file_limits_the_scavenged_nodes_of_a_cluster_or_forbids_them() -> None:
    clusters = {
        "alpha": ClusterSettings(name="alpha", batch="slurm", processors_per_node=4, scavenge=Scavenge(max_nodes=2)),
        "beta": ClusterSettings(name="beta", batch="slurm", processors_per_node=4, scavenge=Scavenge(off=True)),
    }
    play = SweepPlay({"alpha": 16, "beta": 16}, clusters=clusters)
    assert play.holds(play.sweep()) == {"alpha": 2}


# ---- feeding


def test_the_first_feed_to_a_kcm_replaces_its_inventory_and_later_ones_add_to_it() -> None:
    play = SweepPlay(ONE)
    sweep = play.sweep(1000)
    play.start_all(sweep)
    assert play.want(sweep, "alpha", 20) == Intervals(((1, 20),))
    assert play.want(sweep, "alpha", 5) == Intervals(((21, 25),))
    first, second = play.feeds()
    assert (first.anew, first.numbers, len(first.launchers)) == (True, Intervals(((1, 20),)), 4)
    assert (second.anew, second.numbers) == (False, Intervals(((21, 25),)))


def test_after_a_reconnect_the_kcm_is_fed_its_whole_inventory_anew() -> None:
    play = SweepPlay(ONE)
    sweep = play.sweep(1000)
    play.start_all(sweep)
    play.want(sweep, "alpha", 20)
    play.ran(play.staying(sweep)[0], range(1, 6))
    play.lose("alpha")
    play.hints.clear()
    play.reach("alpha")
    (feed,) = play.feeds()
    assert (feed.anew, feed.numbers, len(feed.launchers)) == (True, Intervals(((6, 20),)), 4)


def test_parameters_that_end_in_the_batch_of_a_reconnect_are_not_fed_again() -> None:
    """Their end is acknowledged before the feed reaches the KCM; fed again, they would run twice."""
    play = SweepPlay(ONE)
    sweep = play.sweep(1000)
    play.start_all(sweep)
    play.want(sweep, "alpha", 20)
    launcher = play.staying(sweep)[0]
    attempt = launcher.id
    ended = ParametersEnded(cluster="alpha", sweep=sweep, attempt=attempt, results=(result(1), result(7)))
    play.hints.clear()
    play.apply(ClusterConnected(cluster="alpha", version="22.05"), ended)
    (feed,) = play.feeds()
    assert (feed.anew, feed.numbers) == (True, Intervals(((2, 6), (8, 20))))


def test_returned_parameters_are_fed_first_and_no_result_is_recorded_twice() -> None:
    play = SweepPlay(ONE)
    sweep = play.sweep(1000)
    play.start_all(sweep)
    play.want(sweep, "alpha", 20)
    launcher = play.staying(sweep)[0]
    play.ran(launcher, [1, 2, 3])
    play.ran(launcher, [3, 2, 4, 4])
    assert play.recorded(sweep) == [1, 2, 3, 4]
    play.back(sweep, "alpha", Intervals(((3, 8), (900, 999))), begun=Intervals(((5, 5),)))
    assert play.record(sweep).out_on("alpha") == Intervals(((9, 20),))
    assert play.record(sweep).preempted == 1
    assert play.want(sweep, "alpha", 6) == Intervals(((5, 8), (21, 22)))


def test_a_result_counts_from_whichever_cluster_it_comes() -> None:
    """A parameter was returned and fed to another cluster, but the first had run it after all."""
    play = SweepPlay({"alpha": 16, "beta": 16})
    sweep = play.sweep(1000)
    play.start_all(sweep)
    play.want(sweep, "alpha", 8)
    play.back(sweep, "alpha", Intervals(((1, 2),)))
    play.want(sweep, "beta", 1)
    play.ran(play.staying(sweep, "alpha")[0], [1, 2])
    assert play.record(sweep).done == Intervals(((1, 2),))
    assert not play.record(sweep).out_on("beta")
    play.ran(play.staying(sweep, "beta")[0], [1])
    assert play.recorded(sweep) == [1, 2]


def test_near_the_end_no_cluster_is_fed_more_than_its_share() -> None:
    play = SweepPlay({"alpha": 16, "beta": 16})
    sweep = play.sweep(40)
    play.start_all(sweep)
    assert len(play.want(sweep, "alpha", 40)) == 20
    assert len(play.want(sweep, "beta", 40)) == 20


def test_at_the_end_unstarted_parameters_are_recalled_for_launchers_without_work() -> None:
    play = SweepPlay({"alpha": 4, "beta": 4})
    sweep = play.sweep(40)
    alpha, beta = play.staying(sweep, "alpha"), play.staying(sweep, "beta")
    play.start(*alpha, *beta)
    play.want(sweep, "alpha", 40)
    play.want(sweep, "beta", 40)
    play.ran(beta[0], range(21, 41))
    play.want(sweep, "beta", 8)
    recalls = [hint for hint in play.hints if isinstance(hint, RecallParameters)]
    assert [(each.cluster, each.most) for each in recalls] == [("alpha", 4)]
    play.back(sweep, "alpha", Intervals(((17, 20),)))
    assert play.record(sweep).out_on("beta") == Intervals(((17, 20),))


def test_parameters_are_recalled_again_from_a_cluster_that_has_as_many_as_at_the_last_recall() -> None:
    play = SweepPlay({"alpha": 4, "beta": 4})
    sweep = play.sweep(40)
    play.start_all(sweep)
    play.want(sweep, "alpha", 40)
    play.want(sweep, "beta", 40)
    play.ran(play.staying(sweep, "beta")[0], range(21, 41))
    play.want(sweep, "beta", 8)
    returned = Intervals(((17, 20),))
    play.back(sweep, "alpha", returned)
    play.wanted["beta"] = 4
    play.measure()
    play.back(sweep, "beta", returned)
    assert play.record(sweep).out_on("alpha") == Intervals(((1, 20),))
    play.wanted["beta"] = 0
    play.go()
    play.measure()
    play.start_all(sweep)
    play.want(sweep, "beta", 8)
    recalls = [hint for hint in play.hints if isinstance(hint, RecallParameters)]
    assert [(each.cluster, each.most) for each in recalls] == [("alpha", 4), ("alpha", 4)]


def test_launchers_without_work_are_stopped() -> None:
    play = SweepPlay({"alpha": 16})
    sweep = play.sweep(16)
    play.start_all(sweep)
    play.want(sweep, "alpha", 16)
    launchers = play.staying(sweep)
    play.ran(launchers[0], range(1, 10))
    doing = tuple((each.id, n, Instant(5)) for n, each in enumerate(launchers))
    play.apply(LaunchersSeen(cluster="alpha", launchers=doing))
    assert play.staying(sweep) == launchers, "a fed parameter that no Launcher runs yet may start on any of them"
    play.ran(launchers[1], [10])
    assert [each.id for each in play.staying(sweep)] == [each.id for each in launchers[1:]]


# ---- ends


def test_a_sweep_is_done_when_all_parameters_are() -> None:
    play = SweepPlay(ONE)
    sweep = play.sweep(8)
    play.start_all(sweep)
    numbers = play.want(sweep, "alpha", 8)
    play.ran(play.staying(sweep)[0], list(numbers)[:-1])
    play.ran(play.staying(sweep)[0], [8], status=3)
    assert play.record(sweep).state is JobState.STOPPING
    play.go()
    assert play.record(sweep).state is JobState.DONE
    assert play.record(sweep).failed == Intervals(((8, 8),))
    assert play.record(sweep).charged > 0
    check(play)


def test_output_is_collected_before_a_sweep_is_done_and_no_node_is_held_meanwhile() -> None:
    play = SweepPlay(ONE, max_runners=1)
    sweep, other = play.sweep(8, stage_out=("out-{x}",), stage_out_to=(("out-{x}", "of/{x}"),)), play.sweep(4)
    play.start_all(sweep)
    play.ran(play.staying(sweep)[0], play.want(sweep, "alpha", 8))
    assert (play.record(sweep).state, play.record(sweep).collecting) == (JobState.RUNNING, True)
    assert play.staying(sweep) == []
    [command] = [each for each in play.pending if isinstance(each, CollectOutput)]
    assert command.kind is OutputKind.SUCCESSFUL_PARAMETERS
    assert (command.paths, command.to) == (("out-{x}",), (("out-{x}", "of/{x}"),))
    play.go()
    play.measure()
    assert play.launchers(sweep) == []
    assert play.staying(other), "a sweep that collects output leaves its nodes to others"
    play.apply(HoldRequested(work=sweep))
    assert (play.record(sweep).state, play.record(sweep).collecting) == (JobState.RUNNING, True)
    assert not any(isinstance(each, CollectOutput) for each in play.pending), "output is requested once"
    play.apply(OutputCollected(job=sweep, files=8, size=80))
    assert play.record(sweep).state is JobState.DONE
    check(play)


def test_missing_output_fails_a_sweep_and_a_cancel_needs_no_output() -> None:
    for event, state in (
        (OutputCollected(job=JobId(1), reason=Reason("no_output_file", "request", "Some are missing.", "")), "failed"),
        (CancelRequested(work=JobId(1)), "cancelled"),
    ):
        play = SweepPlay(ONE)
        sweep = play.sweep(4, stage_out=("out-{x}",))
        play.start_all(sweep)
        play.ran(play.staying(sweep)[0], play.want(sweep, "alpha", 4))
        play.go()
        play.apply(event)
        assert str(play.record(sweep).state) == state
        assert play.record(sweep).reason is not None
        check(play)


def test_a_cancelled_sweep_keeps_the_results_so_far() -> None:
    play = SweepPlay(ONE)
    sweep = play.sweep(100)
    play.start_all(sweep)
    play.want(sweep, "alpha", 8)
    play.apply(CancelRequested(sweep))
    play.ran(play.launchers(sweep)[0], [1, 2])
    play.go()
    assert play.record(sweep).state is JobState.CANCELLED
    assert play.recorded(sweep) == [1, 2]
    check(play)


def test_a_held_sweep_returns_its_nodes_and_continues_where_it_stopped() -> None:
    play = SweepPlay(ONE)
    sweep = play.sweep(100)
    play.start_all(sweep)
    play.want(sweep, "alpha", 8)
    play.ran(play.staying(sweep)[0], [1, 2])
    play.apply(HoldRequested(sweep))
    play.back(sweep, "alpha", Intervals(((3, 8),)))
    play.go()
    assert play.record(sweep).state is JobState.HELD
    assert not play.launchers(sweep)
    play.measure()
    play.apply(ReleaseRequested(sweep))
    assert play.record(sweep).state is JobState.RUNNING
    assert play.holds(sweep) == {"alpha": 4}
    play.start_all(sweep)
    assert play.want(sweep, "alpha", 3) == Intervals(((3, 5),))
    check(play)


def test_a_forced_cancel_waits_for_no_cluster() -> None:
    play = SweepPlay({"alpha": 16, "beta": 16})
    sweep = play.sweep(100)
    play.start_all(sweep)
    play.lose("beta")
    play.apply(CancelRequested(sweep))
    play.go()
    assert play.record(sweep).state is JobState.STOPPING
    play.apply(CancelRequested(sweep, force=True))
    play.apply()
    play.go()
    play.apply()
    assert play.record(sweep).state is JobState.CANCELLED
    assert len(play.pending_cancels) == 4


# ---- sharing


def test_a_new_runner_makes_the_others_shrink_and_they_grow_when_one_ends() -> None:
    play = SweepPlay({"alpha": 32})
    first = play.sweep()
    play.start_all(first)
    second = play.sweep()
    assert (play.holds(first), play.holds(second)) == ({"alpha": 4}, {})
    assert play.history[-1].kind == "sweep_shrunk"
    play.go()
    assert (play.holds(first), play.holds(second)) == ({"alpha": 4}, {"alpha": 4})
    play.start_all(second)
    play.apply(CancelRequested(first))
    play.go()
    assert play.holds(second) == {"alpha": 8}
    check(play)


@pytest.mark.parametrize(("personal", "nodes"), [(False, [2, 2, 4]), (True, [3, 3, 2])])
def test_a_users_sweeps_share_that_users_nodes_and_in_a_personal_koalad_each_is_a_user(
    personal: bool, nodes: list[int]
) -> None:
    play = SweepPlay({"alpha": 32}, personal=personal)
    sweeps = [play.sweep(owner=owner) for owner in ("ann", "ann", "bob")]
    play.go()
    assert [play.holds(sweep)["alpha"] for sweep in sweeps] == nodes


def test_no_more_runners_are_active_than_max_runners() -> None:
    play = SweepPlay(ONE, max_runners=1)
    first, second = play.sweep(), play.sweep()
    assert play.record(second).state is JobState.WAITING
    assert [each.kind for each in play.history if each.job == second] == ["work_submitted", "sweep_waits"]
    play.apply(CancelRequested(first))
    play.go()
    assert play.record(second).state is JobState.RUNNING


# ---- reclaiming


def test_a_job_that_waited_for_a_sweep_has_the_nodes_of_others_in_the_step_that_ends_it() -> None:
    play = SweepPlay({"alpha": 8})
    first, second = play.sweep(1), play.sweep(100)
    assert (play.holds(first), play.holds(second)) == ({"alpha": 1}, {"alpha": 1})
    job = play.submit(component(8), after=(first,))
    play.start(*play.staying(first))
    play.want(first, "alpha", 1)
    play.ran(play.staying(first)[0], [1])
    while play.record(first).state is not JobState.DONE:
        assert play.job(job).state is JobState.BLOCKED
        play.measure()
        play.go()
    assert play.job(job).state is JobState.CLAIMING
    assert not play.staying(second)


def test_a_job_of_the_grid_is_placed_on_scavenged_nodes_at_once() -> None:
    play = SweepPlay(ONE)
    sweep = play.sweep()
    play.start_all(sweep)
    job = play.submit(component(6))
    assert play.job(job).state is JobState.CLAIMING
    assert play.holds(sweep) == {"alpha": 2}
    assert [each.details["nodes"] for each in play.history if each.kind == "sweep_preempted"] == [2]
    play.go()
    play.apply()
    assert play.holds(sweep) == {"alpha": 2}, "it neither grows nor shrinks again before the job has its nodes"
    play.run(job)
    play.measure()
    assert play.holds(sweep) == {"alpha": 2}
    play.end(play.attempts(job)[0])
    play.obey()
    play.measure()
    assert play.holds(sweep) == {"alpha": 4}


def test_processors_of_preemptible_launchers_that_are_listed_as_idle_count_once() -> None:
    """A subordinate queue's processors are listed as idle while its jobs run, since other jobs suspend these."""
    play = SweepPlay(ONE)
    sweep = play.sweep()
    play.start_all(sweep)
    shown = play.measurement("alpha")
    play.apply(replace(shown, state=replace(shown.state, idle=4 * NODE, free_nodes=((NODE, 4),))))
    jobs = [play.submit(component(3 * NODE)), play.submit(component(2 * NODE))]
    assert [play.job(each).state for each in jobs] == [JobState.CLAIMING, JobState.WAITING]


def test_a_sweep_shrinks_by_the_nodes_that_local_jobs_lack_and_no_further() -> None:
    play = SweepPlay(ONE)
    sweep = play.sweep()
    play.start_all(sweep)
    play.wanted["alpha"] = 5
    play.measure()
    assert play.holds(sweep) == {"alpha": 2}
    play.measure()
    play.go()
    assert play.holds(sweep) == {"alpha": 2}
    play.measure()
    assert play.holds(sweep) == {"alpha": 2}
    play.wanted["alpha"], play.busy["alpha"] = 0, 2
    play.measure()
    assert play.holds(sweep) == {"alpha": 2}
    play.busy["alpha"] = 0
    play.measure()
    assert play.holds(sweep) == {"alpha": 4}


def test_the_launcher_that_pulled_last_is_reclaimed_first() -> None:
    play = SweepPlay(ONE)
    sweep = play.sweep()
    play.start_all(sweep)
    launchers = play.staying(sweep)
    pulled = tuple((each.id, 4, Instant(100 + n % 3)) for n, each in enumerate(launchers))
    play.apply(LaunchersSeen(cluster="alpha", launchers=pulled))
    assert set(play.engine.scavenger.running_parameters.values()) == {4}
    play.wanted["alpha"] = 4
    play.measure()
    assert play.staying(sweep) == [launchers[0], launchers[1], launchers[3]]


def test_under_equipartition_all_the_runner_that_lost_nodes_gets_them_back() -> None:
    play = SweepPlay({"alpha": 16, "beta": 16}, policies=ScavengingPolicies(fairshare=EQUIPARTITION_ALL))
    first, second = play.sweep(), None
    play.start_all(first)
    second = play.sweep()
    play.go()
    play.start_all(second)
    before = play.holds(first), play.holds(second)
    play.wanted["alpha"] = 8
    play.measure()
    after = play.holds(first), play.holds(second)
    lost = [sum(was.values()) - sum(now.values()) for was, now in zip(before, after, strict=True)]
    assert sum(lost) == 2
    play.go()
    reclaimed = [dict(play.record(each).reclaimed).get("alpha", 0) for each in (first, second)]
    assert reclaimed == lost
    play.wanted["alpha"] = 0
    play.measure()
    assert (play.holds(first), play.holds(second)) == before
    assert not play.record(first).reclaimed
    assert not play.record(second).reclaimed


def test_under_equipartition_all_no_runner_is_compensated_after_the_set_of_runners_changes() -> None:
    play = SweepPlay(ONE, policies=ScavengingPolicies(fairshare=EQUIPARTITION_ALL))
    sweep = play.sweep()
    play.start_all(sweep)
    play.wanted["alpha"] = 8
    play.measure()
    assert dict(play.record(sweep).reclaimed) == {"alpha": 2}
    other = play.sweep()
    assert not play.record(sweep).reclaimed
    play.go()
    play.wanted["alpha"] = 0
    play.measure()
    assert (play.holds(sweep), play.holds(other)) == ({"alpha": 2}, {"alpha": 2})


def test_a_cluster_that_was_unreachable_when_a_runner_came_is_shared_with_it_later() -> None:
    play = SweepPlay({"alpha": 16, "beta": 16})
    first = play.sweep()
    play.start_all(first)
    play.lose("beta")
    second = play.sweep()
    play.go()
    assert (play.holds(first), play.holds(second)) == ({"alpha": 2, "beta": 4}, {"alpha": 2})
    play.reach("beta")
    play.measure()
    play.go()
    play.measure()
    assert (play.holds(first), play.holds(second)) == ({"alpha": 2, "beta": 2}, {"alpha": 2, "beta": 2})


# ---- Launchers that fail


def test_a_launcher_that_does_not_start_is_withdrawn_and_tried_again_later() -> None:
    play = SweepPlay(ONE)
    sweep = play.sweep()
    pauses = []
    for _ in range(3):
        waiting = play.holds(sweep)
        play.apply(after=Duration(29 * SECOND))
        assert play.holds(sweep) == waiting
        play.apply(after=SECOND)
        assert play.holds(sweep) == {}
        assert all(each.launcher and each.launcher.stop_reason == "withdrawn" for each in play.launchers(sweep))
        play.go()
        since = play.now
        play.measure()
        while not play.holds(sweep):
            play.wake()
            play.measure()
        pauses.append(round((play.now - since) / SECOND))
    assert pauses == [30, 60, 120]
    assert [each.details["nodes"] for each in play.history if each.kind == "launcher_withdrawn"] == [4, 4, 4]


def test_the_start_time_out_of_a_launcher_counts_from_the_end_of_its_staging() -> None:
    """A large transfer may take long; in the queue the Launcher has no more time than any other."""
    play = SweepPlay(ONE)
    sweep = play.sweep(stage_in=("large",))
    play.apply(after=START_TIMEOUT)
    waiting = play.staying(sweep)
    assert len(waiting) == 4
    play.apply(*(AttemptSubmitted(attempt=each.id, batch_id=str(each.id)) for each in waiting))
    play.apply(after=Duration(START_TIMEOUT - SECOND))
    assert len(play.staying(sweep)) == 4
    play.apply(after=SECOND)
    assert play.holds(sweep) == {}
    assert all(each.launcher and each.launcher.stop_reason == "withdrawn" for each in play.launchers(sweep))


def test_a_launcher_whose_files_never_arrive_is_withdrawn_at_the_claim_time_out() -> None:
    play = SweepPlay(ONE)
    sweep = play.sweep(stage_in=("large",))
    play.apply(after=Duration(play.settings.claim_timeout - SECOND))
    assert play.holds(sweep) == {"alpha": 4}
    play.apply(after=SECOND)
    assert play.holds(sweep) == {}


def test_a_lost_launcher_is_replaced_at_once_and_a_cluster_that_fails_repeatedly_is_excluded() -> None:
    play = SweepPlay({"alpha": 4, "beta": 4})
    sweep = play.sweep()
    play.start(*play.staying(sweep, "beta"))
    for _ in range(3):
        (launcher,) = play.staying(sweep, "alpha")
        play.begin(launcher)
        play.end(launcher.id, 137, "killed")
        play.go()
        play.apply()
    assert play.holds(sweep) == {"beta": 1}
    lost = [line.details for line in play.history if line.kind == "launcher_lost"]
    advice = f"`koala show {launcher_id(lost[0]['launcher'])}` shows its history."
    assert [len(lost), lost[0]["message"]] == [3, f"It was killed: exit status 137. {advice}"]
    assert play.kinds.count("cluster_excluded") == 1
    assert play.record(sweep).excluded[0][0] == "alpha"
    why = play.engine.scavenger.why_no_more(play.now, play.record(sweep))["alpha"]
    assert why == "3 Launchers failed there in a row; the next comes in 10m"
    play.apply(after=LEFT_OUT)
    play.measure()
    assert play.holds(sweep) == {"alpha": 1, "beta": 1}


def test_a_cluster_with_results_between_failures_is_not_excluded() -> None:
    play = SweepPlay({"alpha": 4})
    sweep = play.sweep()
    for number in range(1, 5):
        (launcher,) = play.staying(sweep)
        play.begin(launcher)
        play.ran(launcher, [number])
        play.end(launcher.id, 137, "killed")
        play.go()
        play.measure()
    assert play.kinds.count("launcher_lost") == 4
    assert (play.holds(sweep), play.record(sweep).excluded) == ({"alpha": 1}, ())


def test_a_launcher_that_cannot_be_submitted_counts_as_failed() -> None:
    play = SweepPlay({"alpha": 4})
    sweep = play.sweep()
    for _ in range(3):
        (launcher,) = play.staying(sweep)
        play.apply(SubmissionFailed(attempt=launcher.id, reason=BUSY_QUEUE))
        play.apply()
    assert play.holds(sweep) == {}
    assert play.record(sweep).state is JobState.RUNNING
    assert play.record(sweep).excluded


def test_a_launcher_that_drained_is_not_a_failure() -> None:
    play = SweepPlay({"alpha": 4})
    sweep = play.sweep()
    for _ in range(4):
        (launcher,) = play.staying(sweep)
        play.begin(launcher)
        play.apply(after=Duration(MINUTE))
        play.end(launcher.id)
        play.go()
        play.measure()
    assert "launcher_lost" not in play.kinds
    assert play.holds(sweep) == {"alpha": 1}


def test_a_sweep_that_every_cluster_refuses_fails() -> None:
    refusal = Reason("no_such_account", "request", "No such account.", "Name another.", command="sbatch")
    play = SweepPlay({"alpha": 4, "beta": 4})
    sweep = play.sweep()
    for _ in range(3):
        for launcher in play.staying(sweep):
            play.apply(SubmissionFailed(attempt=launcher.id, reason=refusal))
            play.apply()
    play.apply()
    job = play.record(sweep)
    assert (job.state, job.reason and job.reason.code) == (JobState.FAILED, "no_such_account")
    check(play)


def test_launchers_that_exceed_their_walltime_are_not_a_refusal() -> None:
    """They may have been suspended unnoticed; in any case, no batch system refused the request of the sweep."""
    play = SweepPlay({"alpha": 4})
    sweep = play.sweep()
    for _ in range(3):
        (launcher,) = play.staying(sweep)
        play.begin(launcher)
        seen: dict[str, Any] = {
            "batch_id": "1",
            "state": BatchState.ENDED,
            "ending": ReportedEnding.WALLTIME,
            "at": play.now,
        }
        play.apply(BatchStatusSeen(attempt=launcher.id, **seen))
        play.go()
        play.measure()
    assert [line.details["code"] for line in play.history if line.kind == "launcher_lost"] == ["walltime_exceeded"] * 3
    assert (play.record(sweep).state, play.record(sweep).excluded[0][0]) == (JobState.RUNNING, "alpha")


def test_launchers_that_fail_everywhere_fail_the_sweep_with_their_reason() -> None:
    play = SweepPlay({"alpha": 4})
    sweep = play.sweep()
    for _ in range(3):
        (launcher,) = play.staying(sweep)
        play.begin(launcher)
        play.end(launcher.id, 70)
        play.go()
        play.measure()
    reason, last = play.record(sweep).reason, launcher.id
    expected = f"alpha: Launcher {last} ended with exit status 70. "
    expected += f"Look at its standard error with `koala logs {last} -e`."
    assert str(reason) == expected


def test_a_parameter_that_is_larger_than_every_node_fails_its_sweep() -> None:
    play = SweepPlay(ONE)
    sweep = play.sweep(processors=5)
    play.measure()
    job = play.record(sweep)
    assert (job.state, job.reason and job.reason.code) == (JobState.FAILED, "too_large")


def test_a_sweep_uses_only_the_cluster_that_it_names() -> None:
    play = SweepPlay()
    assert play.holds(play.sweep(cluster="beta")) == {"beta": 4}


# ---- black holes


def test_a_node_on_which_everything_fails_is_excluded_if_others_work() -> None:
    play = SweepPlay(ONE)
    sweep = play.sweep()
    play.start_all(sweep)
    play.want(sweep, "alpha", 40)
    good, bad, *_ = play.staying(sweep)
    play.apply(LauncherSuspected(cluster="alpha", attempt=bad.id, host="n7"))
    assert bad in play.staying(sweep), "there is no success elsewhere yet"
    play.ran(good, [1, 2], host="n1")
    assert bad.id not in [each.id for each in play.staying(sweep)]
    assert play.record(sweep).black_holes == (("alpha", "n7"),)
    play.go()
    play.measure()
    assert len(play.staying(sweep)) == 3, "the idle node is the black hole"
    why = play.engine.scavenger.why_no_more(play.now, play.record(sweep))
    assert why == {"alpha": "what is idle there may be where everything failed at once"}
    play.apply(CancelRequested(play.submit(component(4))))
    play.end(good.id, 137, "killed")
    play.go()
    play.measure()
    submits = [each for each in play.pending if isinstance(each, SubmitAttempt) and each.lowest]
    assert [each.avoid for each in submits] == [("n7",)]
    message = translate.submit(INSTANCE, 1, submits[0], [], False, Duration(SECOND))
    assert message.batch["avoid"] == ["n7"]


def test_a_suspected_launcher_with_a_later_success_is_kept() -> None:
    play = SweepPlay(ONE)
    sweep = play.sweep()
    play.start_all(sweep)
    play.want(sweep, "alpha", 40)
    good, slow, *_ = play.staying(sweep)
    play.apply(LauncherSuspected(cluster="alpha", attempt=slow.id, host="n7"))
    play.ran(slow, [1], host="n7")
    play.ran(good, [2], host="n1")
    assert slow in play.staying(sweep)
    assert play.record(sweep).black_holes == ()


def test_launchers_are_trusted_when_the_program_fails_on_every_node() -> None:
    play = SweepPlay({"alpha": 8})
    sweep = play.sweep()
    play.start_all(sweep)
    one, two = (each.id for each in play.staying(sweep))
    play.apply(LauncherSuspected(cluster="alpha", attempt=one, host="n1"))
    assert not [hint for hint in play.hints if isinstance(hint, TrustLauncher)]
    play.apply(LauncherSuspected(cluster="alpha", attempt=two, host="n2"))
    trusted = [hint.attempt for hint in play.hints if isinstance(hint, TrustLauncher)]
    assert trusted == [one, two]


# ---- suspended


def test_a_suspended_launcher_is_recorded_and_neither_replaced_nor_counted_as_lost() -> None:
    """One history line counts all that are suspended at once, another one all that continue."""
    play = SweepPlay(ONE)
    sweep = play.sweep(100)
    play.start_all(sweep)
    launchers = play.staying(sweep)

    def seen(state: str) -> list[tuple[str, object]]:
        """The sweep's history lines that follow a batch status of two Launchers."""
        begun = len(play.history)
        attempts = [each.id for each in launchers[:2]]
        play.apply(
            *(BatchStatusSeen(attempt=each, batch_id="1", state=BatchState(state), at=play.now) for each in attempts)
        )
        play.measure()
        return [(line.kind, line.details["nodes"]) for line in play.history[begun:] if line.job == sweep]

    assert seen("suspended") == [("sweep_suspended", 2)]
    assert play.holds(sweep) == {"alpha": 4}
    play.restart()
    assert [line.kind for line in play.history if line.job == sweep].count("sweep_suspended") == 1
    assert seen("running") == [("sweep_resumed", 2)]


# ---- restarts


def test_a_restarted_koalad_continues_its_sweeps() -> None:
    play = SweepPlay(ONE)
    sweep = play.sweep(100)
    play.start_all(sweep)
    play.want(sweep, "alpha", 20)
    play.ran(play.staying(sweep)[0], [1])
    play.hints.clear()
    play.restart()
    assert play.holds(sweep) == {"alpha": 4}
    assert [(each.anew, each.numbers) for each in play.feeds()] == [(True, Intervals(((2, 20),)))]
    assert play.want(sweep, "alpha", 2) == Intervals(((21, 22),))


def test_a_restarted_koalad_keeps_the_prediction_of_the_clusters_that_it_has() -> None:
    play = SweepPlay(ONE, admission="dynamic")
    for _ in range(12):
        play.measure()
        play.now = Instant(play.now + 10 * MINUTE)
    checks = list(play.engine.scavenger.prediction.checks)
    assert checks
    play.learned = replace(play.learned, pasts=(*play.learned.pasts, Past("vu", 85, (Hour(0, 1.0, 85.0),))))
    play.restart()
    prediction = play.engine.scavenger.prediction
    assert [*prediction.checks] == checks[: len(prediction.checks)]
    assert len(checks) - len(prediction.checks) <= 1
    assert prediction.forecast(play.now) == pytest.approx(4)
    play.now = Instant(play.now + SETTLED)
    play.measure()
    assert [past.cluster for past in play.learned.pasts] == ["alpha"]


def test_a_restored_store_replaces_its_launchers_by_new_ones_with_higher_numbers() -> None:
    """The fate of the Launchers in a backup is unknown, and of later ones too; new numbers lie beyond all of theirs."""
    play = SweepPlay(ONE)
    sweep = play.sweep(100)
    play.start_all(sweep)
    play.want(sweep, "alpha", 8)
    before = max(play.pilots).job
    play.apply(StoreRestored(epoch=9, last_number=900))
    assert {job.launcher.stop_reason for job in play.launchers(sweep) if job.launcher} == {"no_longer_needed"}
    play.go()
    play.measure()
    assert play.holds(sweep) == {"alpha": 4}
    assert min(each.id.job for each in play.staying(sweep)) > before + JOBS_AHEAD
    assert play.record(sweep).request.components, "its request is unchanged"


def test_the_submit_message_describes_the_launcher_s_program() -> None:
    play = SweepPlay(ONE)
    sweep = play.sweep(1000, processors=2)
    submit = next(each for each in play.pending if isinstance(each, SubmitAttempt))
    program = translate.program(submit, Duration(99 * SECOND))
    assert program.sweep is not None
    assert (program.sweep["sweep"], program.sweep["slots"], program.sweep["limit_s"]) == (sweep, 2, 3600)
    assert space.count(program.sweep["space"]) == 1000
    assert (program.launch, program.processors, program.arguments, program.grace) == ("once", NODE, ["{x}"], 5)
    message = translate.submit(INSTANCE, 1, submit, [], False, Duration(SECOND))
    assert (message.batch["lowest"], message.batch["processors_per_node"]) == (True, NODE)
    received = from_json(json.loads(json.dumps(to_json(message))))
    assert space.count(received.program["sweep"]["space"]) == 1000
