"""The promises of every store, checked for each of them: in memory, SQLite and PostgreSQL."""

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine_play import present

from koalapy.model.attempt import Attempt, LauncherFields, Owner, OwnerKind
from koalapy.model.change import Change, EpochJump, OutboxEntry, Snapshot
from koalapy.model.commands import (
    AnnounceNotification,
    CancelAttempt,
    CancelRequest,
    CollectOutput,
    Command,
    DelegateRequest,
    EndLease,
    ForgetAttempt,
    OfferLease,
    RejectRequest,
    ReportFree,
    ReturnLease,
    RevokeLease,
    SendNotification,
)
from koalapy.model.ended_lease import Charged, EndedLease, LeaseDay, charges
from koalapy.model.errors import Reason
from koalapy.model.header import Outcome
from koalapy.model.history import History, HistoryKind
from koalapy.model.identity import FIRST_LAUNCHER, INSTANCE_LENGTH, AttemptId, JobId, is_tag, tag_of
from koalapy.model.intervals import Intervals
from koalapy.model.job import Counters, Job
from koalapy.model.learned import Check, Hour, Learned, Past
from koalapy.model.lease import Asked, BorrowedLease, LentLease, Origin, Refusal, SeenRequest, Wanted
from koalapy.model.neighbour import Neighbour, Relation
from koalapy.model.notification import JobKind, Notification, NotificationId, NotifyOn, Program, Webhook
from koalapy.model.parameters import Axis, ParameterResult, ResultBatch, Source, Space
from koalapy.model.pilot import Pilot
from koalapy.model.request import ComponentRequest, PilotOptions, Request
from koalapy.model.sent import Sent, SentJob
from koalapy.model.states import AttemptState, Ending, JobState, LeaseState, PilotState
from koalapy.model.sweep import Sweep
from koalapy.model.units import DAY, HOUR, Instant
from koalapy.model.usage import BatchSpan, By, DayUsage, Kind, Sum, Usage, accounted, sums
from koalapy.model.work import Flow
from koalapy.store.contract import MaintenanceRun, RecordInvalid, Store, StoreConflict, StoreError, StoreLocked
from koalapy.store.memory import MemoryStore
from koalapy.store.open import open_store
from koalapy.store.records import dump_work

Opener = Callable[[], Store]
NOT_TAKEN = Reason("webhook_failed", "transient", "It answered with HTTP 503.", "")
NOTIFICATION = Notification(
    id=NotificationId(JobId(1), NotifyOn.DONE, 3),
    to=Webhook(url="https://hooks.example/x"),
    name="n",
    owner="mona",
    kind=JobKind.JOB,
    at=Instant(8),
    submitted_at=Instant(7),
    reason=NOT_TAKEN,
)
LEARNED = Learned((Past("vu", 85, (Hour(0, 5.0, 0.25), Hour(167, 6.0, 85.0))),), (Check(Instant(5), 12.5, 0.125),))


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    """Opens one and the same store again and again, each opening after the last was closed."""
    opened: list[Store] = []

    def remembered(make: Opener) -> Opener:
        def open_once_more() -> Store:
            opened.append(make())
            return opened[-1]

        return open_once_more

    if request.param == "memory":
        yield remembered(_memory_opener())
    elif request.param == "sqlite":
        yield remembered(lambda: open_store("sqlite", tmp_path))
    else:
        url = request.getfixturevalue("database")
        yield remembered(lambda: open_store(url, tmp_path))
    for store in opened:
        store.close()


@pytest.fixture
def store(opener: Opener) -> Store:
    return opener()


def _memory_opener() -> Opener:
    last: list[MemoryStore] = []

    def reopen() -> Store:
        last.append(last[-1].reopened() if last else MemoryStore())
        return last[-1]

    return reopen


def a_job(number: int, state: JobState = JobState.WAITING, **fields: Any) -> Job:
    wish = ComponentRequest(processors=4, executable="./a.out", arguments=("--grid", "512"))
    return Job(
        id=JobId(number),
        owner=fields.pop("owner", "mona"),
        request=Request(name=f"poisson-{number}", components=(wish, wish)),
        state=state,
        position=number,
        submitted_at=Instant(1_900_000_000_000_000 + number),
        **fields,
    )


def a_flow(number: int, **fields: Any) -> Flow:
    request = Request(name="whole", components=())
    of = {"request": request, "state": JobState.RUNNING, "position": number, "submitted_at": Instant(5), "count": 2}
    return Flow(id=JobId(number), owner="mona", **(of | fields))  # type: ignore[arg-type]


def a_sent_job(number: int, **fields: Any) -> SentJob:
    job = a_job(number, JobState.CLAIMING)
    request = replace(job.request, site="lyon")
    return SentJob(
        id=job.id, owner=job.owner, request=request, state=job.state, position=number, submitted_at=Instant(6), **fields
    )


def an_attempt(job: int, component: int = 0, number: int = 1) -> AttemptId:
    return AttemptId(JobId(job), component, number)


def tried(job: int, number: int = 1) -> Attempt:
    """An attempt of the first component."""
    return Attempt(id=an_attempt(job, number=number), cluster="vu", request=a_job(job).request.components[0])


def a_pending_cancel(job: int, **fields: Any) -> Attempt:
    return Attempt(
        id=an_attempt(job, **fields),
        cluster="delft",
        batch_id="77",
        detached_at=Instant(5),
        superseded=True,
        request=ComponentRequest(processors=1, executable="./program"),
        state=AttemptState.ENDED,
        ending=Ending.CANCELLED,
    )


def a_completed_cancel(job: int) -> Attempt:
    return replace(a_pending_cancel(job), state=AttemptState.CLEANED_UP)


def a_line(job: int, kind: str = "work_submitted", **details: Any) -> History:
    return History(job=JobId(job), at=Instant(1_900_000_000_000_000), kind=kind, details=details)


def entry(number: int, command: Command | None = None) -> OutboxEntry:
    return OutboxEntry(number, command or ForgetAttempt(cluster="vu", attempt=an_attempt(number)))


def a_sweep(number: int, count: int = 1_000_000, **fields: Any) -> Sweep:
    axis = Axis(sources=(Source(names=("x",), loop=("1", str(count), "1")),), count=count)
    plain = a_job(number, JobState.RUNNING)
    found = Sweep(
        id=plain.id,
        owner=plain.owner,
        request=replace(plain.request, parameters=Space(axes=(axis,))),
        state=JobState.RUNNING,
        position=number,
        submitted_at=plain.submitted_at,
        count=count,
        done=Intervals.of([(1, 500), (600, 700)]),
        failed=Intervals.of([(7, 7)]),
        out=(("vu", Intervals.of([(501, 599)])),),
        reclaimed=(("delft", 2),),
        black_holes=(("vu", "node7"),),
        charged=5,
        admitted_at=Instant(9),
    )
    return replace(found, **fields)


