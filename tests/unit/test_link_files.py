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
def haven(tmp_path: Path) -> Iterator[Any]:
    made = linked.Haven(tmp_path)
    yield made
    made.close()


# ---- in


def test_files_arrive_with_their_content_place_and_permissions(haven: Any, tmp_path: Path) -> None:
    haven.start()
    large = os.urandom(3 << 20)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "large").write_bytes(large)
    (tmp_path / "empty").touch(0o640)
    (tmp_path / "data" / "absolute").write_text("here")
    program = tmp_path / "run.sh"
    program.write_text('#!/bin/sh\ncat absolute; wc -c < "$1"\n')
    program.chmod(0o750)
    stage_in = ["data/large", "./empty", str(tmp_path / "data" / "absolute"), "run.sh"]
    command = haven.submit_of("", stage_in, executable="./run.sh", arguments=("data/large",))
    ended = haven.run(command)
    assert ended.exit_status == 0, ended
    assert b"".join(haven.link.fetch(command.attempt, "output")) == b"here%d\n" % len(large)
    work = haven.attempt_directory(command.attempt) / "work"
    assert (work / "data" / "large").read_bytes() == large
    assert {path.name: path.stat().st_mode & 0o777 for path in (work / "empty", work / "run.sh")} == {
        "empty": 0o640,
        "run.sh": 0o750,
    }


def test_a_file_travels_once(haven: Any, tmp_path: Path) -> None:
    haven.start()
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    first = haven.submit_of("true", ["file"])
    haven.run(first)
    stage = next(haven.shared.glob("*/stage"))
    [stored] = stage.iterdir()
    inode = stored.stat().st_ino
    haven.run(haven.submit_of("cmp file file", ["file"]))
    assert [path.stat().st_ino for path in stage.iterdir()] == [inode]


def test_two_jobs_that_share_a_file_wait_for_one_transfer(haven: Any, tmp_path: Path) -> None:
    """They need other files too, so that neither can go by what the other one needs."""
    haven.start()
    with (tmp_path / "large").open("wb") as file:
        file.truncate(100 << 20)
    for name in ("a", "b"):
        (tmp_path / name).write_text(name)
    commands = [haven.submit_of(f"test -s large && cat {name}", ["large", name]) for name in ("a", "b")]
    for command in commands:
        haven.send(command)
    for command in commands:
        haven.ear.event(AttemptSubmitted, lambda event, command=command: event.attempt == command.attempt)  # type: ignore[misc]
    stage = next(haven.shared.glob("*/stage"))
    assert sorted(path.stat().st_size for path in stage.iterdir()) == [1, 1, 100 << 20]
    told = {event.attempt: event for event in haven.ear.events(FilesStaged)}
    assert {(event.files, event.size) for event in told.values()} == {(2, (100 << 20) + 1)}
    assert len({event.version for event in told.values()}) == 2


def test_more_files_than_a_message_has_room_for(haven: Any, tmp_path: Path) -> None:
    haven.start()
    (tmp_path / "many").mkdir()
    for number in range(3000):
        (tmp_path / "many" / f"{number:04}").write_text(str(number))
    command = haven.submit_of("cat many/*", ["many"])
    assert haven.run(command).exit_status == 0
    assert b"".join(haven.link.fetch(command.attempt, "output")) == "".join(map(str, range(3000))).encode()


def test_what_was_cut_goes_on_over_the_next_connection(haven: Any, tmp_path: Path) -> None:
    """The wire holds back all that follows the first megabytes, until it is cut."""
    cut = threading.Event()
    haven.connection.gate = lambda gone: gone < 20 << 20 or cut.wait(linked.PATIENCE_S)
    haven.start()
    data = os.urandom(1 << 20) * 40
    (tmp_path / "large").write_bytes(data)
    command = haven.submit_of("true", ["large"])
    mark = len(haven.ear.deliveries)
    haven.send(command)
    wait_until(lambda: any(path.stat().st_size > 10 << 20 for path in haven.shared.glob("*/stage/*.part")))
    haven.kill_kcm()
    [part] = haven.shared.glob("*/stage/*.part")
    inode = part.stat().st_ino
    cut.set()
    haven.ear.event(ClusterConnected, after=mark)
    haven.send(command, doubt=True)
    haven.ear.event(AttemptSubmitted, lambda event: event.attempt == command.attempt)
    [stored] = next(haven.shared.glob("*/stage")).iterdir()
    assert stored.stat().st_ino == inode, "the part became the file"
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
def test_what_cannot_be_staged_fails_the_submission(
    haven: Any, tmp_path: Path, make: Callable[[Path], str], code: str
) -> None:
    haven.start()
    number = haven.send(haven.submit_of("true", [make(tmp_path)]))
    failed, delivery = haven.ear.delivery(SubmissionFailed)
    assert (failed.reason.code, failed.reason.whose, delivery.confirmed) == (code, "request", (number,))
    assert str(tmp_path) in failed.reason.message
    haven._attempts.clear()


