"""One simulated cluster with the real machines of KCM and wrapper; the tests send koalad's messages."""

from typing import Any

import cluster_play
import pytest
from koalapy_adapters.messages import kcm

from koalapy.model.errors import TransientError
from koalapy.model.identity import AttemptId, InstanceId, JobId, tag_of
from koalapy.model.units import MINUTE, SECOND, Duration
from koalapy.world.behaviour import Behaviour

Play, TAG = cluster_play.Play, cluster_play.TAG


@pytest.mark.parametrize("batch", ["slurm", "sge", "pbs", "local"])
def test_a_job_runs_to_its_end(batch: str) -> None:
    play = Play(batch)
    koalad = play.connect()
    play.submit(koalad)
    play.release(koalad)
    ended = play.until(koalad, kcm.Report, phase="ended")
    assert (ended.ending, ended.exit_status, ended.batch_id) == ("exited", 0, "1")
    assert [node[2] for node in ended.nodes] == [4, 2]
    [run] = play.program_log.runs(TAG)
    assert not run.running
    assert all(end is not None and end - run.began >= 10 * SECOND for end in run.nodes.values())
    play.cancel(koalad)
    play.forget(koalad)
    assert play.cluster.quiescent
    assert koalad.numbers == list(range(1, len(koalad.numbers) + 1))
    assert not [path for path in play.cluster.shared.files if f"/{TAG}/" in path]


OTHER_STORES = str(tag_of(InstanceId("0ther"), AttemptId(JobId(1), 0, 1)))


@pytest.mark.parametrize(("name", "local"), [("somebody", 1), (OTHER_STORES, 0)], ids=["local", "other-store"])
def test_processors_that_other_jobs_lack_are_measured(name: str, local: int) -> None:
    """As on real batch systems, a sweep must see what waiting jobs lack: those of local users and of another store."""
    play = Play("slurm")
    koalad = play.connect()
    size = play.cluster.batch.size
    play.until(koalad, kcm.Measured, "", idle=size)
    first = play.cluster.foreign_job("somebody", size, Duration(30 * SECOND))
    second = play.cluster.foreign_job(name, size, Duration(30 * SECOND))
    seen = play.until(koalad, kcm.Measured, "", wanted_local=size, waiting_local=local)
    assert (seen.idle, seen.whole_nodes) == (0, [])
    play.cluster.batch.cancel(first.id)
    play.cluster.batch.cancel(second.id)
    koalad.arrived.clear()
    seen = play.until(koalad, kcm.Measured, "", idle=size)
    assert sum(processors * nodes for processors, nodes in seen.whole_nodes) == size


def test_no_program_starts_before_its_release() -> None:
    play = Play()
    koalad = play.connect()
    play.submit(koalad)
    ended = play.until(koalad, kcm.Report, phase="ended")
    assert ended.ending == "left_barrier"
    assert play.program_log.runs(TAG) == []


def test_output_of_a_program_is_found() -> None:
    play = Play()
    koalad = play.connect()
    play.run(5)
    assert play.cluster.stage("input")[0] == "input"
    play.submit(koalad, behaviour=Behaviour(files=("result.npy",)))
    play.release(koalad)
    play.until(koalad, kcm.Report, phase="ended")
    assert list(play.cluster.stat(TAG, ["result.npy", "other"])) == ["result.npy"]


def test_a_cancelled_job_is_stopped_over_the_relay_and_cleaned_up() -> None:
    play = Play()
    koalad = play.connect()
    play.submit(koalad, behaviour=Behaviour(runs=Duration(50 * SECOND)))
    play.release(koalad)
    play.until(koalad, kcm.Report, phase="running")
    play.cancel(koalad)
    assert play.until(koalad, kcm.Report, phase="ended").ending == "cancelled"
    assert not play.program_log.running(TAG)


def test_an_unreachable_head_node_refuses_logins() -> None:
    play = Play()
    play.cluster.out_of_reach(MINUTE)
    with pytest.raises(TransientError):
        play.connect()
    play.run(61)
    play.connect()


def test_the_same_seed_gives_the_same_world() -> None:
    def messages_of(seed: int) -> list[Any]:
        play = Play(seed=seed, load=0.5)
        koalad = play.connect()
        play.submit(koalad)
        play.release(koalad)
        play.until(koalad, kcm.Report, phase="ended")
        return koalad.arrived

    assert messages_of(3) == messages_of(3)
    assert messages_of(3) != messages_of(4)
