"""The engine as one machine: jobs in, commands out in order; the tests report what happens on the clusters."""

from dataclasses import replace
from typing import Any

from engine_play import Play, alike, component, grid, make

from koalapy.model.cluster import ClusterSettings
from koalapy.model.commands import ReleaseAttempt, SubmitAttempt
from koalapy.model.errors import Reason
from koalapy.model.events import (
    CancelRequested,
    HoldRequested,
    MeasurementFailed,
    ReleaseRequested,
    WorkSubmitted,
)
from koalapy.model.identity import JobId
from koalapy.model.request import WhenBusy
from koalapy.model.states import JobState
from koalapy.model.units import Duration


def test_an_unordered_job_goes_to_the_emptiest_clusters_and_starts_when_all_are_at_the_barrier(play: Any) -> None:
    job = play.submit(component(4), component(4), component(4))
    assert [each.cluster for each in play.job(job).present] == ["alpha", "beta", "gamma"]
    first, second, third = play.attempts(job)
    play.come(first, second)
    assert not any(isinstance(command, ReleaseAttempt) for command in play.pending)
    play.come(third)
    released = [command for command in play.pending if isinstance(command, ReleaseAttempt)]
    assert [command.first_rank for command in released] == [0, 4, 8]
    assert [processes for _, _, processes in released[0].hosts] == [4, 4, 4]
    assert play.job(job).state is JobState.RUNNING


def test_a_job_is_done_when_all_its_attempts_are_cleaned_up(play: Any) -> None:
    job = play.submit(component(4), component(4))
    play.run(job)
    for attempt in play.attempts(job):
        play.end(attempt)
    assert play.job(job).state is JobState.STOPPING
    play.obey()
    assert play.job(job).state is JobState.DONE
    assert play.job(job).held_processor_us > 0


def test_committed_processors_are_not_committed_again(play: Any) -> None:
    first = play.submit(component(32, "alpha"), component(16, "beta"))
    second = play.submit(component(16, "beta"), component(32, "alpha"))
    assert play.job(first).state is JobState.CLAIMING
    assert play.job(second).state is JobState.WAITING
    play.measure()
    assert play.job(second).state is JobState.WAITING
    play.run(first)
    for attempt in play.attempts(first):
        play.end(attempt)
    play.obey()
    play.measure()
    assert play.job(second).state is JobState.CLAIMING
    assert play.job(second).submission_failures == 0


def test_under_fcfs_no_job_overtakes_another() -> None:
    play = Play(queueing="fcfs")
    play.measure(alpha=32)
    first = play.submit(component(32, "alpha"))
    second = play.submit(component(4, "beta"))
    assert [play.job(job).state for job in (first, second)] == [JobState.WAITING, JobState.WAITING]


def test_under_fpfs_the_first_waiting_job_is_overtaken_at_most_max_overtakes_times() -> None:
    settings = alike(max_overtakes=3)
    play = Play(settings)
    play.measure(alpha=32)
    first = play.submit(component(32, "alpha"))
    passing = [play.submit(component(1, "beta")) for _ in range(5)]
    states = [play.job(job).state for job in passing]
    assert states == [JobState.CLAIMING] * 3 + [JobState.WAITING] * 2
    assert play.job(first).overtaken == 3


def test_a_job_is_overtaken_as_soon_as_a_measurement_of_its_cluster_fails() -> None:
    play = Play(alike(max_overtakes=0))
    play.measure(alpha=32)
    first = play.submit(component(32, "alpha"))
    second = play.submit(component(4, "beta"))
    assert [play.job(job).state for job in (first, second)] == [JobState.WAITING, JobState.WAITING]
    play.apply(MeasurementFailed(cluster="alpha", reason=Reason("timeout", "transient", "No answer.", "Wait.")))
    assert [play.job(job).state for job in (first, second)] == [JobState.WAITING, JobState.CLAIMING]


def test_priority_comes_before_arrival(play: Any) -> None:
    play.measure(alpha=32, beta=16, gamma=16)
    low = play.submit(component(32), priority=15)
    high = play.submit(component(32), priority=5)
    play.measure()
    assert play.job(high).state is JobState.CLAIMING
    assert play.job(low).state is JobState.WAITING


def test_a_held_job_waits_until_it_is_unheld(play: Any) -> None:
    play.measure(alpha=32, beta=16, gamma=16)
    job = play.submit(component(4))
    play.apply(HoldRequested(job))
    play.measure()
    assert play.job(job).state is JobState.HELD
    play.apply(ReleaseRequested(job))
    assert play.job(job).state is JobState.CLAIMING