def a_pilot(number: int, sweep: int, **fields: Any) -> Attempt:
    owner = Owner(OwnerKind.SWEEP, sweep)
    found = replace(
        tried(FIRST_LAUNCHER + number),
        launcher=LauncherFields(owner=owner, claimed_at=Instant(4), stop_reason="shrunk"),
    )
    return replace(found, **fields)


def a_past_pilot(number: int, sweep: int, **fields: Any) -> Attempt:
    over = {"state": AttemptState.CLEANED_UP, "ending": Ending.DONE}
    return a_pilot(number, sweep, **over | fields)


def a_batch(sweep: int, first: int, count: int = 3, host: str = "node1") -> ResultBatch:
    results = [
        ParameterResult(number, 0, "exited", host, 2, 5, 6, 0, 10, 0, 3) for number in range(first, first + count)
    ]
    return ResultBatch(JobId(sweep), "vu", an_attempt(1 << 23), tuple(results))


LYON = Neighbour(
    name="lyon",
    relation=Relation.SIBLING,
    instance="zyxwv",
    received=7,
    free=12,
    reported_at=Instant(5),
    sent_free=3,
    refusals=(Refusal(job=JobId(2), at=Instant(6), reason=NOT_TAKEN),),
    next_lease=4,
    lent=7,
    borrowed=8,
)
LENT = LentLease(
    neighbour="lyon",
    number=3,
    job=JobId(9),
    processors=12,
    state=LeaseState.BOUND,
    asked_at=Instant(4),
    bound_at=Instant(5),
    ends_at=Instant(9),
    asked=Asked(
        origin=Origin("vu", 4, 5),
        want=Wanted(processors=12, walltime=HOUR, memory=1 << 30),
        dttl=2,
        answer_by=Instant(8),
        rejected_by=("paris",),
    ),
    length=1,
    why=NOT_TAKEN,
)
BORROWED = BorrowedLease(
    neighbour="lyon",
    number=2,
    processors=12,
    state=LeaseState.ASKED,
    asked_at=Instant(4),
    beyond=("vu", 7),
    round=6,
)
VU = Neighbour(name="vu", relation=Relation.PARENT)
OPEN_PILOT = Pilot(
    id=JobId(2),
    host_cluster="vu",
    options=PilotOptions(visible=("/opt",)),
    state=PilotState.BOUND,
    idle_since=Instant(4),
)
CLOSED_PILOT = Pilot(id=JobId(1), host_cluster="delft", options=PilotOptions(), state=PilotState.BOUND, failed=True)


SEEN = (  # the oldest first
    SeenRequest(Origin("lyon", 3, 8), Instant(5)),
    SeenRequest(Origin("lyon", 3, 7), Instant(6)),
    SeenRequest(Origin("vu", 3, 7), Instant(6)),
)


def state_of(store: Store) -> tuple[object, ...]:
    jobs = store.jobs()
    return store.load(), jobs, [store.history(job.id) for job in jobs], store.pending_cancels(), store.next_number


# ---- an empty store


def test_a_new_store_is_empty_and_named(store: Store) -> None:
    assert store.load() == Snapshot(instance=store.instance)
    assert len(store.instance) == INSTANCE_LENGTH
    assert is_tag(tag_of(store.instance, an_attempt(1)))
    assert (store.next_number, store.epoch) == (1, 1)
    assert (store.jobs(), store.pending_cancels(), store.job(JobId(1)), store.history(JobId(1))) == ([], [], None, [])


def test_an_empty_change_is_no_commit(store: Store) -> None:
    store.commit(Change())
    assert store.load() == Snapshot(instance=store.instance)


# ---- what is committed is kept


def test_everything_survives_reopening(opener: Opener) -> None:
    first = opener()
    commands: list[Command] = [
        CancelAttempt(cluster="vu", attempt=an_attempt(1, number=2), batch_id="9", force=True),
        CollectOutput(job=JobId(1), sources=(("vu", an_attempt(1)),), paths=("result.npy",), directory="/home/mona"),
        ReportFree(neighbour="lyon", processors=12),
        DelegateRequest(
            neighbour="lyon",
            lease=3,
            processors=12,
            walltime=HOUR,
            origin=Origin("vu", 4, 5),
            dttl=2,
            within=HOUR,
            memory=1 << 30,
        ),
        CancelRequest(neighbour="lyon", lease=3),
        RejectRequest(neighbour="lyon", lease=4, reason=NOT_TAKEN, processors=0),
        OfferLease(neighbour="lyon", lease=5, lasts=HOUR),
        ReturnLease(neighbour="lyon", lease=6),
        RevokeLease(neighbour="lyon", lease=5, within=HOUR),
        EndLease(neighbour="lyon", lease=5, charge=12 * HOUR, reason=NOT_TAKEN),
        AnnounceNotification(notification=NOTIFICATION, number=2, due_at=Instant(9), failure=NOT_TAKEN),
        SendNotification(notification=replace(NOTIFICATION, to=Program(words=("tell", "\udcff")))),
    ]
    change = Change(
        jobs=(a_job(2), a_job(1, JobState.CLAIMING)),
        attempts=(a_pending_cancel(3), a_pending_cancel(1, component=1)),
        counters=Counters(next_job=3, next_position=8),
        sent=tuple(entry(number, command) for number, command in enumerate(commands, 1)),
        pilots=(OPEN_PILOT, CLOSED_PILOT, replace(CLOSED_PILOT, state=PilotState.CLOSING)),
        neighbours=(LYON, VU, replace(VU, received=9)),
        leases=(BORROWED, LENT, replace(LENT, processors=11)),
        requests_seen=(SEEN[1], SEEN[0], SEEN[2]),
        history=(a_line(1), a_line(1, "job_claimed", clusters=["vu"]), a_line(2)),
        learned=LEARNED,
    )
    first.commit(change)
    kept = state_of(first)
    first.close()
    second = opener()
    assert state_of(second) == kept
    assert second.instance == first.instance
    assert second.load() == Snapshot(
        instance=first.instance,
        counters=Counters(next_job=3, next_position=8),
        jobs=(a_job(1, JobState.CLAIMING), a_job(2)),
        pending_cancels=(a_pending_cancel(1, component=1), a_pending_cancel(3)),
        jobless=(an_attempt(3),),
        outbox=tuple(entry(number, command) for number, command in enumerate(commands, 1)),
        learned=LEARNED,
        pilots=(replace(CLOSED_PILOT, state=PilotState.CLOSING), OPEN_PILOT),
        neighbours=(LYON, replace(VU, received=9)),
        leases=(replace(LENT, processors=11), BORROWED),
        requests_seen=SEEN,
    )
    second.commit(Change(pilots=(replace(CLOSED_PILOT, state=PilotState.ENDED),)))
    assert second.load().pilots == (OPEN_PILOT,)
    second.commit(Change(learned=Learned(), neighbours=(replace(VU, gone=True),)))
    assert second.load().learned == Learned()
    assert second.load().neighbours == (LYON,)
    second.commit(Change(leases=(replace(LENT, state=LeaseState.GONE),)))
    assert second.load().leases == (BORROWED,)
    unknown = Origin("lyon", 3, 9)
    second.commit(Change(requests_forgotten=(SEEN[0].origin, unknown)))
    assert second.load().requests_seen == SEEN[1:]
    again = SEEN[1]._replace(at=Instant(99))
    second.commit(Change(requests_forgotten=(again.origin,), requests_seen=(again,)))
    assert second.load().requests_seen == (SEEN[2], again)