def test_a_staged_executable_must_be_one(tmp_path: Path) -> None:
    (tmp_path / "program").write_text("#!/bin/sh\n")
    with pytest.raises(RequestError) as caught:
        gather(str(tmp_path), ["./program"], ["program/../program"])
    assert caught.value.reason.code == "not_executable"
    assert caught.value.reason.advice == f"chmod +x {tmp_path / 'program'}"
    (tmp_path / "program").chmod(0o755)
    [staged] = gather(str(tmp_path), ["./program"], ["./program"])
    assert (staged.place, staged.mode) == ("program", 0o755)


def test_two_files_cannot_have_one_place(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("file", "folder/file"):
        (tmp_path / name).touch()
    with pytest.raises(RequestError, match="Two files are staged as file"):
        gather(str(tmp_path), ["file", str(tmp_path / "folder" / "file")])


@pytest.mark.parametrize(
    ("name", "place"),
    [("a", "a"), ("./a/../b", "b"), ("a//b", "a/b"), ("../a/b", "b"), ("/x/y", "y"), ("..a", "..a")],
)
def test_the_place_of_a_file(name: str, place: str) -> None:
    assert place_of(name) == place


def test_a_cancel_overtakes_what_is_still_being_staged(haven: Any, tmp_path: Path) -> None:
    """The file is so large that the cancel is done first; its Submit is never sent."""
    haven.start()
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 30)
    command = haven.submit_of("true", ["large"])
    submit = haven.send(command)
    cancel = haven.send(CancelAttempt(cluster="here", attempt=command.attempt, batch_id=""))
    _, delivery = haven.ear.delivery(AttemptCleanedUp)
    assert set(delivery.confirmed) == {submit, cancel}
    haven.link.close()
    assert not haven.ear.events(AttemptSubmitted)


def test_control_passes_while_a_large_file_is_staged(haven: Any, tmp_path: Path) -> None:
    """Over a wire so slow that the file takes minutes."""
    haven.connection.gate = lambda gone: time.sleep(0.01)
    haven.start()
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 30)
    haven.send(haven.submit_of("true", ["large"]))
    wait_until(lambda: any(haven.shared.glob("*/stage/*.part")))
    other = haven.submit_of("echo quick")
    haven.run(other)
    assert not [event for event in haven.ear.events(AttemptSubmitted) if event.attempt != other.attempt]


def test_in_doubt_a_lost_file_makes_no_second_batch_job_and_denies_no_first(haven: Any, tmp_path: Path) -> None:
    """The file was removed after the first submit: whether there is a batch job, the KCM must say."""
    haven.start()
    (tmp_path / "file").touch()
    there, never = haven.submit_of("true", ["file"]), haven.submit_of("true", ["file"])
    batch_id = haven.at_barrier(there).batch_id
    (tmp_path / "file").unlink()
    mark = len(haven.ear.deliveries)
    haven.link.close()
    haven.make().start()
    haven.ear.event(ClusterConnected, after=mark)
    first, second = haven.send(there, doubt=True), haven.send(never, doubt=True)
    assert haven.ear.confirmed(first).events == (
        AttemptSubmitted(cluster="here", attempt=there.attempt, batch_id=batch_id),
    )
    [failed] = haven.ear.confirmed(second).events
    assert isinstance(failed, SubmissionFailed)
    assert failed.reason.code == "no_such_file"


# ---- out


@pytest.fixture
def collector(haven: Any) -> Iterator[Any]:
    made = Collector(INSTANCE, {"here": haven.link}, haven.ear.deliver, retry_max_s=0.2)
    yield made
    made.close()


def ended_with(haven: Any, script: str) -> AttemptId:
    command = haven.submit_of(script)
    assert haven.run(command).exit_status == 0
    attempt: AttemptId = command.attempt
    return attempt


def collected(haven: Any, collector: Any, directory: Path, paths: list[str], *attempts: AttemptId) -> Reason | None:
    number = next(haven.numbers)
    sources = tuple(("here", attempt) for attempt in attempts)
    command = CollectOutput(job=JobId(1), sources=sources, paths=tuple(paths), directory=str(directory))
    collector.collect(number, command)
    collector.collect(number, command)
    [event] = haven.ear.confirmed(number).events
    assert isinstance(event, OutputCollected)
    assert len([each for each in haven.ear.deliveries if number in each.confirmed]) == 1
    return event.reason


