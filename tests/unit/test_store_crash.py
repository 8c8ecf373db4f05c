"""A koalad killed in the middle of its commits: what was acknowledged is there, and nothing is there in part."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from koalapy.model.identity import JobId
from koalapy.model.job import Counters
from koalapy.store.contract import Store
from koalapy.store.open import open_store

JOBS_A_COMMIT = 3

WRITER = """
import sys
from pathlib import Path
from koalapy.model.change import Change, OutboxEntry
from koalapy.model.commands import ForgetComponent
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Component, Counters, Debt, History, Job
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.states import JobState
from koalapy.model.units import Instant
from koalapy.store.open import open_store

wish = ComponentRequest(processors=2, executable="./a.out", arguments=("x" * 3000,))
jobs_a_commit = int(sys.argv[2])
store = open_store("sqlite", Path(sys.argv[1]))


def job(number, place):
    return Job(
        id=JobId(number), owner="mona", request=Request(name="poisson", components=(wish,)), place=place,
        state=JobState.WAITING, submitted_at=Instant(1), components=(Component(index=0, request=wish),),
        key=str(number),
    )


def change(turn):
    ids = range((turn - 1) * jobs_a_commit + 1, turn * jobs_a_commit + 1)
    attempt, last = AttemptId(JobId(turn), 0, 1), AttemptId(JobId(turn - 1), 0, 1)
    return Change(
        jobs=(*(job(number, turn) for number in ids), job(1, turn)),
        counters=Counters(ids[-1] + 1, turn),
        history=tuple(History(job=JobId(number), at=Instant(turn), kind="job_submitted") for number in ids),
        sent=(OutboxEntry(turn, ForgetComponent(cluster="vu", attempt=attempt)),),
        confirmed=(turn - 1,),
        debts=(Debt(attempt=attempt, cluster="vu", batch_id="1", since=Instant(turn)),),
        settled=(last,),
    )


turn = store.next_number
while True:
    store.commit(change(turn))
    print(turn, flush=True)
    turn += 1
"""


@pytest.mark.parametrize("seed", range(8))
def test_killed_at_any_instruction(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    instance, turns = None, 0
    for opening in range(1, 4):
        acknowledged = write_until_killed(tmp_path, acknowledgements=chance.randint(1, 30))
        store = open_store("sqlite", tmp_path)
        assert store.epoch == 2 * opening
        assert instance in (None, store.instance)
        instance, before, turns = store.instance, turns, store.next_number - 1
        assert before < acknowledged <= turns <= acknowledged + 1
        assert_whole(store, turns)
        store.close()


def test_killed_while_it_is_made(tmp_path: Path) -> None:
    """At whatever point of its making: the next opening finds a store, or makes one."""
    for number in range(6):
        directory = tmp_path / str(number)
        with subprocess.Popen([sys.executable, "-c", WRITER, str(directory), "1"], stdout=subprocess.DEVNULL) as writer:
            while not directory.exists():
                assert writer.poll() is None
            for _ in range(number * 2000):
                directory.exists()
            writer.kill()
        store = open_store("sqlite", directory)
        assert_whole(store, store.next_number - 1, jobs_a_commit=1)
        store.close()


def write_until_killed(directory: Path, acknowledgements: int) -> int:
    """Kills the writer as soon as it has acknowledged so many commits; the last that it has."""
    command = [sys.executable, "-c", WRITER, str(directory), str(JOBS_A_COMMIT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        said = [writer.stdout.readline() for _ in range(acknowledgements)]
        writer.kill()
        said += writer.stdout.readlines()
    return int(said[-1])


def assert_whole(store: Store, turns: int, jobs_a_commit: int = JOBS_A_COMMIT) -> None:
    """Everything of so many commits, and nothing of the one after them."""
    if not turns:
        assert store.jobs() == []
        return
    snapshot, last = store.load(), turns * jobs_a_commit
    assert [job.id for job in snapshot.jobs] == list(range(1, last + 1))
    assert [job.place for job in snapshot.jobs[1:]] == [(job.id - 1) // jobs_a_commit + 1 for job in snapshot.jobs[1:]]
    assert snapshot.jobs[0].place == turns
    assert snapshot.counters == Counters(last + 1, turns)
    assert [entry.number for entry in snapshot.outbox] == [turns]
    assert [debt.attempt.job for debt in snapshot.debts] == [turns]
    assert [len(store.history(job.id)) for job in snapshot.jobs] == [1] * last
    assert store.job_of_key("mona", str(last)) == JobId(last)