def test_a_job_in_full_comes_back_equal(store: Store) -> None:
    plain = a_job(7)
    reason = Reason(
        "walltime", "request", "It ran out of walltime.", "Ask for more `walltime`.", "sacct -j 9", 0, "TIMEOUT"
    )
    used = replace(tried(7, number=3), state=AttemptState.ENDED, ending=Ending.FAILED, exit_status=137)
    job = replace(
        plain,
        state=JobState.FAILED,
        attempts=(replace(used, reason=reason), None),
        numbers=(3, 0),
        reason=reason,
        outcome=Outcome.FAILED,
        excluded=(("delft", Instant(7)),),
        finished_at=Instant(9),
    )
    assert used.id == an_attempt(7, number=3)
    store.commit(Change(jobs=(job,), attempts=(job.attempts[0],)))  # type: ignore[arg-type]
    assert store.job(job.id) == job


def running(job: int, number: int = 1, **fields: Any) -> Job:
    """A job with a present attempt of its first component."""
    present = replace(tried(job, number), state=AttemptState.RUNNING, **fields)
    return a_job(job, JobState.RUNNING, attempts=(present, None), numbers=(number, 0))


def with_attempts(*jobs: Job, **fields: Any) -> Change:
    """A change of these jobs and all their present attempts."""
    attempts = [each for job in jobs for each in job.attempts if each is not None]
    return Change(jobs=jobs, attempts=(*attempts, *fields.pop("attempts", ())), **fields)


def test_a_job_comes_with_its_attempts_which_are_written_without_it(store: Store) -> None:
    first, second = running(1), running(2)
    store.commit(with_attempts(first, second))
    ended = running(1, exit_status=5)
    store.commit(replace(with_attempts(replace(ended, position=77)), as_before=(first.id,)))
    for jobs in (store.jobs(), list(store.load().jobs), [store.job(first.id), store.job(second.id)]):
        assert jobs == [ended, second]


def test_a_new_try_takes_the_place_of_the_last_one(store: Store) -> None:
    """The rest of the last try stays until it is cleaned up, and is not in its job any more."""
    first = running(1)
    tried_first = first.attempts[0]
    assert tried_first is not None
    left = replace(tried_first, detached_at=Instant(5), superseded=True, cancelling=True)
    left = replace(left, state=AttemptState.ENDED, ending=Ending.CANCELLED)
    store.commit(with_attempts(first))
    waiting = a_job(1, numbers=(1, 0))
    store.commit(with_attempts(waiting, attempts=(left,)))
    assert (store.job(first.id), store.pending_cancels()) == (waiting, [left])
    again = running(1, number=2)
    store.commit(with_attempts(again))
    assert (store.job(first.id), store.pending_cancels()) == (again, [left])
    assert store.load() == Snapshot(instance=store.instance, jobs=(again,), pending_cancels=(left,))
    store.commit(Change(attempts=(replace(left, state=AttemptState.CLEANED_UP),)))
    assert (store.job(first.id), store.pending_cancels()) == (again, [])


def test_the_attempt_of_a_final_job_is_as_its_pending_cancel_ended(store: Store) -> None:
    left = replace(a_pending_cancel(1), superseded=False)
    job = a_job(1, JobState.CANCELLED, attempts=(left, None), numbers=(1, 0), finished_at=Instant(9))
    store.commit(with_attempts(job))
    assert (store.jobs(), store.pending_cancels()) == ([job], [left])
    over = replace(left, state=AttemptState.CLEANED_UP)
    store.commit(Change(attempts=(over,)))
    assert (store.jobs(), store.pending_cancels()) == ([replace(job, attempts=(over, None))], [])
    store.commit(Change(removed=(job.id,)))
    store.commit(Change(jobs=(a_job(1),)))
    assert store.jobs() == [a_job(1)]


def test_a_job_is_replaced_and_keeps_its_history(store: Store) -> None:
    store.commit(Change(jobs=(a_job(1),), history=(a_line(1),)))
    store.commit(Change(jobs=(a_job(1, JobState.CLAIMING),), history=(a_line(1, "job_claimed"),)))
    assert store.jobs() == [a_job(1, JobState.CLAIMING)]
    assert [line.kind for line in store.history(JobId(1))] == ["work_submitted", "job_claimed"]


def test_of_two_versions_in_one_change_the_last_is_kept(store: Store) -> None:
    store.commit(
        Change(
            jobs=(a_job(1), a_job(1, JobState.HELD)),
            attempts=(a_pending_cancel(1), replace(a_pending_cancel(1), batch_id="8")),
        )
    )
    assert store.jobs() == [a_job(1, JobState.HELD)]
    assert [each.batch_id for each in store.pending_cancels()] == ["8"]


def test_finished_jobs_are_listed_but_not_loaded(store: Store) -> None:
    jobs = [a_job(number, state) for number, state in enumerate(JobState, start=1)]
    store.commit(Change(jobs=tuple(jobs)))
    assert store.jobs() == jobs
    assert store.load().jobs == tuple(job for job in jobs if not job.state.final)


def test_pending_cancels_complete_and_outbox_entries_are_confirmed(store: Store) -> None:
    store.commit(Change(attempts=(a_pending_cancel(1), a_pending_cancel(1, component=1)), sent=(entry(1), entry(2))))
    store.commit(Change(attempts=(a_completed_cancel(1),), confirmed=(1,), sent=(entry(3),)))
    assert store.pending_cancels() == [a_pending_cancel(1, component=1)]
    assert [kept.number for kept in store.load().outbox] == [2, 3]


def test_what_one_change_adds_and_takes_away_is_gone(store: Store) -> None:
    store.commit(
        Change(
            jobs=(a_job(1),),
            history=(a_line(1),),
            attempts=(a_pending_cancel(1), a_completed_cancel(1), tried(1)),
            sent=(entry(1),),
            confirmed=(1,),
            removed=(JobId(1),),
        )
    )
    assert store.load() == Snapshot(instance=store.instance)
    assert (store.jobs(), store.history(JobId(1)), store.next_number) == ([], [], 2)


def test_to_take_away_what_is_not_there_is_no_error(store: Store) -> None:
    store.commit(Change(attempts=(a_completed_cancel(5),), confirmed=(99,), removed=(JobId(5),)))
    assert store.load() == Snapshot(instance=store.instance)


