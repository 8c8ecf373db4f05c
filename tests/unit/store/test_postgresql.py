"""The store in PostgreSQL: one koalad has it until its session is lost; a restart of the server loses nothing."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import waiting
from sqlalchemy import create_engine, make_url, text

from koalapy.model.change import Change
from koalapy.model.history import History
from koalapy.model.identity import JobId
from koalapy.model.job import Job
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.states import JobState
from koalapy.model.units import Instant
from koalapy.store.contract import Store, StoreError, StoreLocked, StoreUnreadable
from koalapy.store.open import open_store
from koalapy.store.postgresql import PostgresqlServer

WISH = ComponentRequest(processors=2, executable="./a.out")
GUARDS = "FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = :name)"


def a_job(number: int) -> Job:
    return Job(
        id=JobId(number),
        owner="mona",
        request=Request(name="poisson", components=(WISH,)),
        state=JobState.WAITING,
        position=number,
        submitted_at=Instant(5),
    )


def submission(number: int) -> Change:
    line = History(job=JobId(number), at=Instant(5), kind="work_submitted")
    return Change(jobs=(a_job(number),), history=(line,))


@pytest.fixture
def opener(database: str, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    opened: list[Store] = []

    def open_once_more() -> Store:
        opened.append(open_store(database, tmp_path))
        return opened[-1]

    yield open_once_more
    for store in opened:
        store.close()


def lose_guard(server: Any, database: str) -> None:
    """End the session that holds the lock, and wait until it has ended."""
    name = make_url(database).database
    assert server.run(f"SELECT pg_terminate_backend(pid, 10000) {GUARDS}", name=name) == [(True,)]


def test_a_second_koalad_is_refused_with_the_owner_of_the_store(opener: Callable[[], Store]) -> None:
    first = opener()
    with pytest.raises(StoreLocked, match=r"in use by koalad .* \d+\.") as refusal:
        opener()
    assert refusal.value.reason.code == "store_locked"
    first.close()
    assert opener().epoch == 2


def test_another_database_of_the_server_has_a_lock_of_its_own(
    opener: Any, postgresql_server: Any, tmp_path: Path
) -> None:
    first, other = opener(), postgresql_server.database()
    try:
        second = open_store(other, tmp_path)
        assert first.instance != second.instance
        second.close()
    finally:
        postgresql_server.drop(other)


def test_a_lost_session_is_replaced_if_no_other_koalad_opened_the_store(
    opener: Callable[[], Store], postgresql_server: Any, database: str
) -> None:
    store = opener()
    store.commit(submission(1))
    lose_guard(postgresql_server, database)
    with pytest.raises(StoreError) as failure:
        store.commit(submission(2))
    assert failure.value.reason.code == "store_failed"
    store.commit(submission(2))
    store.check()
    assert [job.id for job in store.jobs()] == [1, 2]
    with pytest.raises(StoreLocked):
        opener()


@pytest.mark.parametrize("second_is_there", [True, False], ids=["and holds it", "and has left again"])
def test_a_koalad_that_lost_its_lock_to_another_cannot_commit(
    opener: Callable[[], Store], postgresql_server: Any, database: str, second_is_there: bool
) -> None:
    first = opener()
    lose_guard(postgresql_server, database)
    second = opener()
    second.commit(submission(1))
    if not second_is_there:
        second.close()
    refused = []
    uses: list[Callable[[], None]] = [lambda: first.commit(submission(2)), first.check]
    for use in [*uses, uses[0]]:
        with pytest.raises(StoreError) as refusal:
            use()
        refused.append(refusal.value.reason.code)
    assert refused[1:] == ["store_taken_over"] * 2
    assert [job.id for job in first.jobs()] == [1]


def test_a_restart_of_the_server_loses_nothing(opener: Callable[[], Store], postgresql_server: Any) -> None:
    store = opener()
    store.commit(submission(1))
    postgresql_server.stop()
    try:
        for use in (lambda: store.commit(submission(2)), store.check, lambda: store.jobs()):
            with pytest.raises(StoreError) as failure:
                use()
            assert failure.value.reason.code == "store_failed"
            assert failure.value.reason.advice
    finally:
        postgresql_server.start()
    store.commit(submission(2))
    assert [job.id for job in store.jobs()] == [1, 2]
    assert store.epoch == 1


def test_a_commit_is_synced_and_an_idle_session_is_ended(database: str) -> None:
    backend = PostgresqlServer(make_url(database))
    engine = backend.open()
    with backend.writing(engine) as connection:
        assert connection.scalar(text("SHOW synchronous_commit")) == "on"
        assert connection.scalar(text("SHOW idle_session_timeout")) == "1min"
        assert connection.scalar(text("SHOW idle_in_transaction_session_timeout")) == "1min"
        assert connection.scalar(text("SHOW transaction_isolation")) == "repeatable read"
    engine.dispose()
    backend.close()


def test_a_database_of_another_program_is_refused_and_kept(opener: Callable[[], Store], database: str) -> None:
    backend = PostgresqlServer(make_url(database))
    engine = backend.open()
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE recipes (name text)"))
    engine.dispose()
    backend.close()
    with pytest.raises(StoreUnreadable, match="holds tables, but is not a store of koalapy"):
        opener()


FROZEN_S = 1  # in place of a minute
FREEZES = """
import os, signal, sys
from pathlib import Path
from sqlalchemy import event
from koalapy.store import postgresql
from koalapy.store.open import open_store
sys.path.insert(0, sys.argv[1])
from test_postgresql import FROZEN_S, submission

