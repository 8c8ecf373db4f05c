"""The engine when clusters join, change, are drained and leave while jobs wait and run."""

from dataclasses import replace
from typing import Any

import pytest
from engine_play import INSTANCE, Play, component, present
from sweep_play import SweepPlay

from koalapy.core.remaining import remaining_on
from koalapy.driver.driver import Delivery, Driver
from koalapy.engine import Engine
from koalapy.model.change import OutboxEntry
from koalapy.model.cluster import ClusterSettings
from koalapy.model.commands import CancelAttempt, Command, ForgetAttempt, SubmitAttempt
from koalapy.model.events import (
    AttemptSubmitted,
    CancelRequested,
    ClusterChanged,
    ClusterConnected,
    ClusterJoined,
    ClusterLeft,
    ClusterMeasured,
    Event,
    WorkSubmitted,
)
from koalapy.model.identity import AttemptId
from koalapy.model.request import RetryOn, WhenBusy
from koalapy.model.states import JobState
from koalapy.model.units import Instant
from koalapy.store.memory import MemoryStore
from koalapy.views.history import sentence

DELTA = ClusterSettings(name="delta", batch="sge")


def join(play: Play, settings: ClusterSettings = DELTA, size: int = 64) -> list[Command]:
    play.sizes = {**play.sizes, settings.name: size}
    play.apply(ClusterJoined(settings=settings))
    play.apply(ClusterConnected(cluster=settings.name, version="8.1.9"))
    return play.apply(play.measurement(settings.name))


def leave(play: Play, name: str) -> list[Command]:
    play.sizes = {each: size for each, size in play.sizes.items() if each != name}
    return play.apply(ClusterLeft(name=name))


def drain(play: Play, name: str, draining: bool = True) -> list[Command]:
    known = play.engine.core.information.clusters[name].settings
    return play.apply(ClusterChanged(settings=replace(known, draining=draining)))


def names_in(value: Any, seen: dict[int, None] | None = None) -> bool:
    """Return whether the name `alpha` is in the value, or in anything that it holds."""
    seen = {} if seen is None else seen
    if isinstance(value, str):
        return value == "alpha"
    if id(value) in seen or isinstance(value, int | float | bytes | type(None)):
        return False
    seen[id(value)] = None
    if isinstance(value, dict):
        return any(names_in(each, seen) for pair in value.items() for each in pair)
    if isinstance(value, list | tuple | set | frozenset):
        return any(names_in(each, seen) for each in value)
    held = getattr(value, "__dict__", None) or {
        name: getattr(value, name) for name in getattr(type(value), "__slots__", ()) if hasattr(value, name)
    }
    return type(value).__module__.startswith("koalapy.") and any(names_in(each, seen) for each in held.values())


# ---- join


def test_a_job_that_waits_is_placed_at_once_on_a_cluster_that_has_joined(play: Play) -> None:
    play.measure(alpha=32, beta=16, gamma=16)
    jobs = [play.submit(component(16)) for _ in range(3)]
    assert [play.job(job).state for job in jobs] == [JobState.WAITING] * 3
    commands = join(play)
    assert [command.cluster for command in commands if isinstance(command, SubmitAttempt)] == ["delta"] * 3


def test_a_cluster_that_has_joined_is_asked_for_as_any_other(play: Play) -> None:
    job = play.submit(component(4, "alpha"))
    join(play)
    assert play.urgent["delta"] is False
    assert [each.name for each in play.engine.settings.clusters] == ["alpha", "beta", "gamma", "delta"]
    assert [each.name for each in play.engine.summaries(play.now)] == ["alpha", "beta", "gamma", "delta"]
    play.run(job)


def test_a_job_fits_on_the_sum_of_old_and_new_clusters(play: Play) -> None:
    join(play)
    job = play.submit(component(32), component(64))
    assert play.job(job).state is JobState.CLAIMING


def test_a_cluster_that_joins_with_attempts_of_the_store_counts_them(play: Play) -> None:
    job = play.submit(component(20, "alpha"))
    play.apply(ClusterChanged(settings=ClusterSettings(name="alpha", batch="slurm", network="other")))
    assert play.engine.core.information.commitments.on("alpha") == (20, 0)
    play.run(job)