def test_a_pruned_job_takes_its_history_along_and_leaves_its_pending_cancel(store: Store) -> None:
    store.commit(
        Change(jobs=(a_job(1, key="k"), a_job(2)), history=(a_line(1), a_line(2)), attempts=(a_pending_cancel(1),))
    )
    store.commit(Change(removed=(JobId(1),)))
    assert store.jobs() == [a_job(2)]
    assert (store.history(JobId(1)), store.history(JobId(2))) == ([], [a_line(2)])
    assert store.pending_cancels() == [a_pending_cancel(1)]
    assert store.id_of_key("mona", "k") is None


def prunable(store: Store, **changes: Any) -> list[int]:
    asked = {"before": Instant(50), "most": 10, "after": JobId(0), "records": True} | changes
    return [job.id for job in store.prunable(**asked)]


def prunable_pilots(store: Store, **changes: Any) -> list[str]:
    asked = {"before": Instant(50), "most": 10, "after": JobId(0), "records": True} | changes
    return [str(each.id) for each in store.prunable_launchers(**asked)]


def test_jobs_that_were_over_by_an_instant_are_found_by_id_and_in_pages(store: Store) -> None:
    over = [a_job(number, JobState.DONE, finished_at=Instant(10 * number)) for number in range(1, 8)]
    store.commit(Change(jobs=(*over, a_job(8), a_job(9, JobState.CANCELLED, finished_at=Instant(1)))))
    assert prunable(store) == [1, 2, 3, 4, 5, 9]
    assert prunable(store, most=2) == [1, 2]
    assert prunable(store, most=2, after=JobId(4)) == [5, 9]
    assert prunable(store, before=Instant(0)) == []


def test_pilots_are_found_by_the_end_of_their_sweep_and_a_sweep_once_it_has_none(store: Store) -> None:
    over = a_sweep(1, state=JobState.DONE, finished_at=Instant(40))
    pilots = a_past_pilot(0, 1), a_past_pilot(1, 2), a_past_pilot(2, 1), a_past_pilot(3, 1)
    store.commit(Change(sweeps=(over, a_sweep(2)), attempts=pilots))
    assert (prunable(store), prunable_pilots(store)) == ([], ["p1", "p3", "p4"])
    assert prunable_pilots(store, most=1, after=pilots[0].id.job) == ["p3"]
    assert prunable_pilots(store, before=Instant(39)) == []
    store.commit(Change(history=(a_line(pilots[0].id.job, HistoryKind.OUTPUT_PRUNED),)))
    assert prunable_pilots(store, records=False) == ["p3", "p4"]
    store.commit(Change(removed=(pilots[0].id.job, pilots[2].id.job)))
    assert (prunable(store), prunable_pilots(store)) == ([], ["p4"])
    store.commit(Change(removed=(pilots[3].id.job,)))
    assert (prunable(store), prunable_pilots(store)) == ([1], [])


def test_jobs_without_directories_are_found_for_their_records_only(store: Store) -> None:
    over = [a_job(number, JobState.FAILED, finished_at=Instant(10)) for number in (1, 2)]
    store.commit(Change(jobs=tuple(over), history=(a_line(1), a_line(1, HistoryKind.OUTPUT_PRUNED), a_line(2))))
    assert (prunable(store, records=False), prunable(store)) == ([2], [1, 2])


def test_usage_is_entered_once_and_the_accounting_corrects_it(opener: Opener) -> None:
    """The same entry again, as after a commit in doubt, is one."""
    store = opener()
    store.commit(Change(jobs=(a_job(1), a_job(2)), usage=(a_usage(1), a_usage(2))))
    store.commit(Change(usage=(a_usage(1),)))
    span = BatchSpan(attempt=an_attempt(2), cluster="vu", started_at=Instant(999), ended_at=Instant(5001), processors=5)
    unknown = BatchSpan(attempt=an_attempt(9), cluster="vu", started_at=Instant(1), ended_at=Instant(2), processors=1)
    store.commit(Change(accounted=(span, unknown)))
    store.close()
    store = opener()
    assert store.usage() == [a_usage(1), accounted(a_usage(2), span)]
    assert store.usage()[1].processors == 5
    assert store.usage(Instant(5000)) == store.usage()[1:]
    assert store.used(Instant(5000)) == (store.usage()[1:], [])
    store.commit(Change(usage=(a_usage(3),), accounted=(replace(span, attempt=an_attempt(3)),)))
    assert store.usage()[2].accounted


def test_usage_of_removed_jobs_is_summed_up_by_day_user_and_cluster(opener: Opener) -> None:
    store = opener()
    delft = replace(a_usage(4), cluster="delft", kind=Kind.RUN, accounted=True)
    long = replace(a_usage(5), started_at=Instant(DAY - 10), released_at=Instant(DAY), ended_at=Instant(DAY + 7))
    entries = (a_usage(1), a_usage(2), a_usage(3), delft, long)
    store.commit(Change(jobs=tuple(a_job(number) for number in range(1, 6)), usage=entries))
    store.commit(Change(removed=(JobId(1),)))
    store.commit(Change(removed=(JobId(3), JobId(4))))
    store.commit(Change(removed=(JobId(1), JobId(5))))  # the first once more
    store.close()
    left, days = opener().used()
    lost = Sum(held=4000, lost=12_000, estimated=16_000, attempts=1)
    first = lost.plus(lost).plus(Sum(held=40, estimated=40))
    assert left == [a_usage(2)]
    assert days == [
        DayUsage(day=Instant(0), owner="mona", cluster="delft", used=Sum(held=4000, run=12_000, attempts=1)),
        DayUsage(day=Instant(0), owner="mona", cluster="vu", used=first),
        DayUsage(day=Instant(DAY), owner="mona", cluster="vu", used=Sum(lost=28, estimated=28, attempts=1)),
    ]
    for by in By:
        assert total(sums(left, by, days=days)) == total(sums(entries, by))


def test_usage_of_a_removed_sweeps_pilots_is_summed_up_with_it(store: Store) -> None:
    pilot = a_past_pilot(3, 1)
    of_pilot = replace(a_usage(3), attempt=pilot.id, charged=JobId(1), kind=Kind.SCAVENGED)
    store.commit(Change(sweeps=(a_sweep(1),), attempts=(pilot,), usage=(of_pilot,)))
    store.commit(Change(removed=(JobId(1),)))
    left, days = store.used()
    assert (left, [each.used.attempts for each in days]) == ([], [1])


