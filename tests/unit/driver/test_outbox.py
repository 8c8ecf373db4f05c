"""The outbox: every command has a number of its own, and is found by its job and its cluster until it is dropped."""

import pytest

from koalapy.driver.outbox import Outbox
from koalapy.model.change import OutboxEntry
from koalapy.model.commands import (
    AnnounceNotification,
    CancelAttempt,
    CollectOutput,
    Command,
    ForgetAttempt,
    ReleaseAttempt,
    ReportFree,
    SendNotification,
    SubmitAttempt,
    cluster_of,
    job_of_command,
)
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.notification import JobKind, Mail, Notification, NotificationId, NotifyOn
from koalapy.model.request import ComponentRequest
from koalapy.model.units import MINUTE, Instant

REQUEST = ComponentRequest(processors=4, executable="true")
NOTIFICATION = Notification(
    id=NotificationId(JobId(5), NotifyOn.DONE, 0), to=Mail(address="me"), name="n", owner="me", kind=JobKind.JOB,
    at=Instant(0), submitted_at=Instant(0),
)  # fmt: skip
FIRST, SECOND, OTHER = AttemptId(JobId(1), 0, 1), AttemptId(JobId(1), 0, 2), AttemptId(JobId(2), 0, 1)


def submit(attempt: AttemptId, cluster: str = "alpha") -> SubmitAttempt:
    return SubmitAttempt(
        cluster=cluster, attempt=attempt, components=1, request=REQUEST, walltime=MINUTE, barrier_timeout=MINUTE,
        stage_in=(), directory="/home/me",
    )  # fmt: skip


def release(attempt: AttemptId) -> ReleaseAttempt:
    return ReleaseAttempt(cluster="alpha", attempt=attempt, first_rank=0, hosts=())


def cancel(attempt: AttemptId) -> CancelAttempt:
    return CancelAttempt(cluster="alpha", attempt=attempt, batch_id="17")


def forget(attempt: AttemptId, cluster: str = "alpha") -> ForgetAttempt:
    return ForgetAttempt(cluster=cluster, attempt=attempt)


def collect(job: int) -> CollectOutput:
    return CollectOutput(
        job=JobId(job), sources=(("alpha", FIRST), ("beta", OTHER)), paths=("a",), directory="/home/me"
    )


def numbered(*commands: Command) -> tuple[OutboxEntry, ...]:
    return tuple(OutboxEntry(number, command) for number, command in enumerate(commands, 1))


# ---- numbers


def test_every_command_has_a_number_greater_than_all_before_it() -> None:
    outbox = Outbox(next_number=7)
    assert outbox.number([submit(FIRST), submit(OTHER)]) == (
        OutboxEntry(7, submit(FIRST)),
        OutboxEntry(8, submit(OTHER)),
    )
    assert outbox.number([]) == ()
    assert outbox.number([collect(1)]) == (OutboxEntry(9, collect(1)),)


def test_a_number_is_greater_than_those_of_the_snapshot() -> None:
    outbox = Outbox([OutboxEntry(5, forget(OTHER)), OutboxEntry(3, forget(FIRST))], next_number=4)
    assert [entry.number for entry in outbox.number([cancel(FIRST)])] == [6]


def test_a_dropped_number_is_not_used_again() -> None:
    outbox = Outbox()
    first = outbox.number([submit(FIRST)])
    outbox.put(first)
    outbox.drop([1])
    assert [entry.number for entry in outbox.number([submit(SECOND)])] == [2]


def test_after_an_epoch_jump_numbers_are_greater_than_the_last_one_used() -> None:
    outbox = Outbox(next_number=7)
    outbox.skip_past(5000)
    assert [entry.number for entry in outbox.number([submit(FIRST)])] == [5001]


def test_an_epoch_jump_to_a_lower_number_repeats_no_number() -> None:
    outbox = Outbox(next_number=7)
    outbox.skip_past(3)
    assert [entry.number for entry in outbox.number([submit(FIRST)])] == [7]


# ---- contents


def test_a_numbered_command_is_not_in_the_outbox_before_it_is_put() -> None:
    outbox = Outbox()
    entries = outbox.number([submit(FIRST)])
    assert (1 in outbox, outbox.of_job(JobId(1))) == (False, ())
    outbox.put(entries)
    assert (1 in outbox, outbox.of_job(JobId(1))) == (True, entries)


