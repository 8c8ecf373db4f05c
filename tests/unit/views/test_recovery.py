"""The report on a recovery, from snapshots and later commits, without a koalad."""

from dataclasses import replace
from typing import Any

import pytest

from koalapy.driver.driver import host_slept
from koalapy.model.attempt import Attempt, LauncherFields, Owner, OwnerKind
from koalapy.model.change import Change, EpochJump, OutboxEntry, Snapshot
from koalapy.model.commands import CancelAttempt, CollectOutput, Command, ForgetAttempt, SubmitAttempt
from koalapy.model.history import History
from koalapy.model.identity import FIRST_LAUNCHER, AttemptId, InstanceId, JobId, launcher_id
from koalapy.model.intervals import Intervals
from koalapy.model.job import Job
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.states import AttemptState, Ending, JobState
from koalapy.model.sweep import Sweep
from koalapy.model.units import MINUTE, Instant, format_instant
from koalapy.views.recovery import KEPT, Recovery

NOW, LATER = Instant(1_000), Instant(2_000)
ONE = ComponentRequest(processors=4, executable="true")
ATTEMPT = AttemptId(JobId(7), 0, 1)


def job(number: int, state: JobState, *components: AttemptState) -> Job:
    request = Request(name="job", components=(ONE,) * len(components or (1,)))
    made = tuple(
        Attempt(
            id=AttemptId(JobId(number), index, 1),
            request=ONE,
            state=each,
            ending=Ending.DONE if each.ended else None,
            cluster="delft",
            batch_id="41",
        )
        for index, each in enumerate(components)
    )
    return Job(
        id=JobId(number), owner="me", request=request, state=state, position=number, submitted_at=NOW, attempts=made
    )


RUNNING = job(7, JobState.RUNNING, AttemptState.RUNNING)
AT_BARRIER = job(7, JobState.CLAIMING, AttemptState.AT_BARRIER, AttemptState.QUEUED)
SUBMITTING = job(7, JobState.CLAIMING, AttemptState.SUBMITTING)
SUBMIT = SubmitAttempt(
    cluster="delft",
    attempt=ATTEMPT,
    components=1,
    request=ONE,
    walltime=MINUTE,
    barrier_timeout=MINUTE,
    stage_in=(),
    directory="/home/me",
)
CANCEL = CancelAttempt(cluster="delft", attempt=ATTEMPT, batch_id="41")
FORGET = ForgetAttempt(cluster="delft", attempt=ATTEMPT)
COLLECT = CollectOutput(job=JobId(7), sources=(("delft", ATTEMPT),), paths=("x",), directory="/home/me")
PENDING_CANCEL = Attempt(
    id=ATTEMPT,
    cluster="delft",
    batch_id="41",
    detached_at=NOW,
    request=ComponentRequest(processors=1, executable="./program"),
    state=AttemptState.ENDED,
    ending=Ending.CANCELLED,
)


def recovery(*jobs: Job, outbox: tuple[Command, ...] = (), **more: tuple[Attempt | Sweep, ...]) -> Recovery:
    entries = tuple(OutboxEntry(number, command) for number, command in enumerate(outbox, 1))
    return Recovery(NOW, Snapshot(instance=InstanceId("abcde"), jobs=jobs, outbox=entries, **more))  # type: ignore[arg-type]


def line(kind: str, **details: Any) -> History:
    return History(job=JobId(7), at=LATER, kind=kind, details=details)


def attempt_line(kind: str, **details: Any) -> History:
    return line(kind, component=0, attempt=1, cluster="delft", **details)


def lines(made: Recovery, *history: History, **change: Any) -> list[tuple[str, str]]:
    return [(line["kind"], line["text"]) for line in made.committed(LATER, Change(history=history, **change))]


def test_an_empty_store_has_nothing_to_recover() -> None:
    (line,) = recovery().recovered["lines"]
    assert (line["kind"], line["text"]) == ("nothing_recovered", "Nothing was under way when koalad started.")


