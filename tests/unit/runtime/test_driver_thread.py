"""The driver's thread: many events in one commit, and a store that fails, recovers, or has been taken over."""

import contextlib
import socket
import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest

from koalapy.driver.driver import Delivery, Driver
from koalapy.engine import Engine
from koalapy.model.change import Change, OutboxEntry
from koalapy.model.cluster import ClusterSettings
from koalapy.model.commands import Hint
from koalapy.model.errors import Reason
from koalapy.model.events import WorkSubmitted
from koalapy.model.identity import JobId
from koalapy.model.records import Step
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.settings import Settings
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.runtime import driver_thread as loops
from koalapy.runtime.clock import SystemClock
from koalapy.runtime.driver_thread import DriverThread
from koalapy.runtime.sdnotify import Notifier
from koalapy.scheduler.schedule import Policies
from koalapy.store.contract import Store
from koalapy.store.memory import MemoryStore
from koalapy.store.open import FILE_NAME
from koalapy.store.sql import SqlStore
from koalapy.store.sqlite import SqliteFile

SETTINGS = Settings(clusters=(ClusterSettings(name="alpha", batch="slurm"),))
REQUEST = Request(name="job", components=(ComponentRequest(processors=4, executable="true"),))
PATIENCE_S = 120


class NoLinks:
    """Links to clusters that are never connected."""

    def send(self, entry: OutboxEntry, doubt: bool) -> None:
        raise AssertionError(entry)

    def hint(self, hint: Hint) -> None:
        raise AssertionError(hint)

    def acknowledge(self, cluster: str, epoch: int, number: int) -> None:
        raise AssertionError(cluster)

    def end_sessions(self, reason: Reason) -> dict[str, int]:
        raise AssertionError(reason)


class Gate:
    """A store whose commits wait until the gate opens, and are counted."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.began, self.open = threading.Event(), threading.Event()
        self.sizes: list[int] = []

    def commit(self, change: Change) -> None:
        self.began.set()
        assert self.open.wait(PATIENCE_S)
        self._store.commit(change)
        self.sizes.append(len(change.jobs))


def loop_over(store: Store, gate: Gate | None = None, **calls: object) -> DriverThread:
    engine = Engine(SETTINGS, Policies(worst_fit, fpfs), store.load())
    clock = SystemClock()
    driver = Driver(engine, gate or store, NoLinks(), clock)
    return DriverThread(driver, clock, **calls)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    made = SqlStore(SqliteFile(tmp_path / FILE_NAME, busy_timeout_s=0.05))
    yield made
    made.close()


def submit(loop: DriverThread, key: str) -> "Future[Step]":
    done: Future[Step] = Future()
    loop.deliver(Delivery((WorkSubmitted(request=REQUEST, owner="mona", key=key),), after=done.set_result))
    return done


def test_events_that_come_during_a_commit_share_the_next_one(store: SqlStore) -> None:
    gate = Gate(store)
    loop = loop_over(store, gate)
    loop.start()
    first = submit(loop, "first")
    assert gate.began.wait(PATIENCE_S)
    with_it = [submit(loop, f"{number}") for number in range(1200)]  # more than a batch
    gate.open.set()
    ids = [done.result(PATIENCE_S) for done in [first, *with_it]]
    loop.stop()
    assert len(ids) == len(store.jobs()) == 1201
    assert gate.sizes == [1, 500, 500, 200]


def test_a_thousand_concurrent_events_need_few_commits(store: SqlStore) -> None:
    gate = Gate(store)
    loop = loop_over(store, gate)
    loop.start()
    start, all_in = threading.Barrier(20), threading.Barrier(21)
    accepted: list[str] = []

    def client(name: int) -> None:
        start.wait(PATIENCE_S)
        flight = {f"{name}-{number}": submit(loop, f"{name}-{number}") for number in range(50)}
        all_in.wait(PATIENCE_S)
        for key, done in flight.items():
            done.result(PATIENCE_S)
            accepted.append(key)

    clients = [threading.Thread(target=client, args=(name,)) for name in range(20)]
    for each in clients:
        each.start()
    all_in.wait(PATIENCE_S)
    gate.open.set()
    for each in clients:
        each.join(PATIENCE_S)
    loop.stop()
    assert sorted(job.key for job in store.jobs()) == sorted(accepted)
    assert len(accepted) == sum(gate.sizes) == 1000
    assert len(gate.sizes) <= 3, gate.sizes


def test_a_store_locked_by_another_program_loses_no_event(
    store: SqlStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "_RETRY_S", 0.01)
    loop = loop_over(store)
    loop.start()
    submit(loop, "before").result(PATIENCE_S)
    other = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waiting = [submit(loop, "meanwhile"), submit(loop, "also")]
    while loop.trouble is None:
        loop.ask(lambda engine: None)
    assert loop.trouble.code == "store_busy"
    assert not any(done.done() for done in waiting)
    other.execute("ROLLBACK")
    other.close()
    for done in waiting:
        done.result(PATIENCE_S)
    loop.stop()
    assert loop.trouble is None
    assert [job.key for job in store.jobs()] == ["before", "meanwhile", "also"]


def test_an_idle_koalad_notices_that_its_store_is_locked(
    store: SqlStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "_RETRY_S", 0.01)
    monkeypatch.setattr(loops, "_CHECK_S", 0.01)
    other = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    loop = loop_over(store, check=store.check)
    other.execute("BEGIN IMMEDIATE")
    loop.start()
    while loop.trouble is None:
        loop.ask(lambda engine: None)
    assert loop.trouble.code == "store_busy"
    other.execute("ROLLBACK")
    other.close()
    while loop.trouble is not None:
        loop.ask(lambda engine: None)
    loop.stop()


@pytest.mark.parametrize("by_commit", [True, False], ids=["when it commits", "though it is idle"])
def test_a_koalad_whose_store_was_taken_over_is_informed_once_and_only_answers_queries(
    by_commit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "_CHECK_S", 60.0 if by_commit else 0.01)
    first = MemoryStore()
    calls: list[str] = []
    informed = threading.Event()

    def taken_over() -> None:
        calls.append("taken over")
        informed.set()

    loop = loop_over(first, check=first.check, taken_over=taken_over)
    second = first.reopened()
    loop.start()
    refused = [submit(loop, "late")] if by_commit else []
    assert informed.wait(PATIENCE_S)
    refused += [submit(loop, "later")]
    assert loop.ask(lambda engine: engine.job(JobId(engine.records.counters.next_job))) is None
    assert loop.trouble is not None
    assert loop.trouble.code == loops.TAKEN_OVER
    loop.stop()
    assert calls == ["taken over"]
    assert not any(done.done() for done in refused)
    assert second.jobs() == []


def test_a_change_that_no_store_can_keep_is_not_tried_again(store: SqlStore) -> None:
    loop = loop_over(store)
    loop.start()
    submit(loop, "before").result(PATIENCE_S)
    request = replace(REQUEST, directory="/tmp/a\0b")
    loop.deliver(Delivery((WorkSubmitted(request=request, owner="mona", key="bad"),)))
    while loop.trouble is None:
        loop.ask(lambda engine: None)
    assert loop.trouble.code == "broken"
    assert "RecordInvalid" in loop.trouble.message
    loop.stop()
    assert [job.key for job in store.jobs()] == ["before"]


# ---- a service manager's watchdog


class Watchdog:
    """The service manager's end of the notification socket, a real one."""

    def __init__(self, place: Path, silence_s: float) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(place / "notify"))
        self._silence_s = silence_s
        environment = {"NOTIFY_SOCKET": str(place / "notify"), "WATCHDOG_USEC": str(round(silence_s * 1e6))}
        self.notifier = Notifier.of(environment)

    def assert_fed(self, times: int = 1) -> None:
        self._socket.settimeout(PATIENCE_S)
        for _ in range(times):
            assert self._socket.recv(100) == b"WATCHDOG=1"

    def assert_starved(self) -> None:
        """No message comes for the whole interval of the watchdog; at most two that were under way come before."""
        self._socket.settimeout(self._silence_s)
        under_way = 0
        with contextlib.suppress(TimeoutError):
            while self._socket.recv(100):
                under_way += 1
                assert under_way < 3

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def watchdog(tmp_path: Path) -> Iterator[Watchdog]:
    made = Watchdog(tmp_path, 0.4)
    yield made
    made.close()