def test_accounts_of_leases_survive_until_they_are_summed_up_by_day_and_neighbour(opener: Opener) -> None:
    store = opener()
    long = a_lease(3, lent=True, began_at=Instant(DAY - 1000), ended_at=Instant(DAY + 3000), charge=4001)
    leases = [a_lease(1), a_lease(2, ended_at=Instant(DAY), charge=7), long]
    store.commit(Change(leases_ended=(*leases[::-1], a_lease(1))))
    store.commit(Change(leases_ended=(replace(long, charge=4002),)))  # its lender has reported another number
    leases[2] = replace(long, charge=4002)
    store.close()
    store = opener()
    assert store.ended_leases() == (leases, [])
    assert store.ended_leases(Instant(5000)) == (leases[1:], [])
    assert store.prunable_leases(Instant(DAY), 9) == [each.key for each in leases[:2]]
    assert store.prunable_leases(Instant(DAY), 1) == [leases[0].key]
    store.commit(Change(leases_removed=(leases[0].key,)))
    store.commit(Change(leases_removed=tuple(each.key for each in leases)))  # the first once more
    assert store.prunable_leases(Instant(9 * DAY), 9) == []
    left, days = store.ended_leases()
    assert left == []
    first = Charged(borrowed=12_007, measured=24_008, leases=2, lent=1000)
    assert days == [
        LeaseDay(day=Instant(0), neighbour="lyon", charged=first),
        LeaseDay(day=Instant(DAY), neighbour="lyon", charged=Charged(lent=3002, leases=1)),
    ]
    store.commit(Change(leases_ended=(a_lease(9),)))
    assert charges(*store.ended_leases()[:1], days=days) == charges([*leases, a_lease(9)])


def a_lease(number: int, **fields: Any) -> EndedLease:
    values: dict[str, Any] = {
        "neighbour": "lyon", "lent": False, "number": number, "asked_at": Instant(7), "began_at": Instant(1000),
        "ended_at": Instant(4000), "processors": 4, "charge": 12_000, "measured": 12_004, "job": JobId(5),
        "cluster": "lyon~3", "links": 1, "request": 5, "user": "mona", "name": "poisson", "code": "lease_ended",
        "message": "Its time is over.", **fields,
    }  # fmt: skip
    return EndedLease(**values)


def total(found: Mapping[Any, Sum]) -> Sum:
    result = Sum()
    for each in found.values():
        result = result.plus(each)
    return result


def a_usage(job: int) -> Usage:
    return Usage(
        attempt=an_attempt(job),
        owner="mona",
        charged=JobId(job),
        name="poisson",
        cluster="vu",
        processors=4,
        kind=Kind.LOST,
        started_at=Instant(1000),
        released_at=Instant(2000),
        ended_at=Instant(5000),
        batch_id="77",
    )


def test_the_last_run_of_each_maintenance_task_is_kept(opener: Opener) -> None:
    store = opener()
    first = MaintenanceRun(name="nightly", task="prune-history", began=Instant(5), message="Begun.")
    last = replace(first, began=Instant(7), ended=Instant(9), well=True, message="2 jobs pruned.")
    other = replace(first, name="backup", task="backup")
    for run in (first, other, last):
        store.record_maintenance(run)
    assert store.maintenance() == [other, last]
    store.close()
    assert opener().maintenance() == [other, last]


def test_outbox_numbers_go_on_after_the_last_ever_used(opener: Opener) -> None:
    first = opener()
    first.commit(Change(sent=(entry(1), entry(7))))
    first.commit(Change(confirmed=(1, 7)))
    assert first.next_number == 8
    first.close()
    assert opener().next_number == 8


# ---- reads


def test_jobs_are_found_by_state_and_by_id(store: Store) -> None:
    jobs = [a_job(number, state) for number, state in enumerate(JobState, start=1)]
    store.commit(Change(jobs=tuple(jobs)))
    wanted = {JobState.WAITING, JobState.DONE}
    assert store.jobs(states=wanted) == [job for job in jobs if job.state in wanted]
    assert store.jobs(ids=[JobId(5), JobId(2), JobId(2), JobId(99)]) == [jobs[1], jobs[4]]
    waiting = list(JobState).index(JobState.WAITING)
    assert store.jobs(states=wanted, ids=[JobId(waiting + 1), JobId(waiting)]) == [jobs[waiting]]
    assert (store.jobs(states=()), store.jobs(ids=())) == ([], [])


def test_more_ids_than_a_statement_has_room_for(store: Store) -> None:
    store.commit(Change(jobs=tuple(a_job(number) for number in (1, 1500, 70_000))))
    found = store.jobs(ids=[JobId(number) for number in range(70_001, 0, -1)])
    assert [job.id for job in found] == [1, 1500, 70_000]


def test_a_key_is_its_owners(store: Store) -> None:
    store.commit(Change(jobs=(a_job(1, key="again"), a_job(2, key="again", owner="lisa"), a_job(3), a_job(4))))
    assert store.id_of_key("mona", "again") == 1
    assert store.id_of_key("lisa", "again") == 2
    assert store.id_of_key("mona", "other") is None
    assert store.id_of_key("mona", "") is None


def test_many_keys_at_once(store: Store) -> None:
    store.commit(Change(jobs=(a_job(1, key="a"), a_job(2, key="b", owner="lisa"), a_job(3, key="c"), a_job(4))))
    assert store.ids_of_keys("mona", {"a", "b", "c", "d", ""}) == {"a": 1, "c": 3}
    assert store.ids_of_keys("mona", [str(number) for number in range(2500)] + ["c"]) == {"c": 3}
    assert store.ids_of_keys("mona", ()) == {}


def test_history_keeps_order_and_json_details(store: Store) -> None:
    details = {"cluster": "vu", "attempt": an_attempt(1), "counts": (1, 2), "nested": {"none": None, "yes": True}}
    store.commit(Change(jobs=(a_job(1),), history=tuple(a_line(1, f"kind_{number}") for number in range(20))))
    store.commit(Change(history=(a_line(1, "last", **details),)))
    lines = store.history(JobId(1))
    assert [line.kind for line in lines] == [*(f"kind_{number}" for number in range(20)), "last"]
    assert lines[-1].details == {
        "cluster": "vu",
        "attempt": [1, 0, 1],
        "counts": [1, 2],
        "nested": {"none": None, "yes": True},
    }


def test_a_reason_can_be_a_detail(store: Store) -> None:
    reason = Reason("eqw", "request", "It cannot start.", exit_status=1)
    store.commit(Change(jobs=(a_job(1),), history=(a_line(1, "work_failed", reason=reason),)))
    assert Reason(**store.history(JobId(1))[0].details["reason"]) == reason


def test_history_cannot_be_changed_from_outside(store: Store) -> None:
    details = {"cluster": "vu"}
    store.commit(Change(jobs=(a_job(1),), history=(a_line(1, **details),)))
    details["cluster"] = "delft"
    store.history(JobId(1))[0].details["cluster"] = "delft"
    assert store.history(JobId(1))[0].details == {"cluster": "vu"}


