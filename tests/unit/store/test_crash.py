"""A koalad killed in the middle of its commits: every acknowledged commit is kept, and none is kept in part."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path

import pytest

from koalapy.model.identity import JobId
from koalapy.model.job import Counters
from koalapy.store.contract import Store
from koalapy.store.open import open_store

JOBS_A_COMMIT = 3

CHANGES = """
import sys
from dataclasses import replace
from pathlib import Path
from koalapy.model.attempt import Attempt
from koalapy.model.change import Change, OutboxEntry
from koalapy.model.commands import ForgetAttempt
from koalapy.model.history import History, HistoryKind
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Counters, Job
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.states import AttemptState, Ending, JobState
from koalapy.model.units import Instant
from koalapy.store.open import open_store

wish = ComponentRequest(processors=2, executable="./a.out", arguments=("x" * 3000,))
jobs_a_commit = int(sys.argv[2])


def job(number, place):
    return Job(
        id=JobId(number), owner="mona", request=Request(name="poisson", components=(wish,)), position=place,
        state=JobState.WAITING, submitted_at=Instant(1),
        key=str(number),
    )


def pending_cancel(attempt, turn):
    return Attempt(
        id=attempt, cluster="vu", batch_id="1", detached_at=Instant(turn), superseded=True,
        request=ComponentRequest(processors=1, executable="./program"),
        state=AttemptState.ENDED, ending=Ending.CANCELLED
    )


def change(turn):
    ids = range((turn - 1) * jobs_a_commit + 1, turn * jobs_a_commit + 1)
    attempt, last = AttemptId(JobId(turn), 0, 1), AttemptId(JobId(turn - 1), 0, 1)
    return Change(
        jobs=(*(job(number, turn) for number in ids), job(1, turn)),
        counters=Counters(ids[-1] + 1, turn),
        history=tuple(History(job=JobId(number), at=Instant(turn), kind=HistoryKind.WORK_SUBMITTED) for number in ids),
        sent=(OutboxEntry(turn, ForgetAttempt(cluster="vu", attempt=attempt)),),
        confirmed=(turn - 1,),
        attempts=(pending_cancel(attempt, turn), replace(pending_cancel(last, turn), state=AttemptState.CLEANED_UP)),
    )


"""

COMMIT_FOREVER = """
import os


def write(directory):
    print(os.getpid(), flush=True)
    store = open_store("sqlite", directory)
    turn = store.next_number
    while True:
        store.commit(change(turn))
        print(turn, flush=True)
        turn += 1


for line in sys.stdin:
    child = os.fork()
    if not child:
        write(Path(line.strip()))
    os.waitpid(child, 0)
    print("killed", flush=True)
"""

KILL_AT_EVERY_STEP = """
import os, signal
import alembic.command
from sqlalchemy import Engine, event


def killed_at(step, directory):
    left = step

    def count(*_):
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    for name in ("begin", "before_cursor_execute", "after_cursor_execute", "commit"):
        event.listen(Engine, name, count)
    sys.addaudithook(lambda name, _: count() if name.startswith(("os.", "fcntl.", "sqlite3.")) else None)
    store = open_store("sqlite", directory)
    for turn in (1, 2):
        store.commit(change(turn))
        os.write(1, f"{step} {turn}\\n".encode())
    store.close()
    os._exit(0)


warm = open_store("sqlite", Path(sys.argv[1]) / "warm")  # so that no child imports and compiles the same again
warm.commit(change(1))
warm.close()
step, killed = 0, True
while killed:
    step += 1
    child = os.fork()
    if not child:
        killed_at(step, Path(sys.argv[1]) / str(step))
    killed = os.WIFSIGNALED(os.waitpid(child, 0)[1])
"""


@pytest.fixture(scope="module")
def writer() -> Iterator["subprocess.Popen[str]"]:
    """Start a process that forks a child for each directory it reads. The child commits there, printing each number."""
    command = [sys.executable, "-c", CHANGES + COMMIT_FOREVER, "", str(JOBS_A_COMMIT)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process


@pytest.mark.parametrize("seed", range(4))
def test_a_store_whose_writer_was_killed_at_any_instruction_is_whole(
    tmp_path: Path, writer: "subprocess.Popen[str]", seed: int
) -> None:
    chance = random.Random(seed)
    instance, turns = None, 0
    for opening in range(1, 4):
        acknowledged = write_until_killed(writer, tmp_path, acknowledgements=chance.randint(1, 30))
        store = open_store("sqlite", tmp_path)
        assert store.epoch == 2 * opening
        assert instance in (None, store.instance)
        instance, before, turns = store.instance, turns, store.next_number - 1
        assert before < acknowledged <= turns <= acknowledged + 1
        assert_whole(store, turns)
        store.close()


def test_a_store_whose_writer_was_killed_at_any_step_of_creation_or_commit_is_whole(tmp_path: Path) -> None:
    """A step is the instant before or after a statement, or a call to the system."""
    command = [sys.executable, "-c", CHANGES + KILL_AT_EVERY_STEP, str(tmp_path), str(JOBS_A_COMMIT)]
    lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    acknowledged = {int(step): int(turn) for step, turn in map(str.split, lines)}
    steps = max(acknowledged)
    assert steps > 50
    assert {acknowledged.get(step, 0) for step in range(1, steps + 1)} == {0, 1, 2}
    for step in range(1, steps + 1):
        store = open_store("sqlite", tmp_path / str(step))
        turns = store.next_number - 1
        assert acknowledged.get(step, 0) <= turns <= acknowledged.get(step, 0) + 1
        assert_whole(store, turns)
        store.close()


def write_until_killed(writer: "subprocess.Popen[str]", directory: Path, acknowledgements: int) -> int:
    """Kill the writer after so many acknowledged commits. Returns the number of the last acknowledged one."""
    assert writer.stdout is not None
    print(directory, file=writer.stdin, flush=True)
    pid = int(writer.stdout.readline())
    lines = [writer.stdout.readline() for _ in range(acknowledgements)]
    os.kill(pid, signal.SIGKILL)
    lines += takewhile(lambda line: line not in ("killed\n", ""), iter(writer.stdout.readline, None))
    return int(lines[-1])


def assert_whole(store: Store, turns: int) -> None:
    """Assert that the store holds all of `turns` commits, and nothing of the next one."""
    if not turns:
        assert store.jobs() == []
        return
    snapshot, last = store.load(), turns * JOBS_A_COMMIT
    assert [job.id for job in snapshot.jobs] == list(range(1, last + 1))
    assert [job.position for job in snapshot.jobs[1:]] == [
        (job.id - 1) // JOBS_A_COMMIT + 1 for job in snapshot.jobs[1:]
    ]
    assert snapshot.jobs[0].position == turns
    assert snapshot.counters == Counters(last + 1, turns)
    assert [entry.number for entry in snapshot.outbox] == [turns]
    assert [each.id.job for each in snapshot.pending_cancels] == [turns]
    assert [len(store.history(job.id)) for job in snapshot.jobs] == [1] * last
    assert store.id_of_key("mona", str(last)) == JobId(last)
