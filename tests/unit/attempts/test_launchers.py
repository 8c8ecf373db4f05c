"""Attempts whose owner is no job: they are released alone, stopped, lost, let go, and known again after a restart."""

from dataclasses import replace

import pytest
from engine_play import INSTANCE, SIZES, UNREACHABLE, Play, component, make
from koalapy_adapters.batch.text import is_launcher

from koalapy.attempts import launchers
from koalapy.attempts.submission import submit
from koalapy.engine import Engine
from koalapy.model.attempt import Attempt, LauncherFields, Owner, OwnerKind
from koalapy.model.change import Snapshot
from koalapy.model.cluster import Node
from koalapy.model.commands import CancelAttempt, ReleaseAttempt, SubmitAttempt
from koalapy.model.events import (
    AttemptCleanedUp,
    AttemptSubmitted,
    BatchStatusSeen,
    ClusterConnected,
    ClusterLeft,
    SubmissionFailed,
    WrapperReported,
)
from koalapy.model.identity import FIRST_LAUNCHER, LAUNCHERS_END, AttemptId, attempt_of, launcher_id, tag_of
from koalapy.model.states import AttemptState, BatchState, JobState, ReportedEnding, WrapperPhase
from koalapy.model.units import Duration
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.scheduler.schedule import Policies
from koalapy.views.launchers import as_job

OWNER = Owner(OwnerKind.SWEEP, 7)
REQUEST = make(component(4, cluster="alpha"))


class Holder:
    """One pilot of an owner that is not a job, on alpha."""

    def __init__(self) -> None:
        self.play = Play()
        self.core = self.play.engine.core
        found = self.core.records.new_launcher_id()
        assert found is not None
        self.id: AttemptId = found
        pilot = Attempt(
            id=found, cluster="alpha", request=REQUEST.components[0],
            launcher=LauncherFields(owner=OWNER, claimed_at=self.play.now),
        )  # fmt: skip
        submit(self.core, launchers.claim(self.core, self.play.now, pilot), REQUEST)
        (self.submitted,) = self.play.apply()

    @property
    def row(self) -> Attempt:
        return self.core.records.launchers[self.id]

    def report(self, phase: str, **more: object) -> WrapperReported:
        nodes = (Node("n1", "10.0.0.1", 4),)
        more["ending"] = ReportedEnding(str(more.get("ending", "")))
        phases = {"phase": WrapperPhase(phase), "nodes": nodes, **more}
        return WrapperReported(cluster="alpha", attempt=self.id, batch_id="9", **phases)  # type: ignore[arg-type]

    def seen(self, state: str, stuck: str = "") -> BatchStatusSeen:
        now = self.play.now
        return BatchStatusSeen(
            cluster="alpha", attempt=self.id, batch_id="9", at=now, state=BatchState(state), stuck=stuck
        )

    def come(self) -> list[object]:
        self.play.apply(AttemptSubmitted(cluster="alpha", attempt=self.id, batch_id="9"))
        return [*self.play.apply(self.report("at_barrier", at_barrier_at=self.play.now))]

    def run(self) -> None:
        self.come()
        self.play.apply(self.report("running", started_at=self.play.now))

    def stop(self, force: bool = False) -> list[object]:
        launchers.stop(self.core, self.play.now, self.row, "no_longer_needed", UNREACHABLE, force=force)
        return [*self.play.apply()]


def test_it_is_submitted_and_committed_without_a_job() -> None:
    holder = Holder()
    assert isinstance(holder.submitted, SubmitAttempt)
    assert (str(holder.id), holder.row.owner, holder.play.jobs) == ("p1", OWNER, {})
    assert holder.core.launchers.of(OWNER) == holder.core.launchers.on("alpha", OwnerKind.SWEEP) == [holder.row]
    assert holder.core.information.commitments.scavenged_on("alpha").coming == 4


def test_it_is_released_alone_from_its_barrier() -> None:
    holder = Holder()
    (release,) = holder.come()
    assert isinstance(release, ReleaseAttempt)
    assert (release.attempt, release.hosts) == (holder.id, ((0, "10.0.0.1", 4),))
    assert holder.row.state is AttemptState.RELEASED
    assert holder.play.kinds[-1] == "launcher_released"
    assert holder.row.released_at == holder.play.now


def test_one_that_does_not_come_to_its_barrier_in_time_is_stopped_and_has_failed() -> None:
    holder = Holder()
    holder.play.apply(AttemptSubmitted(cluster="alpha", attempt=holder.id, batch_id="9"))
    holder.play.apply(holder.seen("running"))
    (cancel,) = holder.play.wake()
    assert isinstance(cancel, CancelAttempt)
    failure = launchers.failure_of(holder.row)
    assert failure is not None
    assert failure.code == "barrier_timeout"