@pytest.mark.parametrize("strange", ["naïve ☃ 𝄞", "latin-1 \udce9", "escape \x1b", "quote ' \" \\"], ids=ascii)
def test_a_text_comes_back_whatever_it_holds(store: Store, strange: str) -> None:
    job = a_job(1, key=strange, owner=strange)
    wish = replace(job.request.components[0], arguments=(strange,), environment=((strange, strange),), cluster=strange)
    job = replace(job, request=replace(job.request, name=strange, components=(wish,)))
    command = ForgetAttempt(cluster=strange, attempt=an_attempt(1))
    each = replace(a_pending_cancel(1), cluster=strange)
    store.commit(
        Change(jobs=(job,), attempts=(each,), sent=(entry(1, command),), history=(a_line(1, "odd", words=strange),))
    )
    assert store.load() == Snapshot(
        instance=store.instance, jobs=(job,), pending_cancels=(each,), outbox=(entry(1, command),)
    )
    assert store.id_of_key(strange, strange) == 1
    assert store.ids_of_keys(strange, {strange}) == {strange: 1}
    assert store.history(JobId(1))[0].details == {"words": strange}


# ---- sweeps


def test_a_sweep_and_its_pilot_come_back_equal(opener: Opener) -> None:
    first = opener()
    counters = Counters(next_job=2, next_launcher=FIRST_LAUNCHER + 1)
    first.commit(Change(sweeps=(a_sweep(1),), attempts=(a_pilot(0, sweep=1),), counters=counters))
    first.close()
    kept = opener().load()
    assert (kept.jobs, kept.sweeps, kept.launchers) == ((), (a_sweep(1),), (a_pilot(0, sweep=1),))
    assert kept.counters == counters


def test_pilots_are_listed_with_their_sweep_or_by_their_ids(store: Store) -> None:
    pilots = [a_pilot(number, sweep=1 + number % 2) for number in range(4)]
    over = a_past_pilot(4, sweep=1)
    store.commit(Change(sweeps=(a_sweep(1), a_sweep(2)), attempts=(*pilots, over)))
    assert (store.jobs(), store.sweeps()) == ([], [a_sweep(1), a_sweep(2)])
    assert store.launchers_of(JobId(1)) == [pilots[0], pilots[2], over]
    assert store.launchers_of(JobId(9)) == []
    assert (store.launcher(over.id), store.launcher(a_pilot(9, 1).id)) == (over, None)
    assert (store.load().sweeps, store.load().launchers) == ((a_sweep(1), a_sweep(2)), tuple(pilots))


def test_results_come_in_the_order_of_commits(store: Store) -> None:
    store.commit(Change(sweeps=(a_sweep(1), a_sweep(2)), results=(a_batch(1, 4), a_batch(2, 1))))
    store.commit(Change(results=(a_batch(1, 1), a_batch(1, 7))))
    numbered = list(store.results(JobId(1)))
    assert [batch for _, batch in numbered] == [a_batch(1, 4), a_batch(1, 1), a_batch(1, 7)]
    assert [number for number, _ in numbered] == sorted({number for number, _ in numbered})
    assert list(store.results(JobId(1), after=numbered[0][0])) == numbered[1:]
    assert [batch for _, batch in store.results(JobId(2))] == [a_batch(2, 1)]
    assert list(store.results(JobId(3))) == []


def test_results_are_read_while_others_are_committed(store: Store) -> None:
    """More than a page of them, and a reader that takes its time keeps nobody from writing."""
    store.commit(Change(sweeps=(a_sweep(1),), results=tuple(a_batch(1, number, 1) for number in range(1, 1501))))
    reader = store.results(JobId(1))
    first = next(reader)
    store.commit(Change(results=(a_batch(1, 9999),)))
    read = [first, *reader]
    assert [batch.results[0].number for _, batch in read[:1500]] == list(range(1, 1501))
    assert [batch for _, batch in store.results(JobId(1), after=read[1499][0])] == [a_batch(1, 9999)]


def test_the_result_of_one_parameter(store: Store) -> None:
    """Also where a batch was recorded out of order, and where another has numbers about it."""
    mixed = replace(a_batch(1, 1), results=(*a_batch(1, 90, 2).results, *a_batch(1, 3, 2).results))
    store.commit(
        Change(sweeps=(a_sweep(1), a_sweep(2)), results=(a_batch(1, 1, 2), mixed, a_batch(1, 5), a_batch(2, 8)))
    )
    assert [store.result(JobId(1), number) for number in (2, 3, 91, 6)] == [
        a_batch(1, 2, 1), replace(mixed, results=mixed.results[2:3]), a_batch(1, 91, 1), a_batch(1, 6, 1),
    ]  # fmt: skip
    assert [store.result(JobId(sweep), number) for sweep, number in ((1, 8), (1, 92), (2, 7), (3, 1))] == [None] * 4
    store.commit(Change(results=(a_batch(1, 20, 1, host="[21,"), replace(mixed, results=a_batch(1, 19).results[::2]))))
    assert store.result(JobId(1), 21) == a_batch(1, 21, 1)


def test_results_outlive_a_restart_whatever_a_host_is_called(opener: Opener) -> None:
    first = opener()
    first.commit(Change(sweeps=(a_sweep(1),), results=(a_batch(1, 1, host="naïve \udce9 \x1b"),)))
    first.close()
    assert [batch for _, batch in opener().results(JobId(1))] == [a_batch(1, 1, host="naïve \udce9 \x1b")]


def test_a_pruned_sweep_takes_its_results_and_pilots_along(store: Store) -> None:
    pilot, other = a_past_pilot(0, 1), a_past_pilot(1, 2)
    results = a_batch(1, 1), a_batch(2, 1)
    store.commit(
        Change(
            sweeps=(a_sweep(1), a_sweep(2)), attempts=(pilot, other), results=results, history=(a_line(pilot.id.job),)
        )
    )
    store.commit(Change(removed=(JobId(1),)))
    assert (store.sweeps(), store.launchers_of(JobId(1)), list(store.results(JobId(1)))) == ([a_sweep(2)], [], [])
    assert store.history(pilot.id.job) == []
    assert store.launchers_of(JobId(2)) == [other]
    assert [batch for _, batch in store.results(JobId(2))] == [a_batch(2, 1)]


def test_a_pilot_is_kept_without_a_job_and_loaded_until_it_is_let_go(opener: Opener) -> None:
    store = opener()
    detached = a_pilot(2, 1, state=AttemptState.ENDED, ending=Ending.CANCELLED, detached_at=Instant(7))
    store.commit(Change(sweeps=(a_sweep(1),), attempts=(a_pilot(3, 1), detached, a_pilot(1, 1))))
    store.close()
    store = opener()
    assert store.load().launchers == (a_pilot(1, 1), a_pilot(3, 1))
    assert (store.load().pending_cancels, store.load().jobless) == ((detached,), ())
    over = a_past_pilot(1, 1)
    store.commit(Change(attempts=(over,)))
    assert store.load().launchers == (a_pilot(3, 1),)


def test_a_million_parameters_are_a_small_record(store: Store) -> None:
    store.commit(Change(sweeps=(a_sweep(1),)))
    assert len(dump_work(a_sweep(1))[1]) < 2500


