"""Faults on one simulated cluster, and the reactions of the real machines of KCM and wrapper."""

from typing import Any

import cluster_play
import pytest
from koalapy_adapters.messages import kcm

from koalapy.model.units import MINUTE, SECOND, Duration
from koalapy.world.behaviour import Behaviour
from koalapy.world.cluster.batch_job import SimBatchJob

Play, Koalad, TAG = cluster_play.Play, cluster_play.Koalad, cluster_play.TAG
LONG = Behaviour(runs=Duration(50 * SECOND))


def running(play: Any, behaviour: Behaviour = LONG, processors: int = 6) -> Any:
    """Start an attempt; return its koalad once it runs."""
    koalad = play.connect()
    play.submit(koalad, behaviour=behaviour, processors=processors)
    play.release(koalad)
    play.until(koalad, kcm.Report, phase="running")
    return koalad


def job_of(play: Any) -> SimBatchJob:
    jobs: list[SimBatchJob] = [job for job in play.cluster.batch.jobs.values() if job.name == TAG]
    [job] = jobs
    return job


class TestSubmit:
    @pytest.mark.parametrize("words", ["cluster submissions_closed", "request no_such_queue"])
    def test_a_refusal_is_reported_and_leaves_nothing(self, words: str) -> None:
        play = Play()
        koalad = play.connect()
        play.cluster.shell.submit_faults.refusals.append(words)
        play.submit(koalad)
        play.run(10)
        [refused] = koalad.of(kcm.Refused)
        assert refused.error["code"] == words.split()[1]
        assert play.cluster.quiescent

    @pytest.mark.parametrize("seed", range(4))
    def test_with_a_lost_reply_is_found_by_its_tag(self, seed: int) -> None:
        play = Play(seed=seed)
        koalad = play.connect()
        play.cluster.shell.submit_faults.lost_replies = 1
        play.submit(koalad)
        assert play.until(koalad, kcm.Submitted).batch_id == "1"
        assert len(play.cluster.batch.everything) == 1

    @pytest.mark.parametrize("with_server", [False, True])
    def test_that_hangs_is_ended_and_can_never_run(self, with_server: bool) -> None:
        play = Play()
        koalad = play.connect()
        play.cluster.shell.submit_faults.hangs.append((Duration(2 * MINUTE), with_server))
        play.submit(koalad)
        play.run(60)
        assert len(koalad.of(kcm.Refused)) == 1
        play.run(300)
        assert len(play.cluster.batch.everything) == int(with_server), (
            "the server still handles the submit in its queue"
        )
        assert play.program_log.runs(TAG) == []
        assert play.cluster.quiescent

    def test_that_takes_effect_after_its_kcm_ended_runs_once(self) -> None:
        play = Play()
        koalad = play.connect()
        play.cluster.shell.submit_faults.hangs.append((Duration(90 * SECOND), False))
        play.submit(koalad)
        play.run(10)
        play.cluster.kcms[0].kill()
        again = play.connect(TAG)
        again.deliver(play.submitted._replace(doubt=True))
        play.release(again)
        play.until(again, kcm.Report, phase="ended")
        play.run(200)
        assert len(play.cluster.batch.everything) == 2
        assert len(play.program_log.runs(TAG)) == 1
        assert play.cluster.quiescent

    def test_that_takes_effect_late_is_cancelled_with_the_first_one(self) -> None:
        """It waits in the queue behind its replacement; the KCM that cancels both was informed of only one."""
        play = Play(nodes=2, processors_per_node=4)
        koalad = play.connect()
        play.cluster.shell.submit_faults.hangs.append((Duration(60 * SECOND), False))
        play.submit(koalad, behaviour=LONG)
        play.run(10)
        play.cluster.kcms[0].kill()
        again = play.connect(TAG)
        again.deliver(play.submitted._replace(doubt=True))
        play.release(again)
        play.until(again, kcm.Report, phase="running")
        play.run(50)
        assert [job.state for job in play.cluster.batch.everything] == ["running", "queued"]
        again.leave()
        third = play.connect(TAG, batch_id=again.of(kcm.Submitted)[0].batch_id)
        play.run(15)
        play.cancel(third)
        play.run(5)
        assert [job.state for job in play.cluster.batch.everything] == ["ended", "ended"]
        assert len(play.program_log.runs(TAG)) == 1

    def test_is_ended_by_a_cancel_before_it_has_an_effect(self) -> None:
        play = Play()
        koalad = play.connect()
        play.cluster.shell.submit_faults.hangs.append((Duration(5 * MINUTE), False))
        play.submit(koalad)
        play.run(5)
        play.cancel(koalad)
        play.run(600)
        assert play.cluster.batch.everything == []


