"""The store in memory and the one in a file give the same answers after the same changes."""

import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from koalapy.model.attempt import Attempt, LauncherFields, Owner, OwnerKind
from koalapy.model.change import Change, OutboxEntry
from koalapy.model.commands import ForgetAttempt
from koalapy.model.history import History
from koalapy.model.identity import AttemptId, InstanceId, JobId
from koalapy.model.job import Counters, Job
from koalapy.model.learned import Learned, Past
from koalapy.model.parameters import ParameterResult, ResultBatch
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.states import AttemptState, Ending, JobState
from koalapy.model.units import Instant
from koalapy.store.contract import Store, StoreConflict
from koalapy.store.memory import MemoryStore
from koalapy.store.open import open_store

WISH = ComponentRequest(processors=2, executable="./a.out")
REQUEST = Request(name="poisson", components=(WISH,))
JOB_IDS = st.integers(1, 5).map(JobId)
RESULT = ParameterResult(7, 0, "exited", "node1", 0, 5, 6, 0, 1, 0, 2)
OWNERS = st.builds(Owner, st.just(OwnerKind.SWEEP), JOB_IDS)
ATTEMPTS = st.builds(AttemptId, JOB_IDS, st.integers(0, 1), st.integers(1, 2))


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Jobs with few ids and fewer keys, so that they collide."""
    return Job(
        id=draw(JOB_IDS),
        owner="mona",
        request=REQUEST,
        state=draw(st.sampled_from(JobState)),
        position=draw(st.integers(0, 9)),
        submitted_at=Instant(5),
        finished_at=draw(st.none() | st.just(Instant(7))),
        key=draw(st.sampled_from(["", "", "", "a", "b"])),
    )


CHANGES = st.builds(
    Change,
    jobs=st.lists(jobs(), max_size=3).map(tuple),
    new=st.lists(JOB_IDS, max_size=1).map(tuple),
    as_before=st.lists(JOB_IDS, max_size=1).map(tuple),
    attempts=st.lists(
        st.builds(
            Attempt,
            id=ATTEMPTS,
            cluster=st.sampled_from("ab"),
            request=st.just(ComponentRequest(processors=1, executable="./program")),
            state=st.sampled_from([AttemptState.ENDED, AttemptState.CLEANED_UP]),
            ending=st.just(Ending.CANCELLED),
            batch_id=st.just("1"),
            detached_at=st.sampled_from([None, 3]),
            superseded=st.booleans(),
            launcher=st.none() | st.builds(LauncherFields, owner=OWNERS, claimed_at=st.just(Instant(1))),
        ),
        max_size=3,
    ).map(tuple),
    counters=st.none() | st.builds(Counters, st.integers(1, 9), st.integers(1, 9)),
    sent=st.lists(st.integers(1, 9), max_size=2).map(
        lambda numbers: tuple(
            OutboxEntry(number, ForgetAttempt(cluster="vu", attempt=AttemptId(JobId(1), 0, 1))) for number in numbers
        )
    ),
    confirmed=st.lists(st.integers(1, 9), max_size=4).map(tuple),
    history=st.lists(
        st.builds(
            History, job=JOB_IDS, at=st.just(Instant(4)), kind=st.sampled_from(["a", "b"]), details=st.just({"n": (1,)})
        ),
        max_size=2,
    ).map(tuple),
    results=st.lists(
        st.builds(ResultBatch, JOB_IDS, st.sampled_from("ab"), ATTEMPTS, st.just((RESULT,))), max_size=2
    ).map(tuple),
    removed=st.lists(JOB_IDS, max_size=1).map(tuple),
    learned=st.none() | st.integers(1, 3).map(lambda most: Learned((Past("vu", most),))),
)


@settings(max_examples=60)
@given(st.lists(CHANGES, min_size=1, max_size=12))
def test_memory_and_file_answer_alike_after_any_changes(changes: list[Change]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        in_file, in_memory = open_store("sqlite", Path(directory)), MemoryStore()
        for change in changes:
            assert _kept(in_file, change) == _kept(in_memory, change)
            assert _answers(in_file) == _answers(in_memory)
        in_file.close()
        reopened = open_store("sqlite", Path(directory))
        assert _answers(reopened) == _answers(in_memory)
        reopened.close()


def _kept(store: Store, change: Change) -> bool:
    try:
        store.commit(change)
    except StoreConflict:
        return False
    return True


def _answers(store: Store) -> list[object]:
    snapshot = replace(store.load(), instance=InstanceId("00000"))
    ids = [JobId(number) for number in range(1, 6)]
    return [
        snapshot,
        store.jobs(),
        store.jobs(states=[JobState.DONE, JobState.WAITING], ids=ids[:3]),
        store.pending_cancels(),
        [store.history(job_id) for job_id in ids],
        [[batch for _, batch in store.results(job_id)] for job_id in ids],
        [store.launchers_of(job_id) for job_id in ids],
        [store.launcher(AttemptId(job_id, 0, 1)) for job_id in ids],
        [store.prunable(Instant(9), 9, JobId(0), records) for records in (True, False)],
        [store.prunable_launchers(Instant(9), 9, JobId(0), records) for records in (True, False)],
        [store.id_of_key("mona", key) for key in ("a", "b", "")],
        store.next_number,
    ]