def test_jobs_and_sweeps_are_listed_apart_and_together(store: Store) -> None:
    sweep, over = a_sweep(2, key="s"), a_sweep(4, state=JobState.DONE, finished_at=Instant(9))
    store.commit(Change(jobs=(a_job(3, key="j"), a_job(1)), sweeps=(over, sweep)))
    assert (store.jobs(), store.sweeps()) == ([a_job(1), a_job(3, key="j")], [sweep, over])
    assert store.all_work() == [a_job(1), sweep, a_job(3, key="j"), over]
    assert store.all_work([JobState.RUNNING, JobState.DONE], ids=[JobId(4), JobId(1)]) == [over]
    assert [store.work(JobId(each)) for each in (2, 3, 9)] == [sweep, a_job(3, key="j"), None]
    assert (store.job(JobId(2)), store.sweep(JobId(3)), store.sweep(JobId(2))) == (None, None, sweep)
    assert store.ids_of_keys("mona", ["j", "s"]) == {"j": 3, "s": 2}
    assert [each.id for each in store.prunable(Instant(40), 9, JobId(0), True)] == [4]


def test_flows_and_sent_jobs_are_kept_as_what_they_are(store: Store) -> None:
    flow, sent = a_flow(1, key="f"), a_sent_job(4, sent=Sent(job=JobId(9)))
    store.commit(Change(jobs=(a_job(2),), sweeps=(a_sweep(3),), flows=(flow,), sent_jobs=(sent,)))
    assert store.all_work() == [flow, a_job(2), a_sweep(3), sent]
    assert (store.jobs(), store.sweeps(), store.work(JobId(4))) == ([a_job(2)], [a_sweep(3)], sent)
    assert (store.job(JobId(1)), store.id_of_key("mona", "f")) == (None, 1)
    found = store.load()
    assert (found.flows, found.sent_jobs) == ((flow,), (sent,))
    assert found.work == store.all_work()
    over = replace(flow, state=JobState.DONE, done=2, finished_at=Instant(30))
    store.commit(Change(flows=(over,)))
    assert (store.load().flows, store.work(JobId(1))) == ((), over)
    assert store.prunable(Instant(40), 9, JobId(0), True) == [over]
    store.commit(Change(removed=(JobId(1), JobId(4))))
    assert store.all_work() == [a_job(2), a_sweep(3)]


def test_a_key_is_free_again_once_its_sweep_is_removed(store: Store) -> None:
    store.commit(Change(sweeps=(a_sweep(1, key="one"),)))
    store.commit(Change(removed=(JobId(1),)))
    store.commit(Change(jobs=(a_job(2, key="one"),), new=(JobId(2),)))
    assert store.id_of_key("mona", "one") == 2


# ---- all or nothing

GOOD = Change(
    jobs=(a_job(1, JobState.CLAIMING, key="taken"), a_job(5)),
    attempts=(a_pending_cancel(4), a_completed_cancel(3)),
    counters=Counters(90, 90),
    sent=(entry(11),),
    confirmed=(10,),
    history=(a_line(1, "job_claimed"),),
    removed=(JobId(2),),
    new=(JobId(5),),
)


@pytest.mark.parametrize(
    "contradiction",
    [
        {"jobs": (*GOOD.jobs, a_job(6, key="taken"))},
        {"jobs": (*GOOD.jobs, a_job(6, key="new"), a_job(7, key="new"))},
        {"jobs": (*GOOD.jobs, a_job(3, JobState.DONE)), "new": (JobId(5), JobId(3))},
        {"sweeps": (a_sweep(6, key="taken"),)},
        {"sweeps": (a_sweep(3),), "new": (JobId(5), JobId(3))},
        {"sweeps": (a_sweep(5),)},
        {"sent": (*GOOD.sent, entry(10))},
        {"sent": (*GOOD.sent, entry(11))},
        {"results": (a_batch(99, 1),)},
        {"history": (*GOOD.history, a_line(99))},
        {"history": (*GOOD.history, a_line(FIRST_LAUNCHER))},
        {"history": (*GOOD.history, a_line(1, "unwritable", words=object()))},
        {"history": (*GOOD.history, a_line(1, "unwritable", number=float("nan")))},
    ],
    ids=[
        "key of another",
        "key twice",
        "id in use",
        "key of a job",
        "id of a job",
        "id of a job and a sweep",
        "number in use",
        "number twice",
        "no such sweep",
        "history of no job",
        "history of no pilot",
        "no JSON",
        "no number",
    ],
)
def test_a_contradiction_leaves_everything_as_it_was(opener: Opener, contradiction: dict[str, Any]) -> None:
    store = opener()
    start = Change(
        jobs=(a_job(1, key="taken"), a_job(2), a_job(3)),
        attempts=(a_pending_cancel(3),),
        sent=(entry(10),),
        history=(a_line(2),),
    )
    store.commit(start)
    before = state_of(store)
    with pytest.raises(StoreConflict) as refusal:
        store.commit(replace(GOOD, **contradiction))
    assert refusal.value.reason.whose == "ours"
    assert refusal.value.reason.advice
    assert state_of(store) == before
    store.close()
    again = opener()
    assert state_of(again) == before
    again.commit(GOOD)
    assert [job.id for job in again.jobs()] == [1, 3, 5]


# ---- what no record may be


def change_attempt(**fields: Any) -> Job:
    return a_job(7, JobState.RUNNING, attempts=(replace(tried(7), **fields), None), numbers=(1, 0))


def with_request(**fields: Any) -> Job:
    job = a_job(7)
    return replace(job, request=replace(job.request, **fields))


def a_cancel(**fields: Any) -> OutboxEntry:
    return entry(8, replace(CancelAttempt(cluster="vu", attempt=an_attempt(7), batch_id="9"), **fields))


def a_result(**fields: Any) -> ResultBatch:
    batch = a_batch(7, 1, count=1)
    return replace(batch, results=(batch.results[0]._replace(**fields),))


WRONG: Any = {"a": 1}  # of no field's type


