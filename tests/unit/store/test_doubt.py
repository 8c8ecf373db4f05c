"""A commit whose answer was lost is in the store once, even if it is repeated several times."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, Engine, make_url
from sqlalchemy.exc import OperationalError

from koalapy.model.change import Change, EpochJump, OutboxEntry
from koalapy.model.commands import ForgetAttempt
from koalapy.model.history import History
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Job
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.states import JobState
from koalapy.model.units import Instant
from koalapy.store.backend import Backend
from koalapy.store.contract import StoreError, StoreLocked
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
)
CHANGE = Change(
    jobs=(JOB,),
    sent=(OutboxEntry(1, ForgetAttempt(cluster="vu", attempt=AttemptId(JobId(1), 0, 1))),),
    history=(History(job=JobId(1), at=Instant(5), kind="work_submitted"),),
)
LINE = Change(history=(History(job=JobId(1), at=Instant(6), kind="line"),))


class Unreliable:
    """A real database with a breaking connection. `lose`: it breaks before the commit, or before its answer."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.where, self.open, self.insert = backend.where, backend.open, backend.insert
        self.explain, self.close = backend.explain, backend.close
        self.back_up, self.compact = backend.back_up, backend.compact
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


def lose_commit(store: SqlStore, backend: Unreliable, what: str, change: Change) -> None:
    backend.lose = what
    with pytest.raises(StoreError):
        store.commit(change)
    assert backend.lose == ""


@pytest.mark.parametrize("losses", [["commit"], ["answer"], ["answer", "answer"], ["commit", "answer", "commit"]])
def test_a_repeated_commit_is_kept_once(store: SqlStore, backend: Unreliable, losses: list[str]) -> None:
    for what in losses:
        lose_commit(store, backend, what, CHANGE)
    store.commit(CHANGE)
    for what in losses:
        lose_commit(store, backend, what, LINE)
    store.commit(LINE)
    assert [line.kind for line in store.history(JobId(1))] == ["work_submitted", "line"]
    assert [each.number for each in store.load().outbox] == [1]
    assert store.next_number == 2


def test_an_equal_change_is_committed_again(store: SqlStore, backend: Unreliable) -> None:
    store.commit(CHANGE)
    lose_commit(store, backend, "answer", LINE)
    store.commit(LINE)
    store.commit(Change(history=LINE.history))
    assert [line.kind for line in store.history(JobId(1))] == ["work_submitted", "line", "line"]


@pytest.mark.parametrize("what", ["commit", "answer"])
def test_a_repeated_epoch_jump_is_made_once(store: SqlStore, backend: Unreliable, what: str) -> None:
    jump = Change(epoch_jump=EpochJump(epoch=9, last_number=50))
    lose_commit(store, backend, what, jump)
    store.commit(jump)
    assert (store.epoch, store.next_number) == (9, 51)
    store.commit(LINE if store.jobs() else CHANGE)
    store.check()


def test_a_koalad_does_not_take_the_commit_of_its_successor_for_its_own(
    store: SqlStore, backend: Unreliable, reopened: Callable[[], SqlStore]
) -> None:
    lose_commit(store, backend, "commit", CHANGE)
    reopened().commit(CHANGE)
    for _ in range(2):
        with pytest.raises(StoreLocked):
            store.commit(CHANGE)


@pytest.fixture
def reopened(backend: Unreliable) -> Iterator[Callable[[], SqlStore]]:
    """Open the same store as the next koalad does after the first has lost its lock."""
    opened: list[SqlStore] = []

    def reopen() -> SqlStore:
        backend.close()
        other = SqliteFile(Path(backend.where)) if backend.where.endswith(".sqlite") else None
        opened.append(SqlStore(other or PostgresqlServer(make_url(backend.where))))
        return opened[-1]

    yield reopen
    for store in opened:
        store.close()