def test_the_beginning_has_one_line_each_for_queue_outbox_and_pending_cancels() -> None:
    made = recovery(
        job(1, JobState.WAITING),
        job(2, JobState.WAITING),
        job(3, JobState.HELD),
        job(4, JobState.RUNNING, AttemptState.RUNNING, AttemptState.CLEANED_UP),
        AT_BARRIER,
        outbox=(SUBMIT, CANCEL, FORGET, COLLECT, FORGET),
        pending_cancels=(PENDING_CANCEL,),
    )
    assert [(line["kind"], line["text"]) for line in made.recovered["lines"]] == [
        (
            "queue_recovered",
            "Jobs that were not final: 2 waiting, 1 held, 1 claiming, 1 running (1 job with components at a barrier).",
        ),
        (
            "outbox_recovered",
            "Outbox: 5 commands sent again, in doubt, as clusters connect: 1 submit, 1 cancel, 2 forget, 1 collect.",
        ),
        ("pending_cancels_recovered", "Pending cancels: 1 attempt to be ended as clusters connect."),
    ]
    found = made.recovered
    assert (found["attempts"], found["attempts_unreported"]) == (3, 3)
    assert (found["commands"], found["commands_unconfirmed"]) == (5, 5)
    assert (found["at"], found["jobs_at_barrier"], found["pending_cancels"]) == (format_instant(NOW), 1, 1)


def test_sweeps_and_their_pilots_have_a_line_of_their_own() -> None:
    sweep = Sweep(
        id=JobId(1), owner="me", request=job(1, JobState.RUNNING).request, state=JobState.RUNNING, position=1,
        submitted_at=NOW, count=100, done=Intervals(((1, 30),)),
    )  # fmt: skip
    fields = LauncherFields(owner=Owner(OwnerKind.SWEEP, sweep.id), claimed_at=NOW)
    (running,) = job(3, JobState.RUNNING, AttemptState.RUNNING).live
    pilot = replace(running, id=launcher_id(FIRST_LAUNCHER), launcher=fields)
    made = recovery(job(2, JobState.WAITING), sweeps=(sweep,), launchers=(pilot,)).recovered
    assert [line["text"] for line in made["lines"]] == [
        "Jobs that were not final: 1 waiting, 1 running.",
        "Sweeps: 1, 30 of 100 parameters done, with 1 Launcher.",
    ]
    found = {state: count for state, count in made["jobs"].items() if count}
    assert (found, made["attempts"]) == ({"waiting": 1, "running": 1}, 1)


@pytest.mark.parametrize(
    ("by", "found", "how"),
    [
        ("wrapper", "running", "it runs"),
        ("wrapper", "at_barrier", "it waits at its barrier"),
        ("batch system", "queued", "it waits in the batch queue"),
        ("batch system", "running", "its batch job runs"),
        ("batch system", "frozen", "frozen, by its batch system"),
    ],
)
def test_an_attempt_that_is_found_again_is_reported_with_its_state(by: str, found: str, how: str) -> None:
    made = recovery(RUNNING)
    line = attempt_line("attempt_found", batch_id="41", found=found, by=by, was="running")
    text = f"Attempt 7.0.1 on delft (batch job 41) was found again: {how}."
    assert lines(made, line) == [("attempt_found", text)]
    (_, last) = made.recovered["lines"]
    assert (last["job"], last["attempt"], last["cluster"], last["at"]) == (7, "7.0.1", "delft", format_instant(LATER))
    assert made.recovered["attempts_unreported"] == 0


def test_an_attempt_that_ended_meanwhile_is_reported_with_its_exit_status() -> None:
    made = recovery(RUNNING)
    found = attempt_line("attempt_found", batch_id="41", found="ended", by="wrapper", was="running")
    ended = attempt_line("attempt_ended", exit_status=3)
    text = "Attempt 7.0.1 on delft (batch job 41) had ended meanwhile with exit status 3."
    assert lines(made, found, ended) == [("attempt_ended", text)]


def test_a_lost_attempt_is_reported() -> None:
    made = recovery(RUNNING)
    ended = attempt_line("attempt_ended", message="It was lost: no sign of it was found any more.")
    text = "Attempt 7.0.1 on delft was not found again: It was lost: no sign of it was found any more."
    assert lines(made, ended) == [("attempt_lost", text)]


def test_an_end_after_the_attempt_was_found_is_not_reported() -> None:
    made = recovery(RUNNING)
    lines(made, attempt_line("attempt_found", batch_id="41", found="running", by="wrapper", was="running"))
    assert lines(made, attempt_line("attempt_ended", exit_status=0), line("work_done")) == []


def test_a_doubtful_submit_is_reported_with_its_answer() -> None:
    made = recovery(SUBMITTING, outbox=(SUBMIT,))
    text = "Attempt 7.0.1 on delft (batch job 41) is in its batch system; its submit was in doubt."
    assert lines(made, attempt_line("attempt_submitted", batch_id="41"), confirmed=(1,)) == [
        ("attempt_submitted", text)
    ]
    assert (made.recovered["attempts_unreported"], made.recovered["commands_unconfirmed"]) == (0, 0)
    made = recovery(SUBMITTING, outbox=(SUBMIT,))
    text = "Attempt 7.0.1 on delft is not in its batch system; its submit was in doubt: No such queue."
    refused = attempt_line("submission_failed", message="No such queue.")
    assert lines(made, refused, confirmed=(1,)) == [("attempt_refused", text)]