class TestKcm:
    def test_killed_at_any_step_is_replaced_and_the_job_ends_alike(self) -> None:
        for steps in range(1, 400):
            play = Play()
            play.cluster.environment.kcm_crash_point.left = steps
            koalad = play.connect()
            ended = _run_to_the_end(play, koalad)
            assert (ended.ending, ended.exit_status) == ("exited", 0), steps
            assert len(play.program_log.runs(TAG)) == 1, steps
            if play.cluster.environment.kcm_crash_point.left is not None:
                return
        raise AssertionError("it takes more steps than that")

    def test_that_is_replaced_but_still_runs_submits_nothing_twice(self) -> None:
        play = Play()
        old = play.connect()
        old.pipe.cut(near_notices=Duration(0), far_notices=Duration(10**12))
        new = play.connect()
        play.submit(new)
        play.release(new)
        play.until(new, kcm.Report, phase="ended")
        play.run(120)
        assert len(play.cluster.kcms) == 1
        assert len(play.cluster.batch.everything) == 1

    def test_ends_when_koalad_is_silent(self) -> None:
        play = Play()
        play.connect().pipe.stall(Duration(3 * MINUTE))
        play.run(70)
        assert play.cluster.kcms == []

    def test_waits_for_a_shared_directory_and_reports_when_it_is_usable(self) -> None:
        play = Play()
        play.cluster.shared.lose()
        koalad = play.connect()
        play.run(30)
        assert [welcome.error["code"] for welcome in koalad.of(kcm.Welcome)] == ["shared_gone"]
        play.cluster.mend()
        play.run(30)
        assert koalad.of(kcm.Welcome)[-1].error is None


class TestWrapper:
    def test_killed_at_any_step_leaves_nothing_and_ran_its_program_at_most_once(self) -> None:
        for steps in range(1, 200):
            play = Play()
            play.cluster.environment.wrapper_crash_point.left = steps
            koalad = play.connect()
            play.submit(koalad)
            while play.cluster.batch.everything[-1:] == [] or play.cluster.batch.everything[-1].live:
                assert play.agenda.step()
                if koalad.of(kcm.Report) and koalad.of(kcm.Report)[-1].phase == "at_barrier":
                    play.release(koalad)
            assert not play.program_log.running(TAG), steps
            play.cancel(koalad)
            assert len(play.program_log.runs(TAG)) <= 1, steps
            if play.cluster.environment.wrapper_crash_point.left is not None:
                return
        raise AssertionError("it takes more steps than that")

    def test_a_second_start_never_runs_the_program(self) -> None:
        play = Play("sge")
        koalad = running(play)
        play.cluster.batch.restart(job_of(play))
        report = play.until(koalad, kcm.Report, phase="ended")
        assert report.ending in ("restarted", "killed")
        play.run(300)
        assert len(play.program_log.runs(TAG)) == 1
        play.cancel(koalad)
        assert play.cluster.quiescent

    def test_exits_at_once_if_its_attempt_is_void(self) -> None:
        play = Play()
        koalad = play.connect()
        play.cluster.shell.submit_faults.hangs.append((Duration(2 * MINUTE), True))
        play.submit(koalad)
        play.run(5)
        play.cancel(koalad)
        play.run(300)
        [job] = play.cluster.batch.everything
        assert (job.ending, job.exit_status) in (("exited", 0), ("cancelled", None))
        assert play.program_log.runs(TAG) == []

    def test_without_relay_and_shared_directory_it_ends_its_program(self) -> None:
        play = Play(nodes=1, processors_per_node=8, orphan_timeout_s=20.0)
        running(play, Behaviour(runs=Duration(10 * MINUTE)), processors=4)
        [node] = play.cluster.batch.nodes
        node.cut(Duration(20 * MINUTE))
        play.run(50)
        assert not play.program_log.running(TAG)

    def test_a_relay_that_is_cut_is_found_again(self) -> None:
        play = Play()
        koalad = running(play, Behaviour(runs=Duration(100 * SECOND)))
        play.cluster.cut_relay(Duration(45 * SECOND))
        play.run(60)
        play.cancel(koalad)
        assert play.until(koalad, kcm.Report, phase="ended").ending in ("cancelled", "walltime")


