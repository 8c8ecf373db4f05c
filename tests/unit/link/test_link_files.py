"""Files over a real link: staged in before a submit, collected after the end."""

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import linked
import pytest

from koalapy.model.commands import CancelAttempt, CollectOutput
from koalapy.model.errors import Reason, RequestError
from koalapy.model.events import (
    AttemptCleanedUp,
    AttemptSubmitted,
    ClusterConnected,
    FilesStaged,
    OutputCollected,
    SubmissionFailed,
)
from koalapy.model.identity import AttemptId, JobId
from koalapy.runtime.collecting.collector import Collector
from koalapy.runtime.staging.gather import gather, place_of

wait_until = linked.wait_until
INSTANCE = linked.INSTANCE


@pytest.fixture
def testbed(tmp_path: Path) -> Iterator[Any]:
    made = linked.LinkTestbed(tmp_path)
    yield made
    made.close()


# ---- stage in


def test_staged_files_have_their_content_path_and_permissions(testbed: Any, tmp_path: Path) -> None:
    testbed.start()
    large = os.urandom(3 << 20)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "large").write_bytes(large)
    (tmp_path / "empty").touch(0o640)
    (tmp_path / "data" / "absolute").write_text("here")
    program = tmp_path / "run.sh"
    program.write_text('#!/bin/sh\ncat absolute; wc -c < "$1"\n')
    program.chmod(0o750)
    stage_in = ["data/large", "./empty", str(tmp_path / "data" / "absolute"), "run.sh"]
    command = testbed.submit_command("", stage_in, executable="./run.sh", arguments=("data/large",))
    ended = testbed.run(command)
    assert ended.exit_status == 0, ended
    assert b"".join(testbed.link.fetch(command.attempt, "output")) == b"here%d\n" % len(large)
    work = testbed.attempt_directory(command.attempt) / "work"
    assert (work / "data" / "large").read_bytes() == large
    assert {path.name: path.stat().st_mode & 0o777 for path in (work / "empty", work / "run.sh")} == {
        "empty": 0o640,
        "run.sh": 0o750,
    }


def test_a_file_is_transferred_once(testbed: Any, tmp_path: Path) -> None:
    testbed.start()
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    first = testbed.submit_command("true", ["file"])
    testbed.run(first)
    stage = next(testbed.shared.glob("*/stage"))
    [stored] = stage.iterdir()
    inode = stored.stat().st_ino
    testbed.run(testbed.submit_command("cmp file file", ["file"]))
    assert [path.stat().st_ino for path in stage.iterdir()] == [inode]


def test_two_jobs_that_share_a_file_wait_for_one_transfer(testbed: Any, tmp_path: Path) -> None:
    """Each job needs another file too, so that neither waits for exactly the files of the other."""
    testbed.start()
    with (tmp_path / "large").open("wb") as file:
        file.truncate(100 << 20)
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    commands = [testbed.submit_command(f"test -s large && cat {name}", ["large", name]) for name in ("a", "b")]
    for command in commands:
        testbed.send(command)
    for command in commands:
        testbed.recorder.event(AttemptSubmitted, lambda event, command=command: event.attempt == command.attempt)
    stage = next(testbed.shared.glob("*/stage"))
    assert sorted(path.stat().st_size for path in stage.iterdir()) == [1, 1, 100 << 20]
    staged = {event.attempt: event for event in testbed.recorder.events(FilesStaged)}
    assert {(event.files, event.size) for event in staged.values()} == {(2, (100 << 20) + 1)}
    assert len({event.version for event in staged.values()}) == 2


def test_more_files_than_fit_into_a_message_are_staged(testbed: Any, tmp_path: Path) -> None:
    testbed.start()
    (tmp_path / "many").mkdir()
    for number in range(3000):
        (tmp_path / "many" / f"{number:04}").write_text(str(number))
    command = testbed.submit_command("cat many/*", ["many"])
    assert testbed.run(command).exit_status == 0
    assert b"".join(testbed.link.fetch(command.attempt, "output")) == "".join(map(str, range(3000))).encode()