def test_a_job_that_can_never_fit_fails_with_advice(play: Any) -> None:
    job = play.submit(component(100))
    assert play.job(job).state is JobState.FAILED
    assert play.job(job).reason is not None
    assert play.job(job).reason.code == "too_large"
    assert "alpha has 32" in str(play.job(job).reason)


def test_two_submissions_with_the_same_key_make_one_job(play: Any) -> None:
    request = make(component(4))
    play.apply(WorkSubmitted(request=request, owner="me", key="k"))
    play.apply(WorkSubmitted(request=request, owner="me", key="k"))
    assert len(play.jobs) == 1


def test_a_job_may_go_into_the_shortest_queue_when_it_has_waited_long_enough(play: Any) -> None:
    play.measure(alpha=32, beta=16, gamma=16)
    job = play.submit(component(4), when_busy=WhenBusy.QUEUE)
    assert play.job(job).state is JobState.WAITING
    play.apply(after=play.settings.queue_after)
    commands = play.measure(alpha=32, beta=16, gamma=16)
    assert any(isinstance(command, SubmitAttempt) for command in commands)
    assert play.job(job).patient


def test_a_job_in_a_batch_queue_does_not_make_its_cluster_polled_more_often(play: Any) -> None:
    """The number of such jobs does not matter: their wrappers report when they start."""
    play.measure(alpha=32, beta=16, gamma=16)
    job = play.submit(component(4), when_busy=WhenBusy.QUEUE)
    assert all(play.urgent.values())
    play.apply(after=play.settings.queue_after)
    play.measure(alpha=32, beta=16, gamma=16)
    assert play.job(job).state is JobState.CLAIMING
    assert not any(play.urgent.values())
    play.measure()
    claimed = play.submit(component(4, "beta"))
    assert play.job(claimed).state is JobState.CLAIMING
    assert [name for name, urgent in play.urgent.items() if urgent] == ["beta"]


def test_two_cancels_in_one_batch_of_events_count_as_one(play: Any) -> None:
    play.measure(alpha=32, beta=16, gamma=16)
    job = play.submit(component(4))
    play.apply(CancelRequested(job), CancelRequested(job))
    assert play.job(job).state is JobState.CANCELLED


def test_a_key_is_remembered_after_its_job_is_final(play: Any) -> None:
    request = make(component(4000))
    play.apply(WorkSubmitted(request=request, owner="me", key="k"))
    assert play.job(JobId(1)).state is JobState.FAILED
    play.apply(WorkSubmitted(request=request, owner="me", key="k"))
    play.apply(WorkSubmitted(request=request, owner="somebody", key="k"))
    assert [job.owner for job in play.jobs.values()] == ["me", "somebody"]


def test_whole_nodes_are_committed_where_allocation_is_exclusive() -> None:
    alpha = ClusterSettings(name="alpha", batch="slurm", processors_per_node=4, exclusive=True)
    play = Play(grid(alpha), sizes={"alpha": 8})
    jobs = [play.submit(component(1)) for _ in range(3)]
    assert [play.job(job).state for job in jobs] == [JobState.CLAIMING] * 2 + [JobState.WAITING]


def test_components_of_one_job_in_one_queue_fit_there_together() -> None:
    clusters = (ClusterSettings(name=name, batch="slurm", backlog=100) for name in ("alpha", "beta"))
    play = Play(grid(*clusters, queue_after=Duration(0)), sizes={"alpha": 8, "beta": 8})
    busy = play.measurement("beta", others=8)
    play.apply(play.measurement("alpha", others=8), replace(busy, state=replace(busy.state, waiting_local=3)))
    job = play.submit(component(6), component(6), when_busy=WhenBusy.QUEUE)
    assert [each.cluster for each in play.job(job).present] == ["alpha", "beta"]


def test_jobs_that_no_measurement_shows_yet_count_in_the_backlog() -> None:
    """Two jobs come in one pass, a third in a pass of its own. The queue's backlog of four admits one of them."""
    alpha = ClusterSettings(name="alpha", batch="slurm", backlog=4)
    play = Play(grid(alpha, queue_after=Duration(0)), sizes={"alpha": 8})
    play.apply(play.measurement("alpha", others=8))
    asked = [WorkSubmitted(request=make(component(3), when_busy=WhenBusy.QUEUE), owner="me") for _ in range(2)]
    play.apply(*asked)
    play.submit(component(3), when_busy=WhenBusy.QUEUE)
    assert [job.state for job in play.jobs.values()] == [JobState.CLAIMING, JobState.WAITING, JobState.WAITING]
    play.come(*play.attempts(JobId(1)))
    play.apply(play.measurement("alpha", others=5))
    assert [job.state for job in play.jobs.values()][1:] == [JobState.CLAIMING, JobState.WAITING]
