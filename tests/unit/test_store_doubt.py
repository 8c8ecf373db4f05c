"""A commit whose answer was lost is in the store once, however often it is tried."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, make_url
from sqlalchemy.exc import OperationalError

from koalapy.model.change import Change, EpochJump, OutboxEntry
from koalapy.model.commands import ForgetAttempt
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Component, History, Job
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.states import JobState
from koalapy.model.units import Instant
from koalapy.store.backend import Backend
from koalapy.store.errors import StoreError, StoreLocked
from koalapy.store.postgresql import PostgresqlServer
from koalapy.store.sql import SqlStore
from koalapy.store.sqlite import SqliteFile

WISH = ComponentRequest(processors=2, executable="./a.out")
JOB = Job(
    id=JobId(1),
    owner="mona",
    request=Request(name="poisson", components=(WISH,)),
    state=JobState.WAITING,
    position=1,
    submitted_at=Instant(5),
    components=(Component(index=0, request=WISH),),
)
CHANGE = Change(
    jobs=(JOB,),
    sent=(OutboxEntry(1, ForgetAttempt(cluster="vu", attempt=AttemptId(JobId(1), 0, 1))),),
    history=(History(job=JobId(1), at=Instant(5), kind="job_submitted"),),
)
TOLD = Change(history=(History(job=JobId(1), at=Instant(6), kind="told"),))


class Unreliable:
    """A database that does what it is told. `lose`: the connection breaks before it has, or before it says so."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.where, self.open, self.insert = backend.where, backend.open, backend.insert
        self.explain, self.close = backend.explain, backend.close
        self.lose = ""

    @contextmanager
    def writing(self, engine: Engine) -> Iterator[Connection]:
        with self._backend.writing(engine) as connection:
            yield connection
            self._break("commit")
        self._break("answer")

    def _break(self, what: str) -> None:
        if self.lose == what:
            self.lose = ""
            raise OperationalError("COMMIT", {}, Exception("the connection was lost"))


@pytest.fixture(params=["sqlite", "postgresql"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Unreliable:
    if request.param == "sqlite":
        return Unreliable(SqliteFile(tmp_path / "state" / "store.sqlite"))
    return Unreliable(PostgresqlServer(make_url(request.getfixturevalue("database"))))


@pytest.fixture
def store(backend: Unreliable) -> Iterator[SqlStore]:
    made = SqlStore(backend)
    yield made
    made.close()


def lost(store: SqlStore, backend: Unreliable, what: str, change: Change) -> None:
    backend.lose = what
    with pytest.raises(StoreError):
        store.commit(change)
    assert backend.lose == ""


@pytest.mark.parametrize("losses", [["commit"], ["answer"], ["answer", "answer"], ["commit", "answer", "commit"]])
def test_what_is_tried_again_is_kept_once(store: SqlStore, backend: Unreliable, losses: list[str]) -> None:
    for what in losses:
        lost(store, backend, what, CHANGE)
    store.commit(CHANGE)
    for what in losses:
        lost(store, backend, what, TOLD)
    store.commit(TOLD)
    assert [line.kind for line in store.history(JobId(1))] == ["job_submitted", "told"]
    assert [each.number for each in store.load().outbox] == [1]
    assert store.next_number == 2


def test_an_equal_change_is_another_change(store: SqlStore, backend: Unreliable) -> None:
    store.commit(CHANGE)
    lost(store, backend, "answer", TOLD)
    store.commit(TOLD)
    store.commit(Change(history=TOLD.history))
    assert [line.kind for line in store.history(JobId(1))] == ["job_submitted", "told", "told"]


@pytest.mark.parametrize("what", ["commit", "answer"])
def test_a_leap_in_doubt_is_made_once(store: SqlStore, backend: Unreliable, what: str) -> None:
    leap = Change(epoch_jump=EpochJump(epoch=9, last_number=50))
    lost(store, backend, what, leap)
    store.commit(leap)
    assert (store.epoch, store.next_number) == (9, 51)
    store.commit(TOLD if store.jobs() else CHANGE)
    store.check()


def test_nobody_takes_the_next_ones_commit_for_his_own(
    store: SqlStore, backend: Unreliable, reopened: Callable[[], SqlStore]
) -> None:
    lost(store, backend, "commit", CHANGE)
    reopened().commit(CHANGE)
    for _ in range(2):
        with pytest.raises(StoreLocked):
            store.commit(CHANGE)


@pytest.fixture
def reopened(backend: Unreliable) -> Iterator[Callable[[], SqlStore]]:
    """The same store, opened by the next koalad, whose lock the first has lost."""
    opened: list[SqlStore] = []

    def reopen() -> SqlStore:
        backend.close()
        other = SqliteFile(Path(backend.where)) if backend.where.endswith(".sqlite") else None
        opened.append(SqlStore(other or PostgresqlServer(make_url(backend.where))))
        return opened[-1]

    yield reopen
    for store in opened:
        store.close()