@pytest.mark.parametrize(
    ("part", "record", "kind", "field"),
    [
        ("jobs", change_attempt(batch_id=WRONG), "Job", "attempts.0.batch_id"),
        ("jobs", change_attempt(exit_status="0"), "Job", "attempts.0.exit_status"),
        ("jobs", change_attempt(exit_status=10**30), "Job", "attempts.0.exit_status"),
        ("jobs", change_attempt(started_at=(1 << 53) + 1), "Job", "attempts.0.started_at"),
        ("jobs", change_attempt(started_at=1.5), "Job", "attempts.0.started_at"),
        ("jobs", change_attempt(cancelling=1), "Job", "attempts.0.cancelling"),
        ("jobs", change_attempt(nodes=(("n1", "n1", 4),)), "Job", "attempts.0.nodes.0"),
        ("jobs", change_attempt(nodes=[]), "Job", "attempts.0.nodes"),
        ("jobs", change_attempt(state="running"), "Job", "attempts.0.state"),
        ("jobs", change_attempt(reason="lost"), "Job", "attempts.0.reason"),
        ("jobs", change_attempt(cluster="a\0b"), "Job", "attempts.0.cluster"),
        ("jobs", with_request(name=None), "Job", "request.name"),
        ("jobs", with_request(directory="/tmp\0"), "Job", "request.directory"),
        ("jobs", a_job(7, owner=None), "Job", "owner"),
        ("attempts", replace(a_pending_cancel(7), detached_at=Instant(-(1 << 60))), "Attempt", "detached_at"),
        (
            "attempts",
            replace(a_pending_cancel(7), id=AttemptId(JobId(7), 0, "1")),  # type: ignore[arg-type]
            "Attempt",
            "id.number",
        ),
        (
            "attempts",
            replace(tried(7), launcher=a_pilot(0, WRONG).launcher),
            "Attempt",
            "launcher.owner.id",
        ),
        ("sent", a_cancel(batch_id=5), "OutboxEntry", "command.CancelAttempt.batch_id"),
        (
            "sent",
            a_cancel(attempt=an_attempt(7, number=1 << 60)),
            "OutboxEntry",
            "command.CancelAttempt.attempt.number",
        ),
        ("history", replace(a_line(7), at=Instant(1 << 60)), "History", "at"),
        ("results", a_result(exit_status="x"), "ResultBatch", "results.0.exit_status"),
        ("results", a_result(output_size=1 << 60), "ResultBatch", "results.0.output_size"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_value_that_no_record_may_have_is_refused_by_name(
    opener: Opener, part: str, record: object, kind: str, field: str
) -> None:
    store = opener()
    store.commit(Change(jobs=(a_job(7),), history=(a_line(7),)))
    before = state_of(store)
    wrong: dict[str, Any] = {part: (record,)}
    change = replace(Change(jobs=(a_job(8),), counters=Counters(9, 9)), **wrong)
    with pytest.raises(RecordInvalid) as refusal:
        store.commit(change)
    reason = refusal.value.reason
    assert (reason.code, reason.whose) == ("record_invalid", "ours")
    assert f"in `{part}`, the {field} of the {kind} record of job 7 is wrong" in reason.message
    assert state_of(store) == before
    store.close()
    assert state_of(opener())[1:4] == before[1:4]


def test_what_a_program_or_a_batch_system_printed_can_always_be_kept(store: Store) -> None:
    reason = Reason("failed", "request", "It said \0.", "", command="sbatch", words="binary \0\x1b output")
    store.commit(with_attempts(change_attempt(reason=reason)))
    (job,) = store.jobs()
    assert present(job).reason == reason
    assert reason.words == "binary \\0\x1b output"


@pytest.mark.parametrize(
    "wrong",
    [
        {"epoch_jump": EpochJump(epoch=2, last_number=(1 << 63) - 1)},
        {"epoch_jump": EpochJump(epoch=1 << 62, last_number=5)},
        {"counters": Counters(next_job=10**30)},
        {"confirmed": (1 << 63,)},
        {"removed": ("7",)},
        {"attempts": (replace(tried(7), id=(7, 0, 1)),)},  # type: ignore[arg-type]
        {"attempts": (replace(tried(7), id=(7, 0)),)},  # type: ignore[arg-type]
        {"sent": (OutboxEntry(1 << 60, entry(1).command),)},
        {"learned": Learned((Past("vu", 10**20),))},
    ],
    ids=str,
)
def test_a_number_that_would_use_up_a_store_for_ever_is_refused(opener: Opener, wrong: dict[str, Any]) -> None:
    store = opener()
    store.commit(Change(jobs=(a_job(7),), sent=(entry(1),)))
    before = state_of(store)
    with pytest.raises(RecordInvalid, match=f"in `{next(iter(wrong))}`, the"):
        store.commit(Change(**wrong))
    assert state_of(store) == before
    store.commit(Change(sent=(entry(2),)))
    assert store.next_number == 3


# ---- openers


def test_the_epoch_grows_with_every_opening(opener: Opener) -> None:
    epochs = []
    for _ in range(3):
        store = opener()
        epochs.append(store.epoch)
        store.close()
    assert epochs == [1, 2, 3]


def test_a_store_is_checked(store: Store) -> None:
    store.commit(Change(jobs=(a_job(1),)))
    store.check()
    assert store.jobs() == [a_job(1)]


def test_a_leap_is_kept_with_the_rest_of_its_change(opener: Opener) -> None:
    """As after a backup was restored: the epochs and numbers that were used since it was made are left behind."""
    first = opener()
    first.commit(Change(sent=(entry(5),)))
    first.commit(Change(epoch_jump=EpochJump(epoch=70, last_number=1000), counters=Counters(next_job=90)))
    assert (first.epoch, first.next_number) == (70, 1001)
    first.check()
    first.commit(Change(jobs=(a_job(89),), sent=(entry(1001),)))
    first.close()
    second = opener()
    assert (second.epoch, second.next_number) == (71, 1002)
    assert second.load().counters == Counters(next_job=90)


def test_a_closed_store_reports_it(store: Store) -> None:
    store.close()
    store.close()
    uses: list[Callable[[], object]] = [
        store.load,
        store.jobs,
        store.pending_cancels,
        lambda: store.job(JobId(1)),
        lambda: store.history(JobId(1)),
        lambda: store.id_of_key("mona", "k"),
        lambda: store.commit(Change(jobs=(a_job(1),))),
        store.check,
    ]
    for use in uses:
        with pytest.raises(StoreError, match="is closed"):
            use()


def test_a_koalad_that_was_taken_over_cannot_commit() -> None:
    first = MemoryStore()
    second = first.reopened()
    with pytest.raises(StoreLocked, match="taken over"):
        first.commit(Change(jobs=(a_job(1),)))
    with pytest.raises(StoreLocked, match="taken over"):
        first.check()
    second.check()
    assert second.jobs() == []


def test_readers_see_whole_commits_only(store: Store) -> None:
    """Every commit moves two jobs to one place, and announces it: no reader may see them apart."""
    over = threading.Event()

    def watch() -> int:
        places = [0]
        while not over.is_set():
            jobs = store.jobs()
            assert len({job.position for job in jobs}) <= 1
            assert store.job(JobId(1)) is not None
            reported = len(store.history(JobId(1)))
            assert not jobs or reported >= jobs[0].position
            places.append(jobs[0].position)
        assert places == sorted(places)
        return len(places)

    store.commit(Change(jobs=tuple(replace(a_job(number), position=1) for number in (1, 2)), history=(a_line(1),)))
    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(watch) for _ in range(3)]
        for position in range(2, 202):
            moved = tuple(replace(a_job(number), position=position) for number in (1, 2))
            store.commit(Change(jobs=moved, history=(a_line(1),)))
        over.set()
        assert all(reader.result() for reader in readers)
    assert len(store.history(JobId(1))) == 201