def test_a_cut_transfer_continues_over_the_next_connection(testbed: Any, tmp_path: Path) -> None:
    """The channel holds back all data after the first megabytes until it is cut."""
    cut = threading.Event()
    testbed.connection.gate = lambda written: written < 20 << 20 or cut.wait(linked.PATIENCE_S)
    testbed.start()
    data = os.urandom(1 << 20) * 40
    (tmp_path / "large").write_bytes(data)
    command = testbed.submit_command("true", ["large"])
    mark = len(testbed.recorder.deliveries)
    testbed.send(command)
    wait_until(lambda: any(path.stat().st_size > 10 << 20 for path in testbed.shared.glob("*/stage/*.part")))
    testbed.kill_kcm()
    [part] = testbed.shared.glob("*/stage/*.part")
    inode = part.stat().st_ino
    cut.set()
    testbed.recorder.event(ClusterConnected, after=mark)
    testbed.send(command, doubt=True)
    testbed.recorder.event(AttemptSubmitted, lambda event: event.attempt == command.attempt)
    [stored] = next(testbed.shared.glob("*/stage")).iterdir()
    assert stored.stat().st_ino == inode, "the transfer did not continue the partial file"
    assert stored.read_bytes() == data


def missing(directory: Path) -> str:
    return "none"


def fifo(directory: Path) -> str:
    os.mkfifo(directory / "fifo")
    return "fifo"


@pytest.mark.parametrize(
    ("make", "code"),
    [(missing, "no_such_file"), (fifo, "no_plain_file")],
    ids=["missing", "fifo"],
)
def test_a_file_that_cannot_be_staged_fails_the_submission(
    testbed: Any, tmp_path: Path, make: Callable[[Path], str], code: str
) -> None:
    testbed.start()
    number = testbed.send(testbed.submit_command("true", [make(tmp_path)]))
    failed, delivery = testbed.recorder.delivery(SubmissionFailed)
    assert (failed.reason.code, failed.reason.whose, delivery.confirmed) == (code, "request", (number,))
    assert str(tmp_path) in failed.reason.message
    testbed._attempts.clear()


def test_a_staged_executable_must_have_execute_permission(tmp_path: Path) -> None:
    (tmp_path / "program").write_text("#!/bin/sh\n")
    with pytest.raises(RequestError) as caught:
        gather(str(tmp_path), ["./program"], ["program/../program"])
    assert caught.value.reason.code == "not_executable"
    assert caught.value.reason.advice == f"chmod +x {tmp_path / 'program'}"
    (tmp_path / "program").chmod(0o755)
    [staged] = gather(str(tmp_path), ["./program"], ["./program"])
    assert (staged.place, staged.mode) == ("program", 0o755)


def test_two_files_cannot_be_staged_to_one_path(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("file", "folder/file"):
        (tmp_path / name).touch()
    with pytest.raises(RequestError, match="Two files are staged as file"):
        gather(str(tmp_path), ["file", str(tmp_path / "folder" / "file")])


@pytest.mark.parametrize(
    ("name", "place"),
    [("a", "a"), ("./a/../b", "b"), ("a//b", "a/b"), ("../a/b", "b"), ("/x/y", "y"), ("..a", "..a")],
)
def test_the_staged_path_of_a_file(name: str, place: str) -> None:
    assert place_of(name) == place


def test_a_cancel_overtakes_a_submit_whose_files_are_being_staged(testbed: Any, tmp_path: Path) -> None:
    """The file is so large that the cancel comes first; its Submit is never sent."""
    testbed.start()
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 30)
    command = testbed.submit_command("true", ["large"])
    submit = testbed.send(command)
    cancel = testbed.send(CancelAttempt(cluster="here", attempt=command.attempt, batch_id=""))
    _, delivery = testbed.recorder.delivery(AttemptCleanedUp)
    assert set(delivery.confirmed) == {submit, cancel}
    testbed.link.close()
    assert not testbed.recorder.events(AttemptSubmitted)