class TestNodes:
    def test_an_attempt_on_a_node_cut_off_is_cleaned_up_only_after_its_program_has_ended(self) -> None:
        """The batch system reports it as lost; CleanedUp comes only when the orphan must have ended its program."""
        play = Play(nodes=1, processors_per_node=8, orphan_timeout_s=40.0)
        koalad = running(play, Behaviour(runs=Duration(10 * MINUTE)), processors=4)
        [node] = play.cluster.batch.nodes
        play.cluster.batch.cut(node, Duration(10 * MINUTE))
        play.run(5)
        play.cancel(koalad)
        assert not play.program_log.running(TAG)

    def test_a_restarted_job_runs_its_program_only_in_its_first_start(self) -> None:
        play = Play(nodes=2, processors_per_node=4, orphan_timeout_s=40.0, reruns_lost=1.0)
        koalad = running(play, Behaviour(runs=Duration(10 * MINUTE)), processors=4)
        play.cluster.batch.cut(job_of(play).nodes[0][0], Duration(10 * MINUTE))
        play.until(koalad, kcm.Report, phase="ended", ending="restarted")
        play.cancel(koalad)
        assert not play.program_log.running(TAG)
        assert len(play.program_log.runs(TAG)) == 1

    def test_a_job_on_a_lost_node_is_lost(self) -> None:
        play = Play(orphan_timeout_s=30.0)
        koalad = running(play, LONG)
        node = job_of(play).nodes[0][0]
        play.cluster.batch.lose(node)
        assert not any(node.name in run.nodes and run.nodes[node.name] is None for run in play.program_log.runs(TAG))
        play.run(120)
        play.cancel(koalad)
        assert not play.program_log.running(TAG)


class TestBatchSystem:
    @pytest.mark.parametrize("batch", ["slurm", "sge", "pbs", "local"])
    def test_a_kill_by_an_administrator_is_reported(self, batch: str) -> None:
        play = Play(batch)
        koalad = running(play)
        play.cluster.batch.kill(job_of(play))
        play.run(120)
        ends = [each for each in koalad.of(kcm.Report) if each.phase == "ended"]
        seen = [each for each in koalad.of(kcm.BatchStatus) if each.state == "ended"]
        assert ends or seen
        assert not play.program_log.running(TAG)

    def test_a_job_that_vanishes_is_missing_and_not_ended(self) -> None:
        play = Play("pbs")
        koalad = play.connect()
        play.submit(koalad, processors=6)
        play.until(koalad, kcm.Submitted)
        play.cluster.batch.vanish(job_of(play))
        assert play.until(koalad, kcm.BatchStatus, state="missing")
        play.cancel(koalad)
        assert play.cluster.quiescent

    def test_that_is_down_is_polled_until_it_answers(self) -> None:
        play = Play()
        koalad = running(play)
        play.cluster.batch.down(Duration(40 * SECOND))
        play.cancel(koalad)
        assert play.cluster.quiescent

    def test_jobs_of_others_are_left_alone(self) -> None:
        play = Play()
        foreign = play.cluster.foreign_job("k0ther000000201", 4, Duration(30 * SECOND))
        koalad = running(play)
        play.cancel(koalad)
        play.forget(koalad)
        play.run(60)
        assert (foreign.cancels, foreign.ending, foreign.exit_status) == (0, "exited", 0)


class TestSharedDirectory:
    def test_a_lost_reply_to_the_start_lock_s_link_loses_nothing(self) -> None:
        play = Play()
        koalad = play.connect()
        play.submit(koalad)
        play.until(koalad, kcm.Submitted)
        play.cluster.shared.lose_next_link_reply()
        play.release(koalad)
        assert play.until(koalad, kcm.Report, phase="ended").exit_status == 0

    def test_an_unreadable_record_does_not_hide_the_end(self) -> None:
        play = Play()
        koalad = running(play)
        play.cluster.shared.spoil_record(TAG)
        koalad.leave()
        play.run(120)
        again = play.connect(TAG)
        seen = play.until(again, kcm.BatchStatus, state="ended")
        assert (seen.ending, seen.exit_status) == ("exited", 0)
        play.cancel(again)

    def test_that_is_full_refuses_new_attempts_and_keeps_running_ones(self) -> None:
        play = Play()
        koalad = running(play)
        play.cluster.shared.full = True
        play.submit(koalad, cluster_play.OTHER, number=9)
        play.run(60)
        [refused] = koalad.of(kcm.Refused)
        assert (refused.id, refused.error["code"]) == (9, "shared_full")
        assert play.until(koalad, kcm.Report, phase="ended").exit_status == 0


def _run_to_the_end(play: Any, koalad: Any) -> Any:
    """Act as koalad: reconnect after the loss of a KCM, and send unanswered commands again."""
    play.submit(koalad)
    released = False
    while True:
        if koalad.closed:
            koalad = play.connect(TAG)
            koalad.deliver(play.submitted._replace(doubt=True))
            released = False
        for report in koalad.of(kcm.Report, TAG):
            if report.phase == "at_barrier" and not released:
                released = True
                play.release(koalad)
            if report.phase == "ended":
                return report
        assert play.agenda.now < play.began + 20 * MINUTE
        assert play.agenda.step()