def test_a_dropped_entry_is_found_nowhere() -> None:
    outbox = Outbox(numbered(submit(FIRST), collect(1)))
    outbox.drop([1, 2])
    assert [number in outbox for number in (1, 2)] == [False, False]
    assert outbox.of_job(JobId(1)) == ()
    assert outbox.to_clusters({"alpha"}) == []
    assert outbox.to_no_single_cluster() == []


def test_a_number_that_was_dropped_before_changes_nothing() -> None:
    outbox = Outbox(numbered(submit(FIRST), submit(OTHER)))
    outbox.drop([1, 1])
    outbox.drop([1, 99])
    assert outbox.of_job(JobId(2)) == (OutboxEntry(2, submit(OTHER)),)


# ---- search


def test_a_job_has_the_entries_of_all_its_attempts_and_its_output_oldest_first() -> None:
    entries = numbered(submit(FIRST), submit(OTHER), forget(FIRST), submit(SECOND, "beta"), collect(1))
    outbox = Outbox(reversed(entries))
    assert outbox.of_job(JobId(1)) == (entries[0], entries[2], entries[3], entries[4])
    assert outbox.of_job(JobId(2)) == (entries[1],)
    assert outbox.of_job(JobId(3)) == ()


def test_a_cancel_supersedes_the_earlier_commands_for_its_attempt_only() -> None:
    outbox = Outbox(
        numbered(submit(FIRST), release(FIRST), cancel(FIRST), forget(FIRST), submit(SECOND), submit(OTHER), collect(1))
    )
    assert outbox.superseded_by(OutboxEntry(8, cancel(FIRST))) == [1, 2, 3]


@pytest.mark.parametrize(
    "command", [submit(FIRST), release(FIRST), forget(FIRST), collect(1)], ids=lambda c: type(c).__name__
)
def test_only_a_cancel_supersedes_anything(command: Command) -> None:
    outbox = Outbox(numbered(submit(FIRST), release(FIRST)))
    assert outbox.superseded_by(OutboxEntry(3, command)) == []


def test_removed_jobs_leave_their_forget_attempts_behind() -> None:
    third = AttemptId(JobId(3), 0, 1)
    outbox = Outbox(numbered(forget(FIRST, "lost"), forget(OTHER, "lost"), forget(third), forget(SECOND), collect(3)))
    assert outbox.left_behind_by([JobId(1), JobId(3)]) == [1, 4, 3]
    assert outbox.left_behind_by([]) == []


def test_a_cluster_has_its_own_entries_oldest_first() -> None:
    entries = numbered(submit(FIRST), submit(OTHER, "beta"), collect(1), cancel(FIRST), forget(SECOND, "gamma"))
    outbox = Outbox(reversed(entries))
    assert outbox.to_clusters({"alpha", "gamma"}) == [entries[0], entries[3], entries[4]]
    assert outbox.to_clusters(set()) == []
    assert outbox.to_clusters({"delta"}) == []


def test_a_collect_goes_to_no_single_cluster() -> None:
    entries = numbered(submit(FIRST), collect(2), forget(OTHER), collect(1))
    assert Outbox(entries).to_no_single_cluster() == [entries[1], entries[3]]


@pytest.mark.parametrize(
    ("command", "cluster", "job"),
    [
        (submit(FIRST, "beta"), "beta", 1),
        (release(OTHER), "alpha", 2),
        (cancel(OTHER), "alpha", 2),
        (forget(FIRST, "gamma"), "gamma", 1),
        (collect(2), None, 2),
        (AnnounceNotification(notification=NOTIFICATION, due_at=Instant(0)), None, 5),
        (SendNotification(notification=NOTIFICATION), None, 5),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Command) else "",
)
def test_every_command_has_a_job_and_at_most_one_cluster(command: Command, cluster: str | None, job: int) -> None:
    assert (cluster_of(command), job_of_command(command)) == (cluster, JobId(job))


# ---- neighbours


def test_a_report_of_free_processors_supersedes_the_former_one_to_the_same_neighbour() -> None:
    outbox = Outbox()
    reports = [ReportFree(neighbour=name, processors=number) for number, name in enumerate(["lyon", "vu", "lyon"])]
    first, other, second = entries = outbox.number(reports)
    outbox.put(entries[:2])
    assert outbox.superseded_by(second) == [first.number]
    assert outbox.to_no_single_cluster() == [first, other]
    assert outbox.to_neighbours(["vu"]) == [other]
    assert outbox.to_clusters(["vu", "lyon"]) == []
    outbox.drop([first.number, other.number])
    assert outbox.to_no_single_cluster() == []