# ---- leave


def test_nothing_of_a_cluster_that_has_left_is_in_any_index(play: Play) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    play.submit(component(8, "alpha"), component(4, "beta"))
    play.lose("alpha")
    play.reach("alpha")
    waiting = play.submit(component(32, "alpha"))
    leave(play, "alpha")
    play.apply(CancelRequested(waiting))
    play.obey()
    for each in [each for each in play.jobs.values() if not each.state.final]:
        play.apply(CancelRequested(each.id))
        play.obey()
    core = play.engine.core
    for name, held in vars(core).items():
        assert name in ("records", "departed") or not names_in(held), name
    assert not names_in([core.records.attempts, core.records.pending_cancels, core.records.jobs])


def test_a_running_job_is_lost_and_its_retry_on_decides(play: Play) -> None:
    fails, again = (play.submit(component(4), retry_on=frozenset(retry_on)) for retry_on in ((), (RetryOn.LOST,)))
    assert present(play.job(fails)).cluster == "alpha"
    assert present(play.job(again)).cluster == "alpha"
    for job in (fails, again):
        play.run(job)
    leave(play, "alpha")
    assert play.job(fails).state is JobState.FAILED
    assert "its cluster has left the grid" in str(play.job(fails).reason)
    assert (play.job(again).completion_failures, play.job(again).state) == (1, JobState.CLAIMING)
    assert present(play.job(again)).cluster in ("beta", "gamma")
    reported = [sentence(line) for line in play.history if line.job == fails]
    assert any("its cluster has left the grid" in each for each in reported)


def test_a_claim_goes_to_another_cluster_and_one_at_its_barrier_gives_the_others_back(play: Play) -> None:
    single, pair = play.submit(component(4)), play.submit(component(15), component(10, "beta"))
    assert present(play.job(single)).cluster == "alpha"
    assert [each.cluster for each in play.job(pair).present] == ["alpha", "beta"]
    play.come(*play.attempts(pair))
    leave(play, "alpha")
    assert present(play.job(single)).cluster in ("beta", "gamma")
    play.obey()
    assert play.job(pair).state in (JobState.WAITING, JobState.CLAIMING)
    assert all(each.cluster != "alpha" for each in play.job(pair).live)


def test_a_koalad_that_started_since_forgets_no_attempt_on_a_cluster_that_has_left(play: Play) -> None:
    pair = play.submit(component(4, "alpha"), component(4, "beta"), retry_on=frozenset({RetryOn.LOST}))
    play.run(pair)
    leave(play, "alpha")
    assert play.job(pair).state is JobState.STOPPING
    play.engine.core.departed.clear()  # as in the next koalad
    play.obey()
    assert play.job(pair).completion_failures == 1
    forgotten = [each.cluster for each in play.pending if isinstance(each, ForgetAttempt)]
    assert forgotten == ["beta"]


def test_a_pending_cancel_there_is_given_up_and_the_history_has_it(play: Play) -> None:
    job = play.submit(component(4, "alpha"))
    play.run(job)
    play.lose("alpha")
    play.apply(CancelRequested(job, force=True))
    assert list(play.pending_cancels) == play.attempts(job)
    assert remaining_on(play.engine.core, "alpha").pending_cancels == 1
    leave(play, "alpha")
    assert play.pending_cancels == {}
    assert "cancel_given_up" in play.kinds


def test_late_reports_of_a_cluster_that_has_left_change_nothing(play: Play) -> None:
    job = play.submit(component(4, "alpha"))
    (attempt,) = play.attempts(job)
    late: list[Event] = [
        AttemptSubmitted(attempt=attempt, batch_id="1", cluster="alpha"),
        ClusterConnected(cluster="alpha", version="1"),
        play.measurement("alpha"),
    ]
    leave(play, "alpha")
    before = play.engine.records.counters
    play.apply(*late)
    assert "alpha" not in play.engine.core.information.clusters
    assert play.engine.records.counters == before