def test_one_that_never_starts_is_refused_and_has_failed() -> None:
    holder = Holder()
    holder.play.apply(AttemptSubmitted(cluster="alpha", attempt=holder.id, batch_id="9"))
    seen = BatchStatusSeen(
        cluster="alpha",
        attempt=holder.id,
        batch_id="9",
        at=holder.play.now,
        state=BatchState.QUEUED,
        stuck="BadConstraints",
    )
    assert [type(each) for each in holder.play.apply(seen)] == [CancelAttempt]
    failure = launchers.failure_of(holder.row)
    assert failure is not None
    assert failure.code == "BadConstraints"


def test_a_stopped_one_is_let_go_once_nothing_of_it_is_left() -> None:
    holder = Holder()
    holder.run()
    row = holder.row
    assert [type(each) for each in holder.stop()] == [CancelAttempt]
    assert holder.stop() == []  # the first reason counts
    holder.play.apply(AttemptCleanedUp(cluster="alpha", attempt=holder.id))
    assert row.let_go
    assert holder.core.records.attempts == holder.core.records.launchers == {}
    assert holder.core.launchers.of(OWNER) == holder.core.launchers.on("alpha", OwnerKind.SWEEP) == []
    assert holder.core.information.commitments.scavenged_on("alpha").coming == 0


def test_one_out_of_reach_is_detached_only_if_its_program_cannot_run_or_nobody_waits() -> None:
    queued, running = Holder(), Holder()
    running.run()
    for holder in (queued, running):
        holder.play.lose("alpha")
        holder.stop()
        holder.play.apply()
    assert list(queued.core.records.pending_cancels) == [queued.id]
    assert not running.row.let_go
    running.stop(force=True)
    running.play.apply()
    assert list(running.core.records.pending_cancels) == [running.id]
    for holder in (queued, running):
        holder.play.apply()
        assert holder.play.kinds.count("cancel_pending") == 1
    running.play.reach("alpha")
    running.play.apply(AttemptCleanedUp(cluster="alpha", attempt=running.id))
    assert running.core.records.pending_cancels == {}


def test_one_that_is_missing_for_long_is_lost() -> None:
    holder = Holder()
    holder.run()
    holder.play.apply(holder.seen("missing"))
    assert holder.row.state is AttemptState.UNKNOWN
    holder.play.wake()
    failure = launchers.failure_of(holder.row)
    assert failure is not None
    assert failure.code == "lost"


@pytest.mark.parametrize("how", ["refused", "left"])
def test_it_ends_with_its_submission_or_its_cluster(how: str) -> None:
    holder = Holder()
    if how == "refused":
        holder.play.apply(SubmissionFailed(cluster="alpha", attempt=holder.id, reason=UNREACHABLE))
    else:
        holder.play.apply(ClusterLeft(name="alpha"))
    assert holder.core.records.launchers == {}
    assert holder.core.launchers.of(OWNER) == []


def test_an_engine_made_of_a_snapshot_knows_it_and_goes_on() -> None:
    holder = Holder()
    holder.play.apply(AttemptSubmitted(cluster="alpha", attempt=holder.id, batch_id="9"))
    kept = replace(holder.row)
    snapshot = Snapshot(instance=INSTANCE, launchers=(kept,), counters=holder.play.counters)
    play = Play()
    play.engine = holder.play.engine = Engine(play.settings, Policies(worst_fit, fpfs), snapshot)
    holder.core = play.engine.core
    holder.play.apply(*(ClusterConnected(cluster=name, version="22.05") for name in SIZES))
    assert holder.core.launchers.of(OWNER) == [holder.row]
    holder.play.apply(holder.report("at_barrier", at_barrier_at=holder.play.now), after=Duration(1))
    assert holder.row.state is AttemptState.RELEASED
    assert holder.core.records.new_launcher_id() == launcher_id(FIRST_LAUNCHER + 1)


def test_it_is_shown_like_a_job_of_one_component_in_each_part_of_its_life() -> None:
    holder = Holder()
    claimed = as_job(replace(holder.row), "mona", "scan")
    assert (claimed.id, claimed.owner, claimed.request.name, claimed.state) == (
        FIRST_LAUNCHER, "mona", "scan", JobState.CLAIMING,
    )  # fmt: skip
    holder.run()
    assert as_job(holder.row, "mona", "scan").state is JobState.RUNNING
    assert [each.state for each in as_job(holder.row, "mona", "scan").present] == [AttemptState.RUNNING]
    row = holder.row
    holder.stop()
    assert as_job(row, "mona", "scan").state is JobState.STOPPING
    holder.play.apply(AttemptCleanedUp(cluster="alpha", attempt=holder.id))
    over = as_job(row, "mona", "scan")
    assert (over.state, over.finished_at) == (JobState.CANCELLED, row.ended_at)
    assert over.finished_at is not None


def test_batch_systems_show_by_a_letter_that_it_is_a_pilot() -> None:
    first, last = tag_of(INSTANCE, launcher_id(FIRST_LAUNCHER)), tag_of(INSTANCE, launcher_id(LAUNCHERS_END - 1))
    assert (first[6], last[6]) == ("g", "q")
    assert is_launcher(first)
    assert is_launcher(last)
    assert attempt_of(first) == (INSTANCE, launcher_id(FIRST_LAUNCHER))
