"""One simulated cluster with `relay: files`: faults of KCMs, disks and file servers lose nothing."""

from typing import Any

import cluster_play
import pytest
from koalapy_adapters.messages import kcm

from koalapy.model.units import SECOND, Duration
from koalapy.world.behaviour import Behaviour

Play, TAG = cluster_play.Play, cluster_play.TAG
LONG = Behaviour(runs=Duration(50 * SECOND))
SEEDS = range(4)


def at_barrier(seed: int, **plan: Any) -> tuple[Any, Any]:
    play = Play(seed=seed, relay="files", **plan)
    koalad = play.connect()
    play.submit(koalad, behaviour=LONG)
    play.until(koalad, kcm.Report, phase="at_barrier")
    return play, koalad


def ended_once(play: Any, koalad: Any) -> None:
    assert play.until(koalad, kcm.Report, phase="ended").exit_status == 0
    assert len(play.program_log.runs(TAG)) == 1
    play.forget(koalad)
    assert [path for path in play.cluster.shared.files if TAG in path and "/ended/" not in path] == []
    assert play.cluster.quiescent


@pytest.mark.parametrize("seed", SEEDS)
def test_the_next_kcm_after_a_death_at_the_barrier_releases_soon(seed: int) -> None:
    play, _ = at_barrier(seed)
    play.cluster.kcms[0].kill()
    again = play.connect(TAG)
    began = play.agenda.now
    play.release(again)
    play.until(again, kcm.Report, phase="running")
    assert play.agenda.now - began < 10 * SECOND
    ended_once(play, again)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_older_kcm_notices_that_it_was_replaced(seed: int) -> None:
    play, _ = at_barrier(seed)
    again = play.connect(TAG)
    play.release(again)
    play.until(again, kcm.Report, phase="running")
    play.run(10)
    assert len(play.cluster.kcms) == 1
    ended_once(play, again)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_full_disk_only_delays_the_release(seed: int) -> None:
    play, koalad = at_barrier(seed)
    play.cluster.shared.full = True
    play.release(koalad)
    play.run(15)
    play.cluster.shared.full = False
    play.until(koalad, kcm.Report, phase="running")
    ended_once(play, koalad)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_absent_file_server_is_waited_for(seed: int) -> None:
    play, koalad = at_barrier(seed, orphan_timeout_s=120.0)
    play.release(koalad)
    play.until(koalad, kcm.Report, phase="running")
    play.cluster.shared.lose()
    play.run(40)
    play.cluster.shared.mend()
    ended_once(play, koalad)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cancel_is_sent_over_the_relay(seed: int) -> None:
    play, koalad = at_barrier(seed)
    play.release(koalad)
    play.until(koalad, kcm.Report, phase="running")
    play.cancel(koalad)
    assert play.until(koalad, kcm.Report, phase="ended").ending == "cancelled"


def test_nodes_that_cannot_connect_by_tcp_report_this_while_their_kcm_runs() -> None:
    play = Play()
    koalad = play.connect()
    play.cluster.cut_relay(Duration(300 * SECOND))
    play.submit(koalad)
    ended = play.until(koalad, kcm.Report, phase="ended")
    assert ended.error is not None
    assert (ended.error["code"], ended.error["whose"]) == ("shut_out", "cluster")