def test_a_barrier_is_reported_once_by_its_release() -> None:
    made = recovery(AT_BARRIER)
    assert lines(made, line("job_released", processes=8)) == [
        ("job_released", "Job 7, which was at its barrier, was released.")
    ]
    assert lines(made, line("work_stopping", outcome="done")) == []


def test_a_barrier_is_reported_once_by_its_end_without_release() -> None:
    made = recovery(AT_BARRIER)
    stopping = line("work_stopping", outcome="submission_failure", message="After 2m delft had not started.")
    text = "Job 7, which was at its barrier, was given back: After 2m delft had not started."
    assert lines(made, stopping) == [("job_given_back", text)]
    assert lines(made, line("job_released", processes=8)) == []


def test_the_barrier_of_a_later_job_is_not_reported() -> None:
    assert lines(recovery(), line("job_released", processes=8)) == []


def test_a_cleaned_up_attempt_is_reported() -> None:
    stopping = replace(RUNNING, state=JobState.STOPPING)
    made = recovery(stopping, outbox=(CANCEL, FORGET, FORGET), pending_cancels=())
    assert lines(made, attempt_line("attempt_cleaned_up"), confirmed=(1,)) == [
        ("attempt_cancelled", "Attempt 7.0.1 on delft was cleaned up: nothing of it is left.")
    ]
    assert lines(made, confirmed=(2, 3)) == [
        ("directories_forgotten", "2 directories of past attempts on delft were forgotten.")
    ]
    assert lines(made, attempt_line("attempt_cleaned_up"), confirmed=(99,)) == []


def test_a_confirmed_pending_cancel_is_reported_with_its_directory() -> None:
    made = recovery(pending_cancels=(PENDING_CANCEL,))
    settled = attempt_line("cancel_completed", batch_id="41")
    text = "Attempt 7.0.1 on delft (batch job 41) was cancelled at last: nothing of it is left."
    assert lines(
        made,
        settled,
        attempts=(replace(PENDING_CANCEL, state=AttemptState.CLEANED_UP),),
        sent=(OutboxEntry(9, FORGET),),
    ) == [("cancel_completed", text)]
    assert lines(made, confirmed=(9,)) == [
        ("directories_forgotten", "The directory of a past attempt on delft was forgotten.")
    ]


def test_collected_output_is_reported() -> None:
    made = recovery(RUNNING, outbox=(COLLECT,))
    assert lines(made, line("output_collected")) == [
        ("output_collected", "The output of job 7 was fetched to its destination.")
    ]
    assert lines(made, line("output_collected")) == []


def test_a_restored_store_is_reported_with_the_attempts_recalled_after_it() -> None:
    made = recovery(job(7, JobState.WAITING))
    ((kind, text),) = lines(made, epoch_jump=EpochJump(9, 900))
    assert kind == "store_restored"
    assert text.startswith("The store was restored from a backup, or another koalad used a copy of it: ")
    assert lines(made, attempt_line("attempt_recalled")) == [
        (
            "attempt_recalled",
            "Attempt 7.0.1 on delft was made after the backup that was restored; its job continues with it.",
        )
    ]


def test_a_sleep_of_the_host_is_reported() -> None:
    made = recovery()
    made.slept(Instant(7), host_slept(MINUTE))
    line = made.recovered["lines"][-1]
    assert (line["at"], line["kind"]) == (format_instant(Instant(7)), "host_slept")
    assert line["text"] == "koalad's host slept for 1m: all clusters are connected anew."


def test_the_lines_are_bounded_and_the_oldest_are_dropped() -> None:
    made = recovery(pending_cancels=(PENDING_CANCEL,))
    for _ in range(KEPT):
        lines(made, attempt_line("cancel_completed", batch_id="41"))
    assert len(made.recovered["lines"]) == KEPT
    assert made.recovered["lines_dropped"] == 2
    assert {line["kind"] for line in made.recovered["lines"]} == {"cancel_completed"}


def test_a_returned_report_does_not_change() -> None:
    made = recovery(RUNNING)
    before = made.recovered
    lines(made, attempt_line("attempt_found", batch_id="41", found="running", by="wrapper", was="running"))
    assert len(before["lines"]) == 1
    assert before["attempts_unreported"] == 1