def test_a_large_transfer_does_not_delay_control_messages(testbed: Any, tmp_path: Path) -> None:
    """The channel is so slow that the file takes minutes."""
    testbed.connection.gate = lambda written: time.sleep(0.01)
    testbed.start()
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 30)
    testbed.send(testbed.submit_command("true", ["large"]))
    wait_until(lambda: any(testbed.shared.glob("*/stage/*.part")))
    other = testbed.submit_command("echo quick")
    testbed.run(other)
    assert not [event for event in testbed.recorder.events(AttemptSubmitted) if event.attempt != other.attempt]


def test_a_doubtful_submit_with_a_lost_file_finds_the_first_batch_job_and_makes_no_second(
    testbed: Any, tmp_path: Path
) -> None:
    """The file was removed after the first submit; the KCM must look whether there is a batch job."""
    testbed.start()
    (tmp_path / "file").touch()
    there, never = testbed.submit_command("true", ["file"]), testbed.submit_command("true", ["file"])
    batch_id = testbed.at_barrier(there).batch_id
    (tmp_path / "file").unlink()
    mark = len(testbed.recorder.deliveries)
    testbed.link.close()
    testbed.make().start()
    testbed.recorder.event(ClusterConnected, after=mark)
    first, second = testbed.send(there, doubt=True), testbed.send(never, doubt=True)
    assert testbed.recorder.confirmed(first).events == (
        AttemptSubmitted(cluster="here", attempt=there.attempt, batch_id=batch_id),
    )
    [failed] = testbed.recorder.confirmed(second).events
    assert isinstance(failed, SubmissionFailed)
    assert failed.reason.code == "no_such_file"


# ---- stage out


@pytest.fixture
def collector(testbed: Any) -> Iterator[Any]:
    made = Collector(INSTANCE, {"here": testbed.link}, testbed.recorder.deliver, retry_max_s=0.2)
    yield made
    made.close()


def ended_with(testbed: Any, script: str) -> AttemptId:
    command = testbed.submit_command(script)
    assert testbed.run(command).exit_status == 0
    attempt: AttemptId = command.attempt
    return attempt


def collected(testbed: Any, collector: Any, directory: Path, paths: list[str], *attempts: AttemptId) -> Reason | None:
    number = next(testbed.numbers)
    sources = tuple(("here", attempt) for attempt in attempts)
    command = CollectOutput(job=JobId(1), sources=sources, paths=tuple(paths), directory=str(directory))
    collector.collect(number, command)
    collector.collect(number, command)
    [event] = testbed.recorder.confirmed(number).events
    assert isinstance(event, OutputCollected)
    assert len([each for each in testbed.recorder.deliveries if number in each.confirmed]) == 1
    return event.reason


def test_the_first_component_that_has_a_file_wins(testbed: Any, collector: Any, tmp_path: Path) -> None:
    testbed.start()
    home = tmp_path / "home"
    first = ended_with(testbed, "mkdir out; echo first > out/both; chmod 750 out/both")
    second = ended_with(testbed, "mkdir out; echo second > out/both; head -c 2000000 /dev/zero > large; : > empty")
    assert collected(testbed, collector, home, ["out/both", "large", "./empty"], first, second) is None
    assert (home / "out" / "both").read_text() == "first\n"
    assert (home / "out" / "both").stat().st_mode & 0o777 == 0o750
    assert (home / "large").read_bytes() == bytes(2_000_000)
    assert (home / "empty").read_bytes() == b""
    assert {path.name for path in home.iterdir()} == {"out", "large", "empty"}


def test_missing_output_files_are_named_and_the_others_are_collected(
    testbed: Any, collector: Any, tmp_path: Path
) -> None:
    testbed.start()
    attempt = ended_with(testbed, "echo 1 > there; mkdir folder")
    reason = collected(testbed, collector, tmp_path / "home", ["there", "none", "no*", "folder/none"], attempt)
    assert reason is not None
    assert (reason.code, reason.whose) == ("no_output_file", "request")
    assert "none, folder/none" in reason.message
    assert (tmp_path / "home" / "there").exists(), "the existing file was not collected"


