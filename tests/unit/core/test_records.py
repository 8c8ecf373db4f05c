"""The engine's records: rows that change in place, and the copies that a step hands out."""

from dataclasses import FrozenInstanceError

import pytest
from engine_play import INSTANCE, component, make

from koalapy.model.attempt import Attempt
from koalapy.model.change import Snapshot
from koalapy.model.fast_frozen import is_row
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Job
from koalapy.model.records import Records
from koalapy.model.states import AttemptState, JobState
from koalapy.model.units import Instant

REQUEST = make(component(2))


def claimed() -> tuple[Records, Job, Attempt]:
    """The records of one claiming job, with the rows of the job and its attempt."""
    records = Records(Snapshot(instance=INSTANCE))
    job = Job(id=JobId(1), owner="me", request=REQUEST, state=JobState.WAITING, position=1, submitted_at=Instant(1))
    records.add(job)
    attempt = Attempt(id=AttemptId(JobId(1), 0, 1), cluster="alpha", request=REQUEST.components[0])
    records.begin(job, [attempt], state=JobState.CLAIMING, numbers=(1,))
    return records, job, records.attempts[attempt.id]


def test_a_step_hands_out_copies_that_later_changes_leave_alone() -> None:
    records, job, attempt = claimed()
    (handed_out,) = records.take().jobs
    records.change_attempt(attempt, state=AttemptState.QUEUED)
    records.change(job, held_processor_us=5)
    assert (handed_out.held_processor_us, handed_out.present[0].state) == (0, AttemptState.SUBMITTING)
    (after,) = records.take().jobs
    assert (after.held_processor_us, after.present[0].state) == (5, AttemptState.QUEUED)


def test_copies_of_a_step_are_not_made_of_rows_that_have_changed_since() -> None:
    records, _, attempt = claimed()
    step = records.take()
    records.change_attempt(attempt, state=AttemptState.QUEUED)
    with pytest.raises(RuntimeError, match="before the next batch is handled"):
        _ = step.jobs
    with pytest.raises(RuntimeError, match="before the next batch is handled"):
        _ = step.attempts
    step = records.take()
    records.take()
    with pytest.raises(RuntimeError, match="before the next batch is handled"):
        _ = step.jobs


def test_what_began_becomes_a_row_of_the_records() -> None:
    records = Records(Snapshot(instance=INSTANCE))
    job = Job(id=JobId(1), owner="me", request=REQUEST, state=JobState.WAITING, position=1, submitted_at=Instant(1))
    attempt = Attempt(id=AttemptId(JobId(1), 0, 1), cluster="alpha", request=REQUEST.components[0])
    records.add(job)
    records.begin(job, [attempt], state=JobState.CLAIMING, numbers=(1,))
    assert records.jobs[JobId(1)] is job
    assert records.attempts[attempt.id] is attempt
    assert is_row(type(job))
    assert is_row(type(attempt))


def test_a_copy_cannot_be_changed() -> None:
    records, *_ = claimed()
    (handed_out,) = records.take().jobs
    with pytest.raises(FrozenInstanceError):
        handed_out.held_processor_us = 5  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        handed_out.present[0].batch_id = "9"  # type: ignore[misc]


def test_a_step_without_a_change_hands_out_no_job() -> None:
    records, *_ = claimed()
    records.take()
    assert records.take().jobs == ()


def test_a_refused_transition_changes_nothing() -> None:
    records, job, attempt = claimed()
    records.take()
    with pytest.raises(ValueError, match="cannot go from claiming to waiting"):
        records.change(job, state=JobState.WAITING, held_processor_us=5)
    with pytest.raises(ValueError, match="cannot go from submitting to running"):
        records.change_attempt(attempt, state=AttemptState.RUNNING, batch_id="9")
    assert (job.held_processor_us, attempt.batch_id, records.take().jobs) == (0, "", ())


def test_the_attempts_of_a_try_are_dropped_when_the_job_is_tried_again() -> None:
    records, job, attempt = claimed()
    records.clean_up(attempt, Instant(2))
    records.change(job, state=JobState.STOPPING)
    records.end_try(job, state=JobState.WAITING)
    assert records.attempt(attempt.id) is None
    assert (job.attempts, job.numbers, [job.number_of(0)]) == ((), (1,), [1])
