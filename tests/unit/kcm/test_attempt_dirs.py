"""The shared directory: its contents and modes, and what the KCM does if it is full, unreachable or another user's."""

import errno
import hashlib
import json
import os
import shutil
import stat
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest
from koalapy_adapters import layout, start_lock
from koalapy_adapters.errors import BatchError, ClusterError, RequestError, TransientError
from koalapy_adapters.files import Files
from koalapy_adapters.kcm.relay.addresses import addresses
from koalapy_adapters.kcm.shared_directory.attempt_dirs import Component, Directories
from koalapy_adapters.kcm.shared_directory.errors import unusable
from koalapy_adapters.kcm.state.actions import DirectoryStatus
from koalapy_adapters.trees import is_inside

from koalapy.model.units import DAY, Instant
from koalapy.world.cluster.files import Mount, SharedDirectory

TAG = "kabcde000000001"


@pytest.fixture
def directories(tmp_path: Path) -> Directories:
    made = Directories(str(tmp_path / "shared"), "abcde", "here", 3)
    made.create()
    return made


def component(staged: list[list[Any]] | None = None) -> Component:
    return Component(TAG, {"tag": TAG}, "#!/bin/sh\n", staged or [])


def stage(directories: Directories, data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    Path(layout.staged_file(directories.shared, "abcde", digest)).write_bytes(data)
    return digest


@pytest.mark.parametrize(
    "tag", ["", "..", "k", "kabcde00000000/", "/etc/passwd", "Kabcde000000001", TAG + "0", TAG + "\n"]
)
def test_only_a_tag_names_a_directory(tag: str, directories: Directories) -> None:
    for use in (directories.attempt, directories.remove, directories.void):
        with pytest.raises(RequestError):
            use(tag)
    assert directories.token(tag) is None
    assert directories.inspect([tag]) == {}


@pytest.mark.parametrize("instance", ["", "..", "a/b", "bin\n"])
def test_an_invalid_instance_id_is_refused(instance: str, tmp_path: Path) -> None:
    with pytest.raises(RequestError):
        Directories(str(tmp_path), instance, "here", 1)


@pytest.mark.parametrize("path", ["", "/etc/x", "../x", "a/../../x", "a//b", ".", "a/.", "a\0b"])
def test_a_path_that_leads_out_is_not_inside(path: str) -> None:
    assert not is_inside(path)


def test_staged_files_are_copies_with_their_modes(directories: Directories) -> None:
    digest = stage(directories, b"#!/bin/sh\n")
    directories.prepare(component([["sub/run", digest, 0o755], ["data", digest, 0o4600]]))
    work = Path(directories.attempt(TAG), "work")
    assert (work / "sub" / "run").stat().st_mode & 0o7777 == 0o755
    assert (work / "data").stat().st_mode & 0o7777 == 0o600
    (work / "data").write_bytes(b"changed")
    assert Path(layout.staged_file(directories.shared, "abcde", digest)).read_bytes() == b"#!/bin/sh\n"


def test_a_missing_staged_file_is_reported(directories: Directories) -> None:
    with pytest.raises(TransientError) as lost:
        directories.prepare(component([["x", "0" * 64, 0o600]]))
    assert lost.value.code == "stage_lost"


@pytest.mark.parametrize("staged", [["../x", "0" * 64, 0o600], ["x", "../token", 0o600]])
def test_no_staged_file_leads_out(staged: list[Any], directories: Directories) -> None:
    with pytest.raises(RequestError):
        directories.prepare(component([staged]))


def test_each_preparation_makes_a_new_secret(directories: Directories) -> None:
    tokens = set()
    for _ in range(2):
        directories.prepare(component())
        tokens.add(directories.token(TAG))
    assert len(tokens) == 2


def test_an_attempt_with_a_taken_start_lock_is_not_prepared_again(directories: Directories) -> None:
    directories.prepare(component())
    start_lock.take(directories.attempt(TAG), start_lock.StartLock(start_lock.TAKEN, "n1"))
    with pytest.raises(ClusterError):
        directories.prepare(component())
    assert not directories.void(TAG)


def test_only_its_user_can_read_a_stores_directory_whoever_made_it(directories: Directories, tmp_path: Path) -> None:
    """Another user could make the directory first, since batch jobs' names contain the instance id."""
    (tmp_path / "shared" / "abcde").chmod(0o777)
    directories.create()
    assert (tmp_path / "shared" / "abcde").stat().st_mode & 0o777 == 0o700


def test_voiding_an_attempt_without_a_directory_makes_one(directories: Directories) -> None:
    assert directories.void(TAG)
    assert directories.void(TAG)
    assert directories.inspect([TAG]) == {TAG: DirectoryStatus(start_lock="void", directory=directories.attempt(TAG))}


class CountedListings(Files):
    """Files that record which directories are listed."""

    def __init__(self) -> None:
        self.lists: list[str] = []

    def names(self, directory: str) -> list[str]:
        self.lists.append(directory)
        return super().names(directory)


def test_an_operation_on_one_attempt_does_not_list_the_others(tmp_path: Path) -> None:
    """Otherwise a thousand cancels would list a thousand attempts a thousand times."""
    files = CountedListings()
    directories = Directories(str(tmp_path), "abcde", "here", 3, files)
    directories.create()
    files.lists.clear()
    directories.prepare(component())
    assert directories.void(TAG)
    assert directories.journal(TAG, range(10)) is None
    for _ in range(2):
        directories.remove(TAG)
    assert directories.own not in files.lists
    assert directories.inspect([TAG, TAG.replace("1", "2")]) == {}
    assert files.lists.count(directories.own) == 1


def test_a_directory_status_has_start_lock_exit_record_and_heartbeat(directories: Directories) -> None:
    directories.prepare(component())
    attempt = Path(directories.attempt(TAG))
    (attempt / "record.json").write_text(json.dumps({"phase": "ended"}))
    (attempt / "heartbeat").touch()
    os.utime(attempt / "heartbeat", ns=(0, 5_000_000_000))
    assert directories.inspect([TAG]) == {
        TAG: DirectoryStatus("", {"phase": "ended"}, 5_000_000, directories.attempt(TAG))
    }


def test_a_directory_that_a_newer_kcm_may_have_removed_is_not_made_again(directories: Directories) -> None:
    newer = Directories(directories.shared, "abcde", "here", 4)
    newer.address_file.publish(["10.0.0.1"], 4711)
    with pytest.raises(ClusterError, match="A newer KCM is at work on this cluster"):
        directories.void(TAG)
    assert not Path(directories.attempt(TAG)).exists()
    assert newer.void(TAG)


def test_no_removal_is_reported_if_the_file_system_is_not_mounted(directories: Directories) -> None:
    directories.void(TAG)
    own = Path(directories.own)
    own.rename(own.with_name("elsewhere"))
    with pytest.raises(ClusterError, match="cannot be used"):
        directories.remove(TAG)
    own.with_name("elsewhere").rename(own)
    directories.remove(TAG)
    directories.remove(TAG)
    assert not Path(directories.attempt(TAG)).exists()


def test_a_removal_never_follows_a_link(directories: Directories, tmp_path: Path) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").touch()
    os.symlink(tmp_path / "precious", directories.attempt(TAG))
    directories.remove(TAG)
    assert not os.path.lexists(directories.attempt(TAG))
    directories.prepare(component())
    os.symlink(tmp_path / "precious", Path(directories.attempt(TAG), "work", "link"))
    directories.remove(TAG)
    directories.remove(TAG)
    assert (tmp_path / "precious" / "file").exists()


def test_nothing_is_made_void_or_removed_if_the_file_system_is_not_mounted(directories: Directories) -> None:
    directories.prepare(component())
    shared = Path(directories.shared)
    shared.rename(shared.with_name("elsewhere"))
    shared.mkdir()
    for use in (directories.void, directories.remove, lambda tag: directories.inspect([tag])):
        with pytest.raises(ClusterError) as error:
            use(TAG)
        assert error.value.code == "shared_gone"
    assert list(shared.iterdir()) == []


def test_an_older_kcm_changes_neither_the_relay_file_nor_attempts_of_a_newer_one(directories: Directories) -> None:
    newer = Directories(directories.shared, "abcde", "here", 4)
    newer.address_file.publish(["10.0.0.1"], 4000)
    for use in (lambda: directories.address_file.publish([], 1), lambda: directories.prepare(component())):
        with pytest.raises(ClusterError) as stale:
            use()
        assert stale.value.code == "stale"
    assert Directories(directories.shared, "abcde", "there", 1).address_file.newest_epoch() == 0


def test_each_kcm_has_a_secret_that_only_its_user_can_read(directories: Directories) -> None:
    secrets = []
    for epoch in (3, 3, 4):
        Directories(directories.shared, "abcde", "here", epoch).address_file.publish(["10.0.0.1"], 4000)
        relay = Path(directories.own, "relay.here.json")
        assert stat.S_IMODE(relay.stat().st_mode) == 0o600
        secrets.append(json.loads(relay.read_text())["secret"])
    assert [len(bytes.fromhex(secret)) for secret in secrets] == [32, 32, 32]
    assert len(set(secrets)) == 3


def test_staged_files_that_were_not_used_for_long_are_dropped(directories: Directories) -> None:
    old, new = stage(directories, b"old"), stage(directories, b"new")
    os.utime(layout.staged_file(directories.shared, "abcde", old), (0, 0))
    directories.create()
    assert os.listdir(Path(directories.own, "stage")) == [new]


class Days:
    """A shared directory in memory, on a day that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        shared = SharedDirectory(lambda: Instant(round(self.now * DAY)), Random(0))
        self.files = Mount(shared, "head", lambda: None, lambda: True)
        self.files.make("/shared")
        self.directories = Directories("/shared", "abcde", "here", 3, self.files)
        self.directories.create()
        self.staged = layout.staged_file("/shared", "abcde", "0" * 64)
        self.files.write(self.staged, b"")

    def forget(self, number: int) -> None:
        """Remove the directory of an attempt that has ended."""
        tag = f"kabcde{number:09}"
        self.files.make(self.directories.attempt(tag))
        self.files.write(layout.inside(self.directories.attempt(tag), "record.json"), b"{}")
        self.directories.remove(tag)

    def kept(self) -> list[int]:
        names = self.files.names(f"{self.directories.own}/ended")
        return sorted(int(name[len("kabcde") : -len(".json")]) for name in names)


def test_a_connected_kcm_drops_old_exit_records_once_a_day() -> None:
    """Otherwise a KCM that runs for a year would keep the exit records of a million jobs."""
    days = Days()
    for day in range(1, 25):
        days.now = day
        days.forget(day)
        assert days.kept() == list(range(max(1, day - 7), day + 1))
        assert days.files.exists(days.staged) == (day <= 14)


def test_old_exit_records_are_searched_once_a_day_only() -> None:
    days = Days()
    days.forget(1)
    for day, kept in ((0.9, [1, 2]), (7.5, [2, 3]), (8.4, [2, 3, 4]), (8.5, [3, 4, 5])):
        days.now = day
        days.forget(max(days.kept()) + 1)
        assert days.kept() == kept


@pytest.mark.parametrize(
    ("number", "code"), [(errno.ENOSPC, "shared_full"), (errno.EDQUOT, "shared_full"), (errno.ESTALE, "shared_gone")]
)
def test_errors_of_the_shared_directory_have_their_codes(number: int, code: str) -> None:
    error: BatchError = unusable("/shared", OSError(number, os.strerror(number)))
    assert (error.code, error.whose) == (code, "cluster")
    assert error.advice


def test_a_full_disk_is_an_error_and_leaves_no_incomplete_file(
    directories: Directories, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ClusterError) as error:
        directories.prepare(component())
    assert error.value.code == "shared_full"
    assert set(os.listdir(directories.attempt(TAG))) == {"work", "output"}


def test_tags_of_every_store_are_listed(directories: Directories) -> None:
    directories.prepare(component())
    other = Directories(directories.shared, "zzzzz", "here", 1)
    other.create()
    other.void("kzzzzz000000001")
    os.makedirs(os.path.join(directories.shared, "aaaaa", TAG))  # not a place of any store
    assert directories.tags() == [TAG, "kzzzzz000000001"]


def test_a_tag_of_another_store_can_be_inspected_and_cleaned_up_but_not_used(directories: Directories) -> None:
    other, tag = Directories(directories.shared, "zzzzz", "here", 1), "kzzzzz000000001"
    other.create()
    other.prepare(Component(tag, {}, "", []))
    assert directories.token(tag) is None
    assert other.token(tag)
    with pytest.raises(RequestError):
        directories.prepare(Component(tag, {}, "", []))
    assert directories.inspect([tag]) == {tag: DirectoryStatus(directory=directories.attempt(tag))}
    assert directories.void(tag)
    assert not os.path.exists(os.path.join(directories.own, tag))
    directories.remove(tag)
    assert directories.tags() == []


def test_a_tag_of_a_store_without_a_directory_here_can_be_cleaned_up_too(directories: Directories) -> None:
    """That store uses another shared directory: only its batch job is visible here."""
    tag = "kzzzzz000000001"
    directories.remove(tag)
    assert directories.void(tag)
    directories.remove(tag)
    assert directories.tags() == []


def test_the_examination_of_a_directory_has_its_files_and_their_age(directories: Directories) -> None:
    directories.prepare(component())
    here = Path(directories.attempt(TAG))
    start_lock.take(str(here), start_lock.StartLock(start_lock.TAKEN, "its wrapper"))
    old = directories.files.clock() - 3600
    os.utime(here / "component.json", (old, old))
    (here / "heartbeat").touch()
    os.utime(here / "heartbeat", (old + 600, old + 600))
    reported = directories.examine([TAG, "kabcde000000002", "nonsense"])
    assert set(reported) == {TAG}
    assert (reported[TAG]["start_lock"], reported[TAG]["ended"]) == ("taken", False)
    assert 3600 <= reported[TAG]["age_s"] < 3700
    assert 3000 <= reported[TAG]["heartbeat_age_s"] < 3100
    (here / "record.json").write_text("{}")
    (here / "heartbeat").unlink()
    reported = directories.examine([TAG])
    assert (reported[TAG]["ended"], reported[TAG]["heartbeat_age_s"]) == (True, None)


def test_own_addresses_are_reachable_from_other_hosts() -> None:
    found, last = addresses()
    assert not any(address.startswith(("127.", "169.254.", "fe80")) or address == "::1" for address in found + last)
    assert addresses(loopback=True) == ([*found, "127.0.0.1"], last)


# ---- what the cluster keeps of a store


def test_the_next_kcm_knows_the_highest_number(directories: Directories) -> None:
    assert directories.watermark.newest() == 0
    for number in (7, 12, 9):
        directories.watermark.remember(number)
    assert directories.watermark.newest() == 12
    later = Directories(directories.shared, "abcde", "here", 4)
    later.watermark.remember(3)
    assert later.watermark.newest() == 12
    assert Directories(directories.shared, "abcde", "there", 4).watermark.newest() == 0
    assert Directories(directories.shared, "vwxyz", "here", 4).watermark.newest() == 0


def test_a_number_that_cannot_be_written_is_an_error(directories: Directories) -> None:
    path = Path(layout.watermark_file(directories.shared, "abcde", "here"))
    path.mkdir()
    with pytest.raises(BatchError):
        directories.watermark.remember(5)
    path.rmdir()
    directories.watermark.remember(5)
    assert directories.watermark.newest() == 5


def test_the_exit_record_of_a_forgotten_attempt_stays_readable(directories: Directories) -> None:
    directories.prepare(component())
    record = {"ending": "exited", "exit_status": 0}
    layout.write_json(layout.inside(directories.attempt(TAG), "record.json"), record)
    directories.remove(TAG)
    assert not Path(directories.attempt(TAG)).exists()
    assert directories.inspect([TAG]) == {TAG: DirectoryStatus(record=record)}
    assert directories.tags() == []
    directories.remove(TAG)
    assert directories.inspect([TAG]) == {TAG: DirectoryStatus(record=record)}


def test_a_forgotten_attempt_without_an_exit_record_leaves_nothing(directories: Directories) -> None:
    directories.prepare(component())
    directories.remove(TAG)
    assert directories.inspect([TAG]) == {}
    assert directories.recall([[TAG, TAG]]) == []


def test_old_exit_records_are_removed(directories: Directories) -> None:
    directories.prepare(component())
    layout.write_json(layout.inside(directories.attempt(TAG), "record.json"), {})
    directories.remove(TAG)
    path = layout.ended_record(directories.shared, "abcde", TAG)
    directories.create()
    assert Path(path).exists()
    os.utime(path, (0, 0))
    directories.create()
    assert not Path(path).exists()


def test_traces_are_recalled_by_ranges(directories: Directories) -> None:
    tags = [f"kabcde00000{number:04}" for number in (1, 5, 7, 9)]
    for tag in tags:
        directories.prepare(Component(tag, {"tag": tag}, "#!/bin/sh\n", []))
    layout.write_json(layout.inside(directories.attempt(tags[2]), "record.json"), {})
    directories.remove(tags[2])
    assert directories.recall([]) == []
    assert directories.recall([[tags[0], tags[0]], [tags[1], tags[2]]]) == tags[:3]
    assert directories.recall([["kabcde000000006", "kabcde000000008"], ["kabcde000000002", "kabcde000000004"]]) == [
        tags[2]
    ]


# ---- staged directories and lists


def test_directories_are_made_with_their_modes_though_they_cannot_be_written(directories: Directories) -> None:
    digest = stage(directories, b"x")
    directories.prepare(
        component([["d", "", 0o555], ["d/e", "", 0o700], ["d/e/f", digest, 0o644], ["new\nline", "", 0o711]])
    )
    work = Path(directories.attempt(TAG), "work")
    assert (work / "d" / "e" / "f").read_bytes() == b"x"
    assert [(work / name).stat().st_mode & 0o777 for name in ("d", "d/e", "new\nline")] == [0o555, 0o700, 0o711]
    (work / "d").chmod(0o755)


def test_a_list_of_files_is_a_file_too(directories: Directories) -> None:
    digest = stage(directories, b"x")
    listed = stage(directories, json.dumps([[f"many/{n}", digest, 0o600] for n in range(3000)]).encode())
    directories.prepare(component([["", listed, 0], ["one", digest, 0o600]]))
    work = Path(directories.attempt(TAG), "work")
    assert len(list((work / "many").iterdir())) == 3000
    assert (work / "one").exists()


def test_a_staged_file_that_a_crash_damaged_is_dropped_and_sent_again(directories: Directories) -> None:
    digest = stage(directories, b"content")
    path = Path(layout.staged_file(directories.shared, "abcde", digest))
    path.write_bytes(bytes(7))
    with pytest.raises(TransientError) as damaged:
        directories.prepare(component([["x", digest, 0o600]]))
    assert damaged.value.code == "stage_damaged"
    assert not path.exists()


@pytest.mark.parametrize("entry", [["../d", "", 0o700], ["", "", 0], ["", "../token", 0], ["a\0b", "", 0o700]])
def test_no_directory_or_list_leads_out(entry: list[Any], directories: Directories) -> None:
    with pytest.raises(RequestError):
        directories.prepare(component([entry]))


class _SlowFiles(Files):
    """Files whose first write waits for `go`; they count the writes."""

    def __init__(self) -> None:
        self.begun, self.go, self.writes = threading.Event(), threading.Event(), 0

    def write(self, path: str, data: bytes, mode: int = 0o600, lasting: bool = True) -> None:
        self.writes += 1
        self.begun.set()
        assert self.go.wait(120)
        super().write(path, data, mode, lasting)


def test_numbers_that_arrive_together_are_written_together(tmp_path: Path) -> None:
    slow = _SlowFiles()
    directories = Directories(str(tmp_path), "abcde", "here", 1, slow)
    (tmp_path / "abcde").mkdir()
    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(directories.watermark.remember, 1)
        assert slow.begun.wait(120)
        others = [pool.submit(directories.watermark.remember, number) for number in range(2, 10)]
        while directories.watermark._to_write < 9:
            time.sleep(0)
        slow.go.set()
        for each in [first, *others]:
            each.result(10)
    assert directories.watermark.newest() == 9
    assert slow.writes == 2


class _RecordedWrites(Files):
    """Files that record which writes are lasting."""

    def __init__(self) -> None:
        self.lasting: dict[str, bool] = {}

    def write(self, path: str, data: bytes, mode: int = 0o600, lasting: bool = True) -> None:
        self.lasting[os.path.basename(path).split(".")[0]] = lasting
        super().write(path, data, mode, lasting)


def test_numbers_that_have_arrived_are_written_before_their_commands_are_handled(tmp_path: Path) -> None:
    writes = _RecordedWrites()
    directories = Directories(str(tmp_path), "abcde", "here", 1, writes)
    (tmp_path / "abcde").mkdir()
    for number in (2, 9, 4):
        directories.watermark.expect(number)
    assert directories.watermark.newest() == 0
    directories.watermark.remember(1)
    assert directories.watermark.newest() == 9
    writes.lasting.clear()
    directories.watermark.remember(9)
    assert not writes.lasting


def test_the_files_that_a_wrapper_reads_are_lasting_before_its_submit(tmp_path: Path) -> None:
    writes = _RecordedWrites()
    directories = Directories(str(tmp_path), "abcde", "here", 1, writes)
    directories.create()
    directories.prepare(Component("kabcde000000001", {}, "exec true\n", []))
    assert writes.lasting == {"token": True, "component": True, "script": False}


def test_a_journal_is_read_for_given_numbers_only(directories: Directories) -> None:
    directories.prepare(component())
    rows = [[number, 0, "exited", "n1", 0, 1, 2, 0, 0, 0, 0] for number in (3, 1, 2, 3)]
    torn = '[4, 0, "exi'
    lines = [json.dumps(row) for row in rows] + ["no line of ours", torn]
    Path(directories.attempt(TAG), "journal").write_text("\n".join(lines))
    assert directories.journal(TAG, {2, 3, 4, 9}) == [rows[0], rows[2]]


def test_a_missing_journal_differs_from_an_unreachable_directory(directories: Directories) -> None:
    assert directories.journal(TAG, {1}) is None
    directories.prepare(component())
    assert directories.journal(TAG, {1}) is None
    shutil.rmtree(directories.shared)
    with pytest.raises(ClusterError):
        directories.journal(TAG, {1})
