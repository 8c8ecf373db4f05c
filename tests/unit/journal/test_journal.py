"""The journal of batches: what it keeps, what its document hides, and what a replay reports."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from koalapy.cli.sim_journal import replay_journal
from koalapy.driver.driver import Delivery, Driver
from koalapy.engine import Engine
from koalapy.journal.journal import Journal, JournalState
from koalapy.journal.replay import replay
from koalapy.journal.state import copy_of
from koalapy.journal.text import dump, load
from koalapy.model.change import OutboxEntry, Snapshot
from koalapy.model.cluster import ClusterSettings, ClusterState
from koalapy.model.commands import Hint, SubmitAttempt
from koalapy.model.errors import Reason, RequestError
from koalapy.model.events import CancelRequested, ClusterConnected, ClusterLost, ClusterMeasured, Event, WorkSubmitted
from koalapy.model.identity import InstanceId, JobId
from koalapy.model.records import Step
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.settings import Settings
from koalapy.model.units import SECOND, Duration, Instant
from koalapy.policies.scavenging import ScavengingPolicies
from koalapy.runtime.journals import KEPT, Journals, files_of
from koalapy.runtime.load_policies import policies, scavenging_policies
from koalapy.scheduler.schedule import Policies
from koalapy.store.memory import MemoryStore

START = Instant(1_700_000_000 * SECOND)
SETTINGS = Settings(clusters=(ClusterSettings(name="alpha", batch="slurm"), ClusterSettings(name="beta", batch="sge")))
SECRET = "Tr0ub4dor&3"


def chosen(settings: Settings) -> tuple[Policies, ScavengingPolicies]:
    return policies(settings), scavenging_policies(settings)


def engine() -> Engine:
    of_jobs, of_sweeps = chosen(SETTINGS)
    return Engine(SETTINGS, of_jobs, Snapshot(instance=InstanceId("j0rna")), of_sweeps)


def submitted(key: str = "", **fields: Any) -> WorkSubmitted:
    component = ComponentRequest(processors=4, executable="./program", **fields)
    return WorkSubmitted(request=Request(name="job", components=(component,)), owner="me", key=key)


def measured(cluster: str, now: Instant, idle: int = 64) -> ClusterMeasured:
    state = ClusterState(measured_at=now, total=64, idle=idle, ours=0, others=64 - idle, waiting_local=0)
    return ClusterMeasured(cluster=cluster, state=state)


class Recorded:
    """An engine, and a journal that takes note of it."""

    def __init__(self, **bounds: Any) -> None:
        self.failures: list[JournalState] = []
        self.engine = engine()
        self.journal = Journal(*chosen(SETTINGS), failed=self.failures.append, **bounds)
        self.journal.begin(self.engine)
        self.now = START

    def handle(self, *events: Event) -> Step:
        self.now = Instant(self.now + SECOND)
        self.journal.handling(self.now, events)
        step = self.engine.handle(self.now, events)
        self.journal.handled(step)
        return step

    def connect(self) -> None:
        for name in ("alpha", "beta"):
            self.handle(ClusterConnected(cluster=name, version="1"), measured(name, self.now))


def read(document: Any) -> JournalState:
    return load(json.loads(json.dumps(document)), chosen)


def test_it_keeps_the_last_batches_and_what_came_of_them() -> None:
    recorded = Recorded(most_batches=64)
    recorded.connect()
    for number in range(200):
        recorded.handle(submitted(str(number)))
        taken = recorded.journal.taken()
        assert 0 < len(taken.batches) <= max(64, 2 * 8 * number)
        assert taken.batches[-1].now == recorded.now
    assert any(isinstance(each, SubmitAttempt) for batch in taken.batches for each in batch.commands or ())
    assert replay(taken).difference is None
    assert replay(read(dump(taken, "1"))).batches == len(taken.batches)


def test_it_is_bounded_in_batches() -> None:
    recorded = Recorded(most_batches=64)
    counts = []
    for _ in range(200):
        recorded.handle(measured("alpha", recorded.now))
        counts.append(len(recorded.journal.taken().batches))
    assert max(counts) == 64
    assert min(counts[64:]) == 33


def test_it_is_bounded_in_bytes() -> None:
    """Long requests that are refused leave no job behind, and would fill the memory."""
    recorded = Recorded(most_bytes=2_000_000)
    for number in range(100):
        recorded.handle(submitted(str(number), arguments=("x" * 100_000,), cluster="nowhere"))
        recorded.engine.records.take()
    kept = [each for batch in recorded.journal.taken().batches for each in batch.events]
    size = sum(len(each.request.components[0].arguments[0]) for each in kept if isinstance(each, WorkSubmitted))
    assert 500_000 < size <= 2_000_000 + 2 * 16 * 100_000


def test_the_copy_of_an_engine_is_untouched_by_what_the_engine_does_next() -> None:
    recorded = Recorded()
    recorded.connect()
    recorded.handle(submitted("a"))
    before = recorded.journal.taken()
    copy = copy_of(recorded.engine)
    first = Journal(*chosen(SETTINGS))
    first.begin(copy)
    document = dump(first.taken(), "1")
    for number in range(20):
        recorded.handle(submitted(str(number)))
    assert dump(first.taken(), "1") == document
    assert len(before.batches) == 3
    assert copy.records.jobs.keys() != recorded.engine.records.jobs.keys()


def test_what_is_secret_is_not_in_the_document() -> None:
    recorded = Recorded()
    recorded.connect()
    recorded.handle(
        submitted(
            environment=(("TOKEN", SECRET), ("OTHER", "ab")),
            arguments=(f"--password={SECRET}", "--token", "very-secret-indeed", "plain"),
            setup=("export KEY=hush-hush",),
        )
    )
    reason = Reason("cut", "cluster", f"The program wrote {SECRET}.", "", words=f"{SECRET} again")
    recorded.handle(ClusterLost(cluster="alpha", reason=reason))
    document = dump(recorded.journal.taken(f"ValueError: {SECRET}"), "1")
    text = json.dumps(document)
    for secret in (SECRET, "very-secret-indeed", "hush-hush", '"ab"'):
        assert secret not in text
    for shown in ("plain", "TOKEN", "alpha", "./program"):
        assert shown in text
    assert replay(read(document)).difference is None


def test_an_environment_that_has_the_words_of_koalapy_hides_none_of_its_names() -> None:
    recorded = Recorded()
    recorded.connect()
    recorded.handle(submitted("k", environment=(("A", "alpha"), ("B", "beta"), ("C", "slurm"), ("D", "me"))))
    taken = recorded.journal.taken()
    again = read(dump(taken, "1"))
    assert replay(again).difference is None
    commands = [each for batch in again.batches for each in batch.commands or ()]
    assert [each.cluster for each in commands if isinstance(each, SubmitAttempt)] == ["alpha"]


def test_a_difference_is_reported_with_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded()
    recorded.connect()
    recorded.handle(submitted("a"))
    recorded.handle(submitted("b"))
    taken = read(dump(recorded.journal.taken(), "1"))
    original = Engine.handle

    def mutant(made: Engine, now: Instant, events: Sequence[Event]) -> Step:
        step = original(made, now, events)
        if now == recorded.now:
            step.commands = ()
        return step

    monkeypatch.setattr(Engine, "handle", mutant)
    difference = replay(taken).difference
    assert difference is not None
    assert (difference.batch, difference.now) == (4, recorded.now)
    assert difference.expected.startswith("SubmitAttempt(cluster='beta', attempt=2.0.1")
    assert difference.got == "WatchCluster(cluster='beta', urgent=True)"


def test_a_batch_that_fails_is_the_last_and_fails_again(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded()
    recorded.connect()
    original = Engine.handle

    def broken(made: Engine, now: Instant, events: Sequence[Event]) -> Step:
        if any(isinstance(each, WorkSubmitted) for each in events):
            raise ZeroDivisionError("by nothing")
        return original(made, now, events)

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "handle", broken)
        with pytest.raises(ZeroDivisionError) as caught:
            recorded.handle(submitted("a"))
        recorded.journal.failed(caught.value)
        taken = read(dump(recorded.failures[0], "1"))
        found = replay(taken)
        assert (found.batches, found.failure, found.difference) == (3, "ZeroDivisionError: by nothing", None)
    mended = replay(taken).difference
    assert mended is not None
    assert mended.batch == 3
    assert mended.expected == "the engine fails: ZeroDivisionError: by nothing"
    assert mended.got.startswith("SubmitAttempt(")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda document: [], "schema"),
        (lambda document: document | {"schema": "koala.journal/9"}, "schema"),
        (lambda document: document | {"start": ["#", 1_000_000]}, "IndexError"),
        (lambda document: document | {"start": document["settings"]}, "no engine"),
        (lambda document: document | {"start": ["function", "journal.text:dump"]}, "not of a room"),
        (lambda document: document | {"start": ["enum", "model.states:os", "x"]}, "AttributeError"),
        (
            lambda document: document | {"start": ["enum", "model.fast_frozen:replacer", "x"]},
            "not what a journal holds",
        ),
        (lambda document: document | {"values": [{"is": "model.request:Request", "name": "x"}]}, "other fields"),
        (lambda document: {key: each for key, each in document.items() if key != "batches"}, "KeyError"),
    ],
)
def test_what_is_no_journal_is_refused(change: Any, words: str) -> None:
    recorded = Recorded()
    recorded.connect()
    with pytest.raises(RequestError, match=words):
        load(change(dump(recorded.journal.taken(), "1")), chosen)


def test_what_failed_is_written_once_for_each_error_and_replayed_by_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded = Recorded()
    recorded.connect()
    recorded.handle(submitted("a"))
    directory = tmp_path / "journals"
    for process in range(3):
        journals = Journals(directory)
        for number in (0, 0, 1, 1, 2, 3, 4, 5, 6, 7):
            recorded.handle(measured("alpha", recorded.now))
            journals.write_soon(recorded.journal.taken(f"ValueError: {process}.{number}"))
            journals.close(30.0)
    files = files_of(directory)
    assert len(files) == KEPT
    assert [path.stat().st_mode & 0o777 for path in files] == [0o600] * KEPT
    errors = [json.loads(gzip.decompress(path.read_bytes()))["error"] for path in files]
    assert errors == [f"ValueError: 2.{number}" for number in range(KEPT)]

    assert replay_journal(files[0], False) == 0
    assert "all as in the journal" in capsys.readouterr().out
    original = Engine.handle

    def mutant(made: Engine, now: Instant, events: Sequence[Event]) -> Step:
        step = original(made, now, events)
        step.commands = ()
        return step

    monkeypatch.setattr(Engine, "handle", mutant)
    assert replay_journal(files[0], True) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["difference"]["batch"] == 3
    assert document["difference"]["expected"].startswith("SubmitAttempt(")


def test_a_driver_whose_engine_fails_leaves_a_journal_and_begins_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine that replaces the failed one has a journal of its own, which is replayed from its own start."""
    failed: list[JournalState] = []
    journal = Journal(*chosen(SETTINGS), failed=failed.append)
    original = Engine.handle

    def broken(made: Engine, now: Instant, events: Sequence[Event]) -> Step:
        if any(isinstance(each, CancelRequested) for each in events):
            raise ZeroDivisionError("by nothing")
        return original(made, now, events)

    monkeypatch.setattr(Engine, "handle", broken)
    world = FakeWorld()
    store = MemoryStore(InstanceId("j0rna"))

    def renew() -> Engine:
        return Engine(SETTINGS, chosen(SETTINGS)[0], store.load(), chosen(SETTINGS)[1])

    driver = Driver(renew(), store, world, world, renew=renew, recorder=journal)
    for name in ("alpha", "beta"):
        driver.step([Delivery((ClusterConnected(cluster=name, version="1"), measured(name, world.now())))])
    driver.step([Delivery((submitted("a"),))])
    driver.step([Delivery((CancelRequested(JobId(1)),)), Delivery((submitted("b"),))])
    assert [taken.error for taken in failed] == ["ZeroDivisionError: by nothing"] * 2
    assert replay(read(dump(failed[0], "1"))).failure == "ZeroDivisionError: by nothing"
    driver.step([Delivery((submitted("c"),))])
    assert len(store.jobs()) == 3
    after = replay(read(dump(journal.taken(), "1")))
    assert after.difference is None
    assert after.commands >= 1


class FakeWorld:
    """A clock that goes on by itself, and links that carry nothing."""

    def __init__(self) -> None:
        self._now = START

    def now(self) -> Instant:
        self._now = Instant(self._now + SECOND)
        return self._now

    def slept(self) -> Duration:
        return Duration(0)

    def send(self, entry: OutboxEntry, doubt: bool) -> None: ...

    def hint(self, hint: Hint) -> None: ...

    def acknowledge(self, cluster: str, epoch: int, number: int) -> None: ...

    def end_sessions(self, reason: Reason) -> dict[str, int]:
        return {}