def test_an_idle_loop_feeds_the_watchdog(store: SqlStore, watchdog: Watchdog) -> None:
    loop = loop_over(store, notifier=watchdog.notifier)
    loop.start()
    watchdog.assert_fed(5)
    loop.stop()


def test_a_driver_that_hangs_starves_the_watchdog_although_other_threads_live(
    store: SqlStore, watchdog: Watchdog
) -> None:
    gate = Gate(store)
    loop = loop_over(store, gate, notifier=watchdog.notifier)
    loop.start()
    watchdog.assert_fed()
    done = submit(loop, "hangs")
    assert gate.began.wait(PATIENCE_S)
    watchdog.assert_starved()
    gate.open.set()
    done.result(PATIENCE_S)
    watchdog.assert_fed(2)
    loop.stop()


def test_a_driver_that_broke_starves_the_watchdog(store: SqlStore, watchdog: Watchdog) -> None:
    loop = loop_over(store, notifier=watchdog.notifier)
    loop.start()
    request = replace(REQUEST, directory="/tmp/a\0b")
    loop.deliver(Delivery((WorkSubmitted(request=request, owner="mona", key="bad"),)))
    while loop.trouble is None:
        loop.ask(lambda engine: None)
    watchdog.assert_starved()
    loop.stop()


def test_a_store_that_fails_is_tried_again_and_does_not_starve_the_watchdog(
    store: SqlStore, tmp_path: Path, watchdog: Watchdog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops, "_RETRY_S", 0.01)
    loop = loop_over(store, notifier=watchdog.notifier)
    loop.start()
    other = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    done = submit(loop, "meanwhile")
    while loop.trouble is None:
        loop.ask(lambda engine: None)
    watchdog.assert_fed(5)
    other.execute("ROLLBACK")
    other.close()
    done.result(PATIENCE_S)
    loop.stop()