def test_the_first_component_that_has_a_file_wins(haven: Any, collector: Any, tmp_path: Path) -> None:
    haven.start()
    home = tmp_path / "home"
    first = ended_with(haven, "mkdir out; echo first > out/both; chmod 750 out/both")
    second = ended_with(haven, "mkdir out; echo second > out/both; head -c 2000000 /dev/zero > large; : > empty")
    assert collected(haven, collector, home, ["out/both", "large", "./empty"], first, second) is None
    assert (home / "out" / "both").read_text() == "first\n"
    assert (home / "out" / "both").stat().st_mode & 0o777 == 0o750
    assert (home / "large").read_bytes() == bytes(2_000_000)
    assert (home / "empty").read_bytes() == b""
    assert {path.name for path in home.iterdir()} == {"out", "large", "empty"}


def test_a_file_that_nobody_left(haven: Any, collector: Any, tmp_path: Path) -> None:
    haven.start()
    attempt = ended_with(haven, "echo 1 > there; mkdir folder")
    reason = collected(haven, collector, tmp_path / "home", ["there", "none", "no*", "folder/none"], attempt)
    assert reason is not None
    assert (reason.code, reason.whose) == ("no_output_file", "request")
    assert "none, folder/none" in reason.message
    assert (tmp_path / "home" / "there").exists(), "what is there is brought all the same"


def test_output_replaces_what_was_there(haven: Any, collector: Any, tmp_path: Path) -> None:
    haven.start()
    (tmp_path / "result").write_text("of the last run")
    attempt = ended_with(haven, "echo new > result")
    assert collected(haven, collector, tmp_path, ["result"], attempt) is None
    assert (tmp_path / "result").read_text() == "new\n"


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "a/../../b"])
def test_no_path_leads_out_of_the_jobs_directory(haven: Any, collector: Any, tmp_path: Path, path: str) -> None:
    reason = collected(haven, collector, tmp_path, [path], AttemptId(JobId(1), 0, 1))
    assert reason is not None
    assert reason.code == "bad_stage_out"


def test_a_directory_that_cannot_be_written(haven: Any, collector: Any, tmp_path: Path) -> None:
    haven.start()
    (tmp_path / "file").touch()
    attempt = ended_with(haven, "echo new > result")
    reason = collected(haven, collector, tmp_path / "file", ["result"], attempt)
    assert reason is not None
    assert reason.code == "output_not_written"


def test_a_cluster_that_was_taken_out_of_the_grid_file(haven: Any, collector: Any, tmp_path: Path) -> None:
    command = CollectOutput(
        job=JobId(1), sources=(("gone", AttemptId(JobId(1), 0, 1)),), paths=("x",), directory=str(tmp_path)
    )
    collector.collect(5, command)
    [event] = haven.ear.confirmed(5).events
    assert event.reason.code == "no_such_cluster"


def test_collecting_waits_for_a_cluster_out_of_reach(haven: Any, collector: Any, tmp_path: Path) -> None:
    haven.start()
    attempt = ended_with(haven, "echo late > result")
    haven.link.close()
    links = {"here": haven.make()}
    collector._links = links
    collector.collect(
        99, CollectOutput(job=JobId(1), sources=(("here", attempt),), paths=("result",), directory=str(tmp_path))
    )
    mark = len(haven.ear.deliveries)
    links["here"].start()
    haven.ear.event(ClusterConnected, after=mark)
    [event] = haven.ear.confirmed(99).events
    assert event.reason is None
    assert (tmp_path / "result").read_text() == "late\n"


def test_collecting_waits_for_the_shared_directory(haven: Any, collector: Any, tmp_path: Path) -> None:
    """While it is gone nobody can say that a file was not left."""
    haven.start()
    attempt = ended_with(haven, "echo there > result")
    away = haven.shared.rename(tmp_path / "away")
    asked = threading.Event()
    list_files = haven.link.list_files

    def ask(*wanted: Any) -> Iterator[bytes]:
        try:
            yield from list_files(*wanted)
        finally:
            asked.set()

    haven.link.list_files = ask
    command = CollectOutput(job=JobId(1), sources=(("here", attempt),), paths=("result",), directory=str(tmp_path))
    collector.collect(99, command)
    assert asked.wait(linked.PATIENCE_S)
    come_back(away, haven.shared)
    [event] = haven.ear.confirmed(99).events
    assert event.reason is None
    assert (tmp_path / "result").read_text() == "there\n"


def come_back(away: Path, there: Path) -> None:
    """Whatever the local queue has begun there meanwhile goes."""
    while away.exists():
        shutil.rmtree(there, ignore_errors=True)
        with contextlib.suppress(OSError):
            away.rename(there)


def test_closing_leaves_what_is_not_done_to_the_next_koalad(haven: Any, tmp_path: Path) -> None:
    collector = Collector(INSTANCE, {"here": haven.link}, haven.ear.deliver, retry_max_s=60.0)
    command = CollectOutput(
        job=JobId(1), sources=(("here", AttemptId(JobId(1), 0, 1)),), paths=("x",), directory=str(tmp_path)
    )
    collector.collect(1, command)
    collector.close()
    collector.join()
    assert not haven.ear.deliveries
    collector.collect(2, command)
