"""Sweeps have the processors of a component that is held, until the other components of its job have started."""

from typing import Any

import pytest
from engine_play import check, component
from sweep_play import NODE, SweepPlay

from koalapy.model.attempt import Attempt
from koalapy.model.cluster import ClusterSettings
from koalapy.model.commands import CancelAttempt, JoinCluster, LeaveCluster, ReleaseAttempt
from koalapy.model.events import (
    AttemptSubmitted,
    CancelRequested,
    ClusterConnected,
    ClusterJoined,
    ClusterLeft,
    PilotCloseRequested,
)
from koalapy.model.history import HistoryKind
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.request import Fill, WhenBusy
from koalapy.model.states import AttemptState, JobState, PilotState
from koalapy.model.units import MINUTE, SECOND, Duration
from koalapy.pilots.filling import PATIENCE
from koalapy.policies.placement import worst_fit
from koalapy.views.explanation import explain, summary

BUSY = {"alpha": 8, "beta": 8}


class Filling(SweepPlay):
    """Two full clusters, and a job with a component in the queue of each, of which the one on alpha comes."""

    def __init__(self, **request: Any) -> None:
        super().__init__(dict(BUSY))
        self.joined: set[str] = set()
        self.measure(**BUSY)
        fields = {"when_busy": WhenBusy.QUEUE, **request}
        self.held_job = self.submit(component(8, "alpha"), component(8, "beta"), **fields)
        while self.job(self.held_job).state is JobState.WAITING:
            self.wake()
            self.measure(**BUSY)
        for each in self.job(self.held_job).live:
            self.apply(AttemptSubmitted(attempt=each.id, batch_id=str(each.id)))
        self.filler = f"pilot~{self.held_job}"

    @property
    def attempts_held(self) -> list[AttemptId]:
        return self.attempts(self.held_job)

    def join(self) -> None:
        """The filler becomes a cluster, with its nodes."""
        assert [each.name for each in self.hints if isinstance(each, JoinCluster)][-1] == self.filler
        settings = ClusterSettings(
            name=self.filler, batch="allocation", only_named=True, sweeps_only=True, processors_per_node=NODE
        )
        self.sizes[self.filler] = 8
        self.apply(ClusterJoined(settings=settings))
        self.apply(ClusterConnected(cluster=self.filler, version="22.05"))
        self.apply(self.measurement(self.filler))

    def on_filler(self, sweep: JobId) -> list[Attempt]:
        return self.launchers(sweep, self.filler)

    @property
    def released(self) -> list[AttemptId]:
        found = [each.attempt for each in self.pending if isinstance(each, ReleaseAttempt)]
        return [each for each in found if each.job == self.held_job]

    def state_of(self) -> PilotState | None:
        record = self.pilot_records.get(self.held_job)
        return None if record is None else record.state


@pytest.fixture
def game() -> Filling:
    return Filling()


def filled(game: Filling) -> JobId:
    """A sweep with two Launchers on the filler, each of which runs parameters."""
    sweep = game.sweep(100, walltime=MINUTE)
    game.come(game.attempts_held[0])
    game.join()
    launchers = game.on_filler(sweep)
    assert [each.processors for each in launchers] == [4, 4]
    for each in launchers:
        game.begin(each)
    return sweep


def test_launchers_run_on_held_processors_and_end_before_the_release(game: Filling) -> None:
    sweep = filled(game)
    assert {each.host_cluster for each in game.on_filler(sweep)} == {"alpha"}
    assert HistoryKind.COMPONENT_FILLED in game.kinds
    found = summary(explain(game.engine, game.now, game.job(game.held_job), worst_fit))
    assert "Sweeps may use the processors of component 0 until the others have started." in found
    game.come(game.attempts_held[1])
    assert game.state_of() is PilotState.CLOSING
    stopped = [each.attempt for each in game.pending if isinstance(each, CancelAttempt)]
    assert set(stopped) >= {each.id for each in game.on_filler(sweep)}
    assert not game.released, "a Launcher may still run"
    game.go()
    assert game.released == game.attempts_held
    assert any(isinstance(each, LeaveCluster) and each.name == game.filler for each in game.hints)
    game.apply(ClusterLeft(name=game.filler))
    assert game.state_of() is PilotState.ENDED
    assert game.job(game.held_job).state is JobState.RUNNING
    check(game)


