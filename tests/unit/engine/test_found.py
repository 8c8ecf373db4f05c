"""The history lines that a new koalad's engine writes for attempts that it finds again."""

from typing import Any

from engine_play import INSTANCE, component

from koalapy.engine import Engine
from koalapy.model.change import Snapshot
from koalapy.model.events import AttemptCleanedUp, AttemptSubmitted, BatchStatusSeen, CancelRequested, ClusterConnected
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.states import BatchState
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.scheduler.schedule import Policies


def restart(play: Any) -> None:
    """Start a new engine from the committed records, as after a kill of koalad. The history begins empty."""
    unfinished = tuple(job for job in play.jobs.values() if not job.state.final)
    snapshot = Snapshot(
        instance=INSTANCE,
        counters=play.engine.records.counters,
        jobs=unfinished,
        pending_cancels=tuple(play.pending_cancels.values()),
    )
    play.engine = Engine(play.settings, Policies(worst_fit, fpfs), snapshot)
    play.history = []
    for cluster in play.sizes:
        if cluster not in play.down:
            play.apply(ClusterConnected(cluster=cluster, version="22.05"))


def found(play: Any) -> list[tuple[Any, ...]]:
    return [
        (line.job, *(line.details[name] for name in ("component", "attempt", "cluster", "found", "by", "was")))
        for line in play.history
        if line.kind == "attempt_found"
    ]


def seen(play: Any, attempt: AttemptId, state: str) -> BatchStatusSeen:
    return BatchStatusSeen(attempt=attempt, batch_id="41", at=play.now, state=BatchState(state))


def test_the_first_sign_of_an_attempt_is_recorded_once(play: Any) -> None:
    job = play.submit(component(8, "alpha"), component(8, "beta"))
    play.run(job)
    first, second = play.attempts(job)
    restart(play)
    play.apply(seen(play, first, "running"))
    play.apply(play.report(first, "running"))
    play.apply(play.report(second, "running"))
    assert found(play) == [
        (job, 0, 1, "alpha", "running", "batch system", "running"),
        (job, 1, 1, "beta", "running", "wrapper", "running"),
    ]


def test_nothing_is_found_without_a_restart(play: Any) -> None:
    job = play.submit(component(8))
    play.run(job)
    play.end(play.attempts(job)[0])
    assert found(play) == []


def test_an_attempt_that_ended_meanwhile_is_found_and_its_end_recorded_as_usual(play: Any) -> None:
    job = play.submit(component(8, "alpha"))
    play.run(job)
    restart(play)
    play.end(play.attempts(job)[0])
    assert found(play) == [(job, 0, 1, "alpha", "ended", "wrapper", "running")]
    assert play.kinds.index("attempt_found") < play.kinds.index("attempt_ended")


def test_a_missing_attempt_is_not_found_until_there_is_a_sign_of_it(play: Any) -> None:
    job = play.submit(component(8, "alpha"))
    play.run(job)
    restart(play)
    play.apply(seen(play, play.attempts(job)[0], "missing"))
    assert found(play) == []
    play.apply(play.report(play.attempts(job)[0], "running"))
    assert len(found(play)) == 1


def test_a_submit_that_is_answered_after_a_restart_is_not_recorded_as_found(play: Any) -> None:
    job = play.submit(component(8, "alpha"))
    restart(play)
    play.apply(AttemptSubmitted(attempt=play.attempts(job)[0], batch_id="41"))
    play.apply(play.report(play.attempts(job)[0], "started"))
    assert found(play) == []
    assert "attempt_submitted" in play.kinds


def test_a_job_submitted_after_the_restart_is_not_recorded_as_found(play: Any) -> None:
    restart(play)
    play.measure()
    play.run(play.submit(component(8)))
    assert found(play) == []


def test_an_attempt_found_at_the_barrier_is_recorded_before_its_release(play: Any) -> None:
    job = play.submit(component(8, "alpha"), component(8, "beta"))
    first, second = play.attempts(job)
    play.come(first)
    restart(play)
    play.apply(play.report(first, "at_barrier", at_barrier_at=play.now))
    play.come(second)
    assert found(play) == [(job, 0, 1, "alpha", "at_barrier", "wrapper", "at_barrier")]
    assert [each.details["batch_id"] for each in play.history if each.kind == "attempt_found"] == [str(first)]
    assert play.kinds.index("attempt_found") < play.kinds.index("job_released")


def test_a_confirmed_pending_cancel_is_recorded_in_the_history_of_its_job(play: Any) -> None:
    job = play.submit(component(8, "alpha"))
    play.run(job)
    (attempt,) = play.attempts(job)
    play.lose("alpha")
    play.apply(CancelRequested(job, force=True))
    assert "cancel_pending" in play.kinds
    restart(play)
    play.apply(AttemptCleanedUp(attempt=attempt))
    (settled,) = [line for line in play.history if line.kind == "cancel_completed"]
    assert (settled.job, settled.details["cluster"], settled.details["attempt"]) == (JobId(job), "alpha", 1)


def test_the_history_names_cluster_attempt_and_instants(play: Any) -> None:
    job = play.submit(component(8, "alpha"))
    play.run(job)
    play.end(play.attempts(job)[0])
    (allocated,) = [line for line in play.history if line.kind == "attempt_allocated"]
    (ended,) = [line for line in play.history if line.kind == "attempt_ended"]
    for line in (allocated, ended):
        assert (line.details["component"], line.details["attempt"], line.details["cluster"]) == (0, 1, "alpha")
    assert {"at_barrier_at", "released_at", "started_at", "ended_at", "exit_status", "state"} <= set(ended.details)