def test_output_replaces_an_existing_file(testbed: Any, collector: Any, tmp_path: Path) -> None:
    testbed.start()
    (tmp_path / "result").write_text("of an earlier run")
    attempt = ended_with(testbed, "echo new > result")
    assert collected(testbed, collector, tmp_path, ["result"], attempt) is None
    assert (tmp_path / "result").read_text() == "new\n"


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "a/../../b"])
def test_a_path_out_of_the_job_s_directory_is_refused(testbed: Any, collector: Any, tmp_path: Path, path: str) -> None:
    reason = collected(testbed, collector, tmp_path, [path], AttemptId(JobId(1), 0, 1))
    assert reason is not None
    assert reason.code == "bad_stage_out"


def test_output_to_an_unwritable_directory_fails_with_a_reason(testbed: Any, collector: Any, tmp_path: Path) -> None:
    testbed.start()
    (tmp_path / "file").touch()
    attempt = ended_with(testbed, "echo new > result")
    reason = collected(testbed, collector, tmp_path / "file", ["result"], attempt)
    assert reason is not None
    assert reason.code == "output_not_written"


def test_output_of_a_cluster_that_left_the_grid_file_fails_with_a_reason(
    testbed: Any, collector: Any, tmp_path: Path
) -> None:
    command = CollectOutput(
        job=JobId(1), sources=(("left", AttemptId(JobId(1), 0, 1)),), paths=("x",), directory=str(tmp_path)
    )
    collector.collect(5, command)
    [event] = testbed.recorder.confirmed(5).events
    assert event.reason.code == "no_such_cluster"


def test_collecting_waits_for_an_unreachable_cluster(testbed: Any, collector: Any, tmp_path: Path) -> None:
    testbed.start()
    attempt = ended_with(testbed, "echo late > result")
    testbed.link.close()
    links = {"here": testbed.make()}
    collector._links = links
    collector.collect(
        99, CollectOutput(job=JobId(1), sources=(("here", attempt),), paths=("result",), directory=str(tmp_path))
    )
    mark = len(testbed.recorder.deliveries)
    links["here"].start()
    testbed.recorder.event(ClusterConnected, after=mark)
    [event] = testbed.recorder.confirmed(99).events
    assert event.reason is None
    assert (tmp_path / "result").read_text() == "late\n"


def test_collecting_waits_for_the_shared_directory(testbed: Any, collector: Any, tmp_path: Path) -> None:
    """While the directory is away, a file that is not found is not a missing one."""
    testbed.start()
    attempt = ended_with(testbed, "echo there > result")
    away = testbed.shared.rename(tmp_path / "away")
    asked = threading.Event()
    list_files = testbed.link.list_files

    def ask(*wanted: Any) -> Iterator[bytes]:
        try:
            yield from list_files(*wanted)
        finally:
            asked.set()

    testbed.link.list_files = ask
    command = CollectOutput(job=JobId(1), sources=(("here", attempt),), paths=("result",), directory=str(tmp_path))
    collector.collect(99, command)
    assert asked.wait(linked.PATIENCE_S)
    move_back(away, testbed.shared)
    [event] = testbed.recorder.confirmed(99).events
    assert event.reason is None
    assert (tmp_path / "result").read_text() == "there\n"


def move_back(away: Path, there: Path) -> None:
    """Move the directory back, and remove files that the local queue has created there meanwhile."""
    while away.exists():
        shutil.rmtree(there, ignore_errors=True)
        with contextlib.suppress(OSError):
            away.rename(there)


def test_a_closed_collector_leaves_its_work_to_the_next_koalad(testbed: Any, tmp_path: Path) -> None:
    collector = Collector(INSTANCE, {"here": testbed.link}, testbed.recorder.deliver, retry_max_s=60.0)
    command = CollectOutput(
        job=JobId(1), sources=(("here", AttemptId(JobId(1), 0, 1)),), paths=("x",), directory=str(tmp_path)
    )
    collector.collect(1, command)
    collector.close()
    collector.join()
    assert not testbed.recorder.deliveries
    collector.collect(2, command)