def test_it_closes_as_soon_as_the_last_batch_job_has_started(game: Filling) -> None:
    filled(game)
    game.apply(game.report(game.attempts_held[1], "started"))
    assert game.state_of() is PilotState.CLOSING
    game.go()
    assert not game.released
    game.apply(game.report(game.attempts_held[1], "at_barrier", at_barrier_at=game.now))
    assert game.released == game.attempts_held


def test_one_that_has_not_joined_yet_delays_nothing(game: Filling) -> None:
    game.sweep(100, walltime=MINUTE)
    game.come(game.attempts_held[0])
    assert game.state_of() is PilotState.BOUND
    game.come(game.attempts_held[1])
    assert game.released == game.attempts_held
    assert game.state_of() is PilotState.ENDED
    settings = ClusterSettings(name=game.filler, batch="allocation", only_named=True, sweeps_only=True)
    game.apply(ClusterJoined(settings=settings))
    assert any(isinstance(each, LeaveCluster) and each.name == game.filler for each in game.hints)


def test_a_launcher_that_does_not_end_costs_the_component_its_place(game: Filling) -> None:
    filled(game)
    game.come(game.attempts_held[1])
    game.apply(after=Duration(PATIENCE - SECOND))
    assert not game.released
    game.apply(after=Duration(2 * SECOND))
    record = game.job(game.held_job)
    assert [each.component for each in record.given_back] == [0]
    assert (record.state, record.submission_failures) == (JobState.CLAIMING, 0)
    assert not game.released


def test_what_is_given_back_takes_its_launchers_with_it(game: Filling) -> None:
    sweep = filled(game)
    alpha = game.attempts_held[0]
    while not game.job(game.held_job).given_back:
        game.wake()
        game.measure(**BUSY)
    assert game.state_of() is PilotState.CLOSING
    assert not any(isinstance(each, LeaveCluster) and each.name == game.filler for each in game.hints)
    game.down.add(game.filler)
    game.obey()
    assert game.job(game.held_job).attempts[0].state is AttemptState.CLEANED_UP  # type: ignore[union-attr]
    assert any(isinstance(each, LeaveCluster) and each.name == game.filler for each in game.hints)
    game.apply(ClusterLeft(name=game.filler))
    assert game.state_of() is PilotState.ENDED
    assert not game.on_filler(sweep)
    assert game.attempts_held[0] == alpha
    assert game.record(sweep).remaining == 100


@pytest.mark.parametrize("end", ["the job is cancelled", "the sweep ends"])
def test_it_ends_with_what_it_is_for(game: Filling, end: str) -> None:
    sweep = filled(game)
    game.apply(CancelRequested(game.held_job if end == "the job is cancelled" else sweep))
    assert game.state_of() is PilotState.CLOSING
    game.go()
    game.apply(ClusterLeft(name=game.filler))
    assert game.state_of() is PilotState.ENDED
    assert game.job(game.held_job).state is (JobState.CANCELLED if end == "the job is cancelled" else JobState.CLAIMING)
    check(game)


def test_nothing_is_filled_without_a_sweep_of_the_same_user(game: Filling) -> None:
    game.sweep(100, owner="somebody else", walltime=MINUTE)
    game.come(game.attempts_held[0])
    assert game.state_of() is None


def test_sweeps_of_other_users_get_nothing_of_it(game: Filling) -> None:
    theirs = game.sweep(100, owner="somebody else", walltime=MINUTE)
    own = filled(game)
    assert game.on_filler(own)
    assert not game.on_filler(theirs)


def test_a_job_may_refuse_it() -> None:
    game = Filling(fill=Fill.NONE)
    game.sweep(100, walltime=MINUTE)
    game.come(game.attempts_held[0])
    assert game.state_of() is None


def test_a_sweep_that_comes_later_fills_too(game: Filling) -> None:
    game.come(game.attempts_held[0])
    assert game.state_of() is None
    game.sweep(100, walltime=MINUTE)
    game.measure(**BUSY)
    assert game.state_of() is PilotState.BOUND


def test_no_job_is_placed_there_and_nobody_closes_it(game: Filling) -> None:
    sweep = filled(game)
    job = game.submit(component(1, game.filler))
    game.apply(PilotCloseRequested(pilot=game.held_job, force=True))
    assert game.state_of() is PilotState.BOUND
    assert game.job(game.held_job).state is JobState.CLAIMING
    assert not game.job(job).live
    assert game.on_filler(sweep)