def test_a_sweep_goes_on_without_the_cluster_and_repeats_what_was_out_there() -> None:
    play = SweepPlay()
    sweep = play.sweep(count=100)
    play.start(*play.launchers(sweep))
    assert play.holds(sweep)["alpha"] == 8
    out = play.record(sweep).out_on("alpha")
    leave(play, "alpha")
    play.obey()
    assert not play.record(sweep).out_on("alpha")
    assert not out or out & play.record(sweep).pool == out
    assert set(play.holds(sweep)) == {"beta", "gamma"}
    assert play.record(sweep).state is JobState.RUNNING


# ---- drain


def test_nothing_is_placed_on_a_cluster_that_is_drained_until_it_is_resumed(play: Play) -> None:
    runs = play.submit(component(4, "alpha"))
    play.run(runs)
    drain(play, "alpha")
    job = play.submit(component(4, "alpha"))
    large = play.submit(component(32))
    assert (play.job(job).state, play.job(large).state) == (JobState.WAITING, JobState.WAITING)
    play.end(play.attempts(runs)[0])
    play.obey()
    assert play.job(runs).state is JobState.DONE
    assert "being drained" in str(play.engine.explain(play.now, job)[0].reason)
    play.measure()
    drain(play, "alpha", False)
    assert play.job(job).state is JobState.CLAIMING


def test_no_patient_job_enters_the_queue_of_a_cluster_that_is_drained(play: Play) -> None:
    play.measure(alpha=32, beta=16, gamma=16)
    drain(play, "alpha")
    play.submit(component(4, "alpha"), when_busy=WhenBusy.QUEUE)
    for _ in range(3):
        if play.engine.next_wakeup() is not None:
            play.wake()
        play.measure(alpha=32, beta=16, gamma=16)
    assert not [each for each in play.pending if isinstance(each, SubmitAttempt)]


def test_sweeps_give_the_nodes_of_a_drained_cluster_back() -> None:
    play = SweepPlay()
    sweep = play.sweep(count=1000)
    play.start(*play.launchers(sweep))
    drain(play, "alpha")
    play.measure()
    assert "alpha" not in play.holds(sweep)
    assert set(play.holds(sweep)) == {"beta", "gamma"}


# ---- change


def test_a_change_of_settings_counts_for_what_runs_and_for_what_waits(play: Play) -> None:
    job = play.submit(component(3, "beta", exclusive=True))
    assert play.engine.core.information.commitments.on("beta") == (3, 0)
    changed = ClusterSettings(name="beta", batch="slurm", processors_per_node=8)
    play.apply(ClusterChanged(settings=changed))
    assert play.engine.core.information.commitments.on("beta") == (8, 0)
    play.run(job)


def test_jobs_that_no_network_could_take_go_on_when_a_change_joins_two() -> None:
    play = Play(replace(Play().settings, clusters=_in_networks("one", "two", "two")))
    play.measure(alpha=16)
    job = play.submit(component(16, "alpha"), component(16, "beta"))
    assert play.job(job).state in (JobState.WAITING, JobState.FAILED)
    other = play.submit(component(10), component(12), component(12))
    if play.job(other).state is JobState.WAITING:
        play.apply(ClusterChanged(settings=ClusterSettings(name="alpha", batch="slurm", network="two")))
        play.measure(alpha=16)
        assert play.job(other).state is JobState.CLAIMING


def _in_networks(*networks: str) -> tuple[ClusterSettings, ...]:
    return tuple(
        ClusterSettings(name=name, batch="slurm", network=network)
        for name, network in zip(("alpha", "beta", "gamma"), networks, strict=True)
    )


# ---- driver


class Sent:
    """Links that keep what is sent."""

    def __init__(self) -> None:
        self.sent: list[Command] = []

    def send(self, entry: OutboxEntry, doubt: bool) -> None:
        self.sent.append(entry.command)

    def hint(self, hint: Any) -> None: ...

    def acknowledge(self, cluster: str, epoch: int, number: int) -> None: ...

    def end_sessions(self, reason: Any) -> dict[str, int]:
        return {}


class Clock:
    def __init__(self, play: Play) -> None:
        self._play = play

    def now(self) -> Instant:
        self._play.now = Instant(self._play.now + 1000)
        return self._play.now

    def slept(self) -> Any:
        return 0


