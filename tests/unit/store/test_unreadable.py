"""Unreadable records in real SQLite files: each is set aside, hides no other, and can be repaired."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from koalapy.engine import Engine
from koalapy.model.attempt import Attempt, LauncherFields, Owner, OwnerKind
from koalapy.model.change import Change, OutboxEntry
from koalapy.model.cluster import ClusterSettings
from koalapy.model.commands import CancelAttempt, Command, ForgetAttempt
from koalapy.model.errors import RequestError
from koalapy.model.events import AttemptCleanedUp
from koalapy.model.history import History
from koalapy.model.identity import FIRST_LAUNCHER, AttemptId, JobId, tag_of
from koalapy.model.job import Counters, Job
from koalapy.model.learned import NOTHING, Learned, Past
from koalapy.model.parameters import Axis, ParameterResult, ResultBatch, Source, Space
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.settings import Settings
from koalapy.model.states import AttemptState, Ending, JobState
from koalapy.model.sweep import Sweep
from koalapy.model.units import Instant
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fpfs
from koalapy.runtime.unknown import UnknownTags
from koalapy.scheduler.schedule import Policies
from koalapy.store import unreadable
from koalapy.store.open import FILE_NAME, open_store
from koalapy.store.sql import SqlStore

WISH = ComponentRequest(processors=2, executable="./a.out")
SPACE = Space(axes=(Axis(sources=(Source(names=("x",), loop=("1", "9", "1")),), count=9),))


def a_job(number: int, state: JobState = JobState.RUNNING, **fields: Any) -> Job:
    return Job(
        id=JobId(number),
        owner="mona",
        request=Request(name="poisson", components=(WISH,)),
        state=state,
        position=number,
        submitted_at=Instant(number),
        attempts=(Attempt(id=AttemptId(JobId(number), 0, 2), cluster="vu", request=WISH),),
        numbers=(2,),
        key=f"key-{number}",
        **fields,
    )


def attempt(job: int) -> AttemptId:
    return AttemptId(JobId(job), 0, 1)


def a_pending_cancel(job: int) -> Attempt:
    return Attempt(
        id=attempt(job),
        cluster="vu",
        batch_id="7",
        detached_at=Instant(5),
        superseded=True,
        request=ComponentRequest(processors=1, executable="./program"),
        state=AttemptState.ENDED,
        ending=Ending.CANCELLED,
    )


def a_pilot() -> Attempt:
    fields = LauncherFields(owner=Owner(OwnerKind.SWEEP, 4), claimed_at=Instant(4))
    return Attempt(id=attempt(FIRST_LAUNCHER), cluster="vu", request=WISH, launcher=fields)


def a_command(number: int, job: int) -> OutboxEntry:
    command: Command = CancelAttempt(cluster="vu", attempt=attempt(job), batch_id="7")
    return OutboxEntry(number, command if number % 2 else ForgetAttempt(cluster="vu", attempt=attempt(job)))


@pytest.fixture
def open_it(tmp_path: Path) -> Callable[[], SqlStore]:
    def opened() -> SqlStore:
        store = open_store("sqlite", tmp_path)
        assert isinstance(store, SqlStore)
        return store

    store = opened()
    sweep = Sweep(
        id=JobId(4), owner="me", request=Request(name="s", components=(WISH,), parameters=SPACE),
        state=JobState.RUNNING, position=4, submitted_at=Instant(1), count=9, key="4",
    )  # fmt: skip
    rows = [ParameterResult(number, 0, "exited", "node1", 0, 5, 6, 0, 0, 0, 0) for number in (1, 2)]
    jobs = (
        *(a_job(number) for number in (1, 2, 3)),
        a_job(5, JobState.DONE),
    )
    present = [each for job in jobs for each in job.attempts if each is not None]
    store.commit(
        Change(
            jobs=jobs,
            sweeps=(sweep,),
            attempts=(*present, a_pilot(), a_pending_cancel(1), a_pending_cancel(2), a_pending_cancel(9)),
            sent=tuple(a_command(number, number) for number in (1, 2, 3)),
            counters=Counters(next_job=6, next_launcher=FIRST_LAUNCHER + 1),
            history=tuple(
                History(job=JobId(1), at=Instant(at), kind="work_submitted", details={"n": at}) for at in (1, 2)
            ),
            results=tuple(ResultBatch(JobId(4), "vu", attempt(FIRST_LAUNCHER), (row,)) for row in rows),
            learned=Learned((Past("vu", 5),)),
        )
    )
    store.close()
    return opened


def change(directory: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(directory / FILE_NAME)) as database, database:
        assert database.execute(statement, values).rowcount == 1


def damaged(text: str, how: str) -> str:
    plain = json.loads(text)
    match how:
        case "cut":
            return text[: len(text) // 2]
        case "empty":
            return ""
        case "wrong type":
            plain["position"] = {"a": 1}
        case "too large":
            plain["position"] = 10**30
        case "missing field":
            del plain["owner"]
        case "unknown state":
            plain["state"] = "sleeping"
        case "unknown field":
            plain["colour"] = "red"
        case "another's":
            plain["id"] = 9
        case "other state":
            plain["state"] = "done"
        case "deep":
            return "[" * 100_000
    return json.dumps(plain)


DAMAGES = [
    "cut", "empty", "wrong type", "too large", "missing field", "unknown state", "unknown field", "another's",
    "other state", "deep",
]  # fmt: skip


@pytest.mark.parametrize("how", DAMAGES)
def test_an_unreadable_job_is_set_aside_and_hides_no_other(
    open_it: Callable[[], SqlStore], tmp_path: Path, how: str
) -> None:
    store = open_it()
    text = store.repair(partial(unreadable.raw, name="job/1"))
    store.close()
    change(tmp_path, "UPDATE work SET record = ? WHERE id = 1", damaged(text, how))
    store = open_it()
    found = store.load()
    assert [job.id for job in found.jobs] == [2, 3]
    assert [each.id.job for each in found.pending_cancels] == [2, 9]
    assert [entry.number for entry in found.outbox] == [2, 3]
    assert [(each.name, each.job) for each in store.unreadable()] == [("job/1", 1)]
    assert store.unreadable()[0].why
    assert store.next_number == 4
    assert found.counters.next_job == 6
    assert store.id_of_key("mona", "key-1") == 1
    if how != "too large":  # a record that is only listed need not be writable
        assert [job.id for job in store.jobs()] == [2, 3, 5]
        assert store.job(JobId(1)) is None
    store.close()
    store = open_it()
    assert [each.name for each in store.repair(unreadable.survey)] == ["job/1"]
    store.repair(partial(unreadable.replace, name="job/1", text=text))
    assert store.repair(unreadable.survey) == []
    found = store.load()
    assert [job.id for job in found.jobs] == [1, 2, 3]
    assert [entry.number for entry in found.outbox] == [1, 2, 3]
    assert store.unreadable() == []
    store.close()


def test_a_job_in_a_row_of_unknown_state_can_be_repaired(open_it: Callable[[], SqlStore], tmp_path: Path) -> None:
    change(tmp_path, "UPDATE work SET state = 'sleeping' WHERE id = 2")
    store = open_it()
    assert [job.id for job in store.load().jobs] == [1, 3]
    assert [each.name for each in store.unreadable()] == ["job/2"]
    text = store.repair(partial(unreadable.raw, name="job/2"))
    store.repair(partial(unreadable.replace, name="job/2", text=text))
    assert store.repair(unreadable.survey) == []
    store.close()


ATTEMPT_DAMAGES = {
    "cut": lambda text: text[:20],
    "wrong type": lambda text: text.replace('"batch_id":""', '"batch_id":{"a":1}'),
    "too large": lambda text: text.replace('"exit_status":null', f'"exit_status":{10**30}'),
    "another's": lambda text: text.replace("[1,0,2]", "[1,0,3]"),
    "other row": lambda text: text.replace('"superseded":false', '"superseded":true'),
}


@pytest.mark.parametrize("damage", ATTEMPT_DAMAGES.values(), ids=ATTEMPT_DAMAGES)
def test_a_job_is_set_aside_with_an_unreadable_attempt_until_it_is_repaired(
    open_it: Callable[[], SqlStore], tmp_path: Path, damage: Callable[[str], str]
) -> None:
    store = open_it()
    text = store.repair(partial(unreadable.raw, name="attempt/1.0.2"))
    store.close()
    assert damage(text) != text
    change(tmp_path, "UPDATE attempts SET record = ? WHERE job = 1 AND number = 2", damage(text))
    store = open_it()
    found = store.load()
    assert [job.id for job in found.jobs] == [2, 3]
    assert [each.id.job for each in found.pending_cancels] == [2, 9]
    assert [entry.number for entry in found.outbox] == [2, 3]
    assert [(each.name, each.job) for each in store.unreadable()] == [("attempt/1.0.2", 1)]
    assert store.id_of_key("mona", "key-1") == 1
    store.close()
    store = open_it()
    with pytest.raises(RequestError, match="needs the record of its attempt"):
        store.repair(partial(unreadable.drop, name="attempt/1.0.2"))
    with pytest.raises(RequestError, match="is not a record of kind attempt"):
        store.repair(partial(unreadable.replace, name="attempt/1.0.2", text=text[:20]))
    store.repair(partial(unreadable.replace, name="attempt/1.0.2", text=text))
    assert [job.id for job in store.load().jobs] == [1, 2, 3]
    assert store.unreadable() == []
    store.close()


def test_pilots_are_set_aside_with_their_sweep(open_it: Callable[[], SqlStore], tmp_path: Path) -> None:
    change(tmp_path, "UPDATE work SET record = '{' WHERE id = 4")
    store = open_it()
    found = store.load()
    assert ([job.id for job in found.jobs], found.sweeps, found.launchers) == ([1, 2, 3], (), ())
    assert [(each.name, each.job) for each in store.unreadable()] == [("sweep/4", 4)]
    assert found.unreadable == (4,)
    store.repair(partial(unreadable.drop, name="sweep/4"))
    assert store.repair(unreadable.survey) == []
    assert (store.sweeps(ids=[JobId(4)]), store.launchers_of(JobId(4))) == ([], [])
    assert list(store.results(JobId(4))) == []
    store.close()


@pytest.mark.parametrize(
    ("table", "where", "column", "name"),
    [
        ("attempts", "job = 2 AND superseded", "record", "attempt/2.0.1"),
        ("outbox", "number = 2", "command", "command/2"),
        ("outbox", "number = 2", "kind", "command/2"),
        ("results", "sequence = 1", "results", "results/1"),
        ("history", "sequence = 2", "details", "history/2"),
        ("learned", "name = 'nodes'", "record", "learned/nodes"),
    ],
)
def test_an_unreadable_record_of_another_table_hides_no_other(
    open_it: Callable[[], SqlStore], tmp_path: Path, table: str, where: str, column: str, name: str
) -> None:
    change(tmp_path, f"UPDATE {table} SET {column} = '{{' WHERE {where}")
    store = open_it()
    found = store.load()
    assert [job.id for job in found.jobs] == [1, 2, 3]
    assert [each.id.job for each in found.pending_cancels] == ([1, 9] if table == "attempts" else [1, 2, 9])
    assert [entry.number for entry in found.outbox] == ([1, 3] if table == "outbox" else [1, 2, 3])
    assert (found.learned == NOTHING) == (table == "learned")
    numbers = [batch.results[0].number for _, batch in store.results(JobId(4))]
    assert numbers == ([2] if table == "results" else [1, 2])
    kinds = [line.kind for line in store.history(JobId(1))]
    assert kinds == ["work_submitted", "line_unreadable" if table == "history" else "work_submitted"]
    assert [each.name for each in store.unreadable()] == [name]
    assert [each.name for each in store.repair(unreadable.survey)] == [name]
    store.repair(partial(unreadable.drop, name=name))
    assert store.repair(unreadable.survey) == []
    store.close()


def test_new_learned_values_replace_an_unreadable_record(open_it: Callable[[], SqlStore], tmp_path: Path) -> None:
    change(tmp_path, "UPDATE learned SET record = '{'")
    store = open_it()
    store.load()
    store.commit(Change(learned=Learned((Past("vu", 6),))))
    assert store.unreadable() == []
    store.close()


def test_dropping_a_job_drops_its_commands_and_keeps_its_pending_cancel(
    open_it: Callable[[], SqlStore], tmp_path: Path
) -> None:
    change(tmp_path, "UPDATE work SET record = '{' WHERE id = 1")
    store = open_it()
    store.repair(partial(unreadable.drop, name="job/1"))
    found = store.load()
    assert [job.id for job in found.jobs] == [2, 3]
    assert [entry.number for entry in found.outbox] == [2, 3]
    assert [each.id.job for each in found.pending_cancels] == [1, 2, 9]
    assert store.history(JobId(1)) == []
    settings = Settings(clusters=(ClusterSettings(name="vu", batch="slurm"),))
    engine = Engine(settings, Policies(worst_fit, fpfs), found)
    (cancel,) = [each for each in found.pending_cancels if each.id.job == 1]
    step = engine.handle(Instant(9), [AttemptCleanedUp(attempt=cancel.id, cluster=cancel.cluster)])
    store.commit(Change(jobs=step.jobs, history=step.history, attempts=step.attempts))
    assert [each.id.job for each in store.pending_cancels()] == [2, 9], "its end needs no history"
    store.close()


@pytest.mark.parametrize("name", ["job/99", "job/", "job/one", "job/1.0", "attempt/1", "what/1", "", "job/" + "9" * 40])
def test_a_name_without_a_record_is_refused(open_it: Callable[[], SqlStore], name: str) -> None:
    store = open_it()
    for act in (unreadable.raw, unreadable.drop, partial(unreadable.replace, text="{}")):
        with pytest.raises(RequestError, match="There is no record"):
            store.repair(partial(act, name=name))
    store.close()


@pytest.mark.parametrize("how", [each for each in DAMAGES if each != "other state"])  # that one is a correction
def test_an_invalid_text_is_not_imported(open_it: Callable[[], SqlStore], how: str) -> None:
    store = open_it()
    before = store.repair(partial(unreadable.raw, name="job/1"))
    with pytest.raises(RequestError, match="is not a record of kind job"):
        store.repair(partial(unreadable.replace, name="job/1", text=damaged(before, how)))
    assert store.repair(partial(unreadable.raw, name="job/1")) == before
    store.close()


def test_attempts_of_an_unreadable_job_are_no_unknown_tags(open_it: Callable[[], SqlStore], tmp_path: Path) -> None:
    change(tmp_path, "UPDATE work SET record = '{' WHERE id = 1")
    store = open_it()
    store.load()
    held, stranger = tag_of(store.instance, attempt(1)), tag_of(store.instance, attempt(99))
    answer = {"queue": [[held, "5", "running"], [stranger, "6", "running"]], "directories": [], "more": False}

    def ask(cluster: str, message: Any, timeout_s: float) -> Any:
        return type("Answer", (), {"details": answer})

    tags = UnknownTags(
        store.instance,
        ["vu"],
        ask,
        lambda ids: store.jobs(ids=ids),
        lambda: Instant(1),
        lambda: {each.job for each in store.unreadable() if each.kind == "job"},
    )
    (survey,) = tags.look()
    assert [each.tag for each in survey.tags] == [stranger]
    with pytest.raises(RequestError, match="whose record cannot be read") as refusal:
        tags.clean("vu", held, 1.0)
    assert "koala repair job/1" in refusal.value.reason.advice
    store.close()
