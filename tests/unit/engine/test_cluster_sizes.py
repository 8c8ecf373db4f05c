"""A cluster that shows fewer processors than before is in trouble; jobs that fit on all of it wait for the rest."""

import re

import pytest
from engine_play import INSTANCE, Play, component

from koalapy.engine import Engine
from koalapy.model.change import Snapshot
from koalapy.model.cluster import ClusterSettings, ClusterState
from koalapy.model.events import ClusterConnected, ClusterMeasured
from koalapy.model.identity import JobId
from koalapy.model.request import WhenBusy
from koalapy.model.settings import Settings
from koalapy.model.states import JobState
from koalapy.model.units import DAY, Duration
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.scheduler.schedule import Policies

A_WHILE = Duration(DAY // 3)
SETTLED = (JobState.FAILED, "too_large")


def shows(play: Play, cluster: str, total: int, largest: int | None = None, after: Duration = Duration(1000)) -> None:
    play.now = type(play.now)(play.now + after)
    play.sizes = {**play.sizes, cluster: total}
    state = ClusterState(
        measured_at=play.now, total=total, idle=total, ours=0, others=0, waiting_local=0, largest=largest
    )  # fmt: skip
    play.apply(ClusterMeasured(cluster=cluster, state=state))


def outcome(play: Play, job: JobId) -> tuple[JobState, str]:
    found = play.job(job)
    return found.state, found.reason.code if found.reason else ""


def again(play: Play) -> None:
    """A new koalad, which knows what the store does."""
    jobs = tuple(job for job in play.jobs.values() if not job.state.final)
    snapshot = Snapshot(instance=INSTANCE, counters=play.counters, jobs=jobs)
    play.engine = Engine(play.settings, Policies(worst_fit, fpfs), snapshot)
    for cluster in play.sizes:
        play.apply(ClusterConnected(cluster=cluster, version="22.05"))


@pytest.fixture
def play() -> Play:
    return Play(sizes={"lab": 8})


def alike_one() -> Settings:
    return Settings(clusters=(ClusterSettings(name="lab", batch="slurm"),), max_overtakes=2)


def waiting(play: Play) -> JobId:
    """A job that needs all of the cluster, which is in use."""
    play.measure(lab=8)
    return play.submit(component(8))


@pytest.mark.parametrize("total", [0, 4])
def test_a_waiting_job_outlives_that_its_cluster_shows_less(play: Play, total: int) -> None:
    job = waiting(play)
    shows(play, "lab", total)
    shows(play, "lab", total, after=A_WHILE)
    assert outcome(play, job) == (JobState.WAITING, "")
    shows(play, "lab", 8)
    assert outcome(play, job) == (JobState.CLAIMING, "")


def test_a_waiting_job_outlives_that_its_cluster_gives_one_job_less(play: Play) -> None:
    job = waiting(play)
    shows(play, "lab", 8, largest=4)
    assert outcome(play, job) == (JobState.WAITING, "")


def test_a_new_job_too_fits_what_the_cluster_had_before(play: Play) -> None:
    shows(play, "lab", 4)
    assert outcome(play, play.submit(component(8))) == (JobState.WAITING, "")
    assert outcome(play, play.submit(component(9))) == SETTLED


def test_a_message_names_what_is_missing(play: Play) -> None:
    job = waiting(play)
    shows(play, "lab", 2)
    (lack,) = play.engine.explain(play.now, job)
    assert (lack.reason.code, lack.reason.whose) == ("smaller", "transient")
    assert lack.reason.message == "has only 2 of its 8 processors now, but 8 are needed."
    assert "nodes" in lack.reason.advice


@pytest.mark.parametrize(
    ("total", "processors", "message"),
    [
        (1, 1, "0 of 1 processor is idle, but 1 is needed."),
        (2, 2, "1 of 2 processors is idle, but 2 are needed."),
        (4, 2, "1 of 4 processors is idle, but 2 are needed."),
    ],
)
def test_one_processor_is_in_the_singular(total: int, processors: int, message: str) -> None:
    play = Play(sizes={"lab": total})
    play.submit(component(max(1, total - 1)))
    job = play.submit(component(processors), when_busy=WhenBusy.WAIT)
    (lack,) = play.engine.explain(play.now, job)
    assert re.sub(r" \(.*\)", "", lack.reason.message) == message  # without what is promised


def test_what_stays_away_is_gone_in_the_end(play: Play) -> None:
    job = waiting(play)
    shows(play, "lab", 4)
    for _ in range(2):
        shows(play, "lab", 4, after=A_WHILE)
        assert outcome(play, job) == (JobState.WAITING, "")
    shows(play, "lab", 4, after=A_WHILE)
    assert outcome(play, job) == SETTLED
    assert "lab has 4" in str(play.job(job).reason)


def test_of_several_smaller_sizes_the_largest_stays(play: Play) -> None:
    shows(play, "lab", 4)
    shows(play, "lab", 6, after=A_WHILE)
    shows(play, "lab", 5, after=Duration(2 * A_WHILE))
    assert outcome(play, play.submit(component(7))) == SETTLED
    assert outcome(play, play.submit(component(6))) == (JobState.WAITING, "")


def test_who_comes_back_for_a_moment_is_not_gone(play: Play) -> None:
    job = waiting(play)
    shows(play, "lab", 4)
    shows(play, "lab", 8, after=Duration(2 * A_WHILE))
    play.apply(after=Duration(1))
    assert outcome(play, job) == (JobState.CLAIMING, "")
    shows(play, "lab", 4)
    shows(play, "lab", 4, after=Duration(2 * A_WHILE))
    assert outcome(play, play.submit(component(8))) == (JobState.WAITING, "")


def test_time_without_a_connection_does_not_count(play: Play) -> None:
    job = waiting(play)
    shows(play, "lab", 4)
    play.lose("lab")
    play.apply(after=Duration(5 * A_WHILE))
    play.apply(ClusterConnected(cluster="lab", version="22.05"))
    shows(play, "lab", 4)
    assert outcome(play, job) == (JobState.WAITING, "")


@pytest.mark.parametrize("total", [0, 4])
def test_a_koalad_that_has_just_started_does_not_judge_who_was_there_before(play: Play, total: int) -> None:
    job = waiting(play)
    again(play)
    shows(play, "lab", total)
    shows(play, "lab", total, after=A_WHILE)
    assert outcome(play, job) == (JobState.WAITING, "")
    shows(play, "lab", total, after=Duration(2 * A_WHILE))
    assert outcome(play, job) == SETTLED


def test_a_cluster_that_has_shown_nothing_yet_judges_nobody() -> None:
    play = Play(sizes={"lab": 0})
    job = play.submit(component(8))
    assert outcome(play, job) == (JobState.WAITING, "")
    (lack,) = play.engine.explain(play.now, job)
    assert lack.reason.message == "shows no processors at all, but 8 are needed."
    shows(play, "lab", 8)
    assert outcome(play, job) == (JobState.CLAIMING, "")


def test_an_engine_that_is_made_anew_knows_what_the_last_one_did(play: Play) -> None:
    before = play.engine
    job = waiting(play)
    again(play)
    play.engine.inherit(before)
    shows(play, "lab", 4)
    assert outcome(play, job) == (JobState.WAITING, "")
    assert outcome(play, play.submit(component(8))) == (JobState.WAITING, "")


def test_who_waits_for_broken_nodes_is_passed() -> None:
    """However often: it does not wait for what the others take."""
    play = Play(alike_one(), sizes={"lab": 8})
    job = waiting(play)
    shows(play, "lab", 4)
    others = [play.submit(component(1)) for _ in range(4)]
    assert [play.job(each).state for each in others] == [JobState.CLAIMING] * 4
    assert (play.job(job).state, play.job(job).overtaken) == (JobState.WAITING, 0)