postgresql._IDLE_S = FROZEN_S
store = open_store(sys.argv[2], Path(sys.argv[3]))
store.commit(submission(1))
left = [int(sys.argv[4])]
freeze = lambda: os.kill(os.getpid(), signal.SIGSTOP)
engine, guard = store._engine, store._backend._guard

def counted(*arguments):
    left[0] -= 1
    if left[0] == 0:
        freeze()

def pipelined(connection, cursor, statement, parameters, context, executemany):
    with cursor.connection.pipeline():
        cursor.execute("SELECT 1")
        cursor.connection.pgconn.send_flush_request()
        cursor.connection.pgconn.flush()
        freeze()

if sys.argv[5] == "pipeline":
    def before(*arguments):
        left[0] -= 1
        if left[0] == 0:
            pipelined(*arguments)

    event.listen(engine, "before_cursor_execute", before)
else:
    event.listen(engine, "before_cursor_execute", counted)
    event.listen(engine, "after_cursor_execute", counted)
    event.listen(engine, "commit", counted)
print("begins", flush=True)
try:
    store.commit(submission(2))
except Exception as error:
    print("refused", error, flush=True)
else:
    print("committed", left[0], flush=True)
"""


class Frozen:
    """A process that commits to the store, and is stopped before or after the `at`th statement of that."""

    def __init__(self, database: str, state: Path, at: int, way: str) -> None:
        words = [str(Path(__file__).parent), database, str(state), str(at), way]
        self.process = subprocess.Popen(
            [sys.executable, "-c", FREEZES, *words], stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "begins\n"

    def describe(self) -> str:
        return f"process {self.process.pid} is stopped"

    def is_stopped(self) -> bool:
        """Wait until it is stopped, or has ended. Returns whether it is stopped."""
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        stopped = os.WIFSTOPPED(status)
        if not stopped:
            self.process.returncode = os.waitstatus_to_exitcode(status)
        return stopped

    def stop(self) -> None:
        """End the process in any case."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def go_on(self) -> str:
        self.process.send_signal(signal.SIGCONT)
        return self.process.communicate()[0]


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("way", ["statements", "pipeline"])
def test_a_koalad_that_is_frozen_between_any_two_statements_of_a_commit_is_replaced(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, every: int
) -> None:
    """It can commit nothing afterwards, and the one in its place finds the commit whole or not at all."""
    monkeypatch.setattr("koalapy.store.postgresql._IDLE_S", FROZEN_S)
    for at in count(1, every):
        frozen = Frozen(database, tmp_path, at, way)
        try:
            stopped = frozen.is_stopped()
            if not stopped:
                break
            second = waiting.until(lambda: opened(database, tmp_path), 60.0, frozen.describe)
            before = [job.id for job in second.jobs()]
            answer = frozen.go_on()
            assert "refused" in answer or before == [1, 2], answer
            assert [job.id for job in second.jobs()] == before
            second.close()
            empty(database)
        finally:
            frozen.stop()
    assert at > every


def opened(database: str, state: Path) -> Store | None:
    with suppress(StoreLocked):
        return open_store(database, state)
    return None


def empty(database: str) -> None:
    """Remove the jobs, so that the next process has the same to commit."""
    engine = create_engine(make_url(database).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM history"))
        connection.execute(text("DELETE FROM work"))
    engine.dispose()