@pytest.fixture
def driven(play: Play) -> tuple[Driver, Sent, MemoryStore, Play]:
    store, sent = MemoryStore(INSTANCE), Sent()

    def made() -> Engine:
        return Engine(play.settings, play.engine._passes._policies, store.load())

    driver = Driver(made(), store, sent, Clock(play), renew=made)
    for name in play.sizes:
        driver.step([Delivery((ClusterConnected(cluster=name, version="1"),), session=(name, 1))])
        driver.step([Delivery((play.measurement(name),), session=(name, 1))])
    return driver, sent, store, play


def test_no_command_to_a_cluster_that_has_left_is_kept_or_sent(driven: Any) -> None:
    driver, sent, store, play = driven
    request = play.job(play.submit(component(4, "alpha"), component(4, "beta"))).request
    driver.step([Delivery((WorkSubmitted(request=request, owner="me"),))])
    assert {entry.command.cluster for entry in store.load().outbox} == {"alpha", "beta"}
    driver.step([Delivery((ClusterLeft(name="alpha"),))])
    assert {entry.command.cluster for entry in store.load().outbox} <= {"beta", "gamma"}
    count = len(sent.sent)
    driver.step([Delivery((ClusterConnected(cluster="alpha", version="1"),), session=("alpha", 2))])
    late = [each for each in sent.sent[count:] if isinstance(each, SubmitAttempt | CancelAttempt | ForgetAttempt)]
    assert [each for each in late if each.cluster == "alpha"] == []


def test_with_a_new_engine_all_goes_on_and_no_attempt_is_found_anew(driven: Any) -> None:
    driver, _, store, play = driven
    request = play.job(play.submit(component(4, "alpha"))).request
    driver.step([Delivery((WorkSubmitted(request=request, owner="me"),))])
    (job,) = store.jobs()
    attempt = AttemptId(job.id, 0, 1)
    driver.step([Delivery((AttemptSubmitted(attempt=attempt, batch_id="7", cluster="alpha"),))])
    before, play.settings = driver.engine, replace(play.settings, max_submission_failures=7)
    driver.step([Delivery((), renews=True)])
    assert driver.engine is not before
    assert driver.engine.settings.max_submission_failures == 7
    assert driver.engine.core.information.reachable == {"alpha", "beta", "gamma"}
    assert all(each.state is not None for each in driver.engine.core.information.clusters.values())
    driver.step([Delivery((AttemptSubmitted(attempt=attempt, batch_id="7", cluster="alpha"),))])
    assert "attempt_found" not in [line.kind for line in store.history(job.id)]


def test_a_new_engine_knows_nothing_of_a_cluster_that_has_left(driven: Any) -> None:
    driver, _, _, play = driven
    play.settings = replace(play.settings, clusters=play.settings.clusters[1:])
    driver.step([Delivery((ClusterLeft(name="alpha"),), renews=True)])
    assert list(driver.engine.core.information.clusters) == ["beta", "gamma"]
    measured = ClusterMeasured(cluster="alpha", state=play.measurement("alpha").state)
    driver.step([Delivery((measured,), session=("alpha", 1))])
    assert list(driver.engine.core.information.clusters) == ["beta", "gamma"]


def test_a_new_engine_knows_all_clusters_when_it_first_decides(driven: Any) -> None:
    driver, _, store, play = driven
    play.settings = replace(play.settings, max_overtakes=0)
    driver.step([Delivery((), renews=True)])
    of_gamma, of_alpha = (play.job(play.submit(component(*each))).request for each in ((16, "gamma"), (4, "alpha")))
    busy = replace(play.measurement("gamma").state, idle=8, others=8)
    driver.step([Delivery((ClusterMeasured(cluster="gamma", state=busy),), session=("gamma", 1))])
    for request in (of_gamma, of_alpha):
        driver.step([Delivery((WorkSubmitted(request=request, owner="me"),))])
    assert [job.state for job in store.jobs()] == [JobState.WAITING] * 2
    driver.step([Delivery((), renews=True)])
    assert [job.state for job in store.jobs()] == [JobState.WAITING] * 2  # the second does not pass the first
