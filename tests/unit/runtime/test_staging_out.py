"""Stage out: which files go where, and which writes of koalad no cluster can cause."""

import contextlib
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koalapy_adapters.messages.kcm import Fetched
from koalapy_adapters.trees import DIRECTORY, FILE, REFUSED, Found

from koalapy.model.commands import CollectOutput
from koalapy.model.errors import ClusterError, KoalaError, RequestError, TransientError
from koalapy.model.identity import AttemptId, InstanceId, JobId
from koalapy.runtime.collecting.collect import collect_job
from koalapy.runtime.collecting.download import Download, _unpacked
from koalapy.runtime.collecting.plan import Item, Plan, entries, plan
from koalapy.runtime.collecting.write_output import OutputDirectories, Part, Small
from koalapy.runtime.transfers import Transfer, batches

FIRST, SECOND = AttemptId(JobId(7), 0, 1), AttemptId(JobId(7), 1, 2)


def file(path: str, size: int = 1) -> Found:
    return Found(path, FILE, size, 0o644, 5)


def directory(path: str) -> Found:
    return Found(path, DIRECTORY, 0, 0o755)


def planned(paths: list[str], first: list[Found], second: list[Found], to: dict[str, str] | None = None) -> Plan:
    command = CollectOutput(
        job=JobId(7), sources=(), paths=tuple(paths), directory="/home/me", to=tuple((to or {}).items())
    )
    return plan(command, [("vu", FIRST, first), ("delft", SECOND, second)])


def targets(found: Plan) -> dict[str, int]:
    """The component whose file goes to each destination."""
    return {str(item.target): item.attempt.component for item in found.items}


def test_of_files_with_one_destination_the_first_component_s_is_collected_and_the_other_noted() -> None:
    found = planned(
        ["out", "x"], [directory("out"), file("out/a")], [directory("out"), file("out/a"), file("out/b"), file("x")]
    )
    assert targets(found) == {"/home/me/out": 0, "/home/me/out/a": 0, "/home/me/out/b": 1, "/home/me/x": 1}
    assert found.notes == ("Not brought, since an earlier component's file has the same place: out/a of component 1.",)
    assert found.missing == ()


def test_distinct_destinations_keep_the_files_of_all_components() -> None:
    found = planned(["a"], [file("a")], [file("a")], {"a": "{job}/{component}-{cluster}"})
    assert targets(found) == {"/home/me/7/0-vu/a": 0, "/home/me/7/1-delft/a": 1}
    assert targets(planned(["a"], [file("a")], [], {"a": "/scratch"})) == {"/scratch/a": 0}


def test_a_file_is_not_placed_below_another_component_s_file() -> None:
    found = planned(["a"], [file("a")], [directory("a"), file("a/b")])
    assert targets(found) == {"/home/me/a": 0}
    assert "a/b of component 1" in found.notes[0]


def test_a_missing_name_is_an_error_and_an_unmatched_pattern_a_note() -> None:
    refused = Found("pipe", REFUSED, why="is neither a plain file nor a directory")
    found = planned(["none", "no*", "pipe"], [refused], [])
    assert found.missing == ("none", "pipe (is neither a plain file nor a directory)")
    assert found.notes == ("Nothing matches no*.",)


HOSTILE = ["../x", "/etc/passwd", "a/../../x", "a//b", "", ".", "..", "x\0y", ".bashrc", "other", "x/result"]


@pytest.mark.parametrize("path", HOSTILE)
def test_a_listing_with_an_unrequested_path_is_refused(path: str) -> None:
    with pytest.raises(KoalaError) as refused:
        planned(["result*"], [file(path)], [])
    assert refused.value.reason.code == "bad_listing"
    with pytest.raises(KoalaError):
        planned(["result*"], [Found(path, REFUSED, why="is a link")], [])


@given(st.text())
def test_every_accepted_path_stays_below_the_job_s_directory(path: str) -> None:
    try:
        found = planned(["**", "x"], [file(path)], [])
    except KoalaError:
        return
    for item in found.items:
        assert os.path.normpath(item.target).startswith("/home/me/")


@pytest.mark.parametrize(
    "line", [b"{}", b"[1]", b"[]", b'["a","file",-1,0,0,""]', b'["a","link",0,0,0,""]', b"\xff", b'[1,"file",0,0,0,""]']
)
def test_an_invalid_listing_is_refused(line: bytes) -> None:
    with pytest.raises(ClusterError):
        list(entries([line + b"\n"]))


def test_a_listing_is_read_from_any_pieces_and_is_bounded() -> None:
    lines = b"".join(json.dumps(list(file(f"f\n{n}"))).encode() + b"\n" for n in range(30))
    cut = [lines[at : at + 7] for at in range(0, len(lines), 7)]
    assert [found.path for found in entries(cut)] == [f"f\n{n}" for n in range(30)]
    with pytest.raises(RequestError, match="More than"):
        list(entries([lines] * 4000))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30))
def test_a_batch_is_full_within_each_of_its_limits(items: list[tuple[int, int]]) -> None:
    found = list(batches(items, (lambda item: item[0], 7), (lambda item: item[1], 5)))
    assert [item for batch in found for item in batch] == items
    sizes = [[sum(each) for each in zip(*batch, strict=True)] for batch in found]
    for batch, (first, second) in zip(found, sizes, strict=True):
        assert len(batch) == 1 or (first <= 7 and second <= 5)
    for (first, second), after in zip(sizes, found[1:], strict=False):
        assert first + after[0][0] > 7 or second + after[0][1] > 5


@settings(max_examples=50)
@given(st.lists(st.one_of(st.none(), st.binary(max_size=50)), max_size=10), st.integers(1, 40))
def test_small_files_are_unpacked_from_any_pieces(contents: list[bytes | None], cut: int) -> None:
    stream = b"".join(
        b"null\n" if data is None else json.dumps([len(data), 0o600, 3]).encode() + b"\n" + data for data in contents
    )
    pieces = iter([stream[at : at + cut] for at in range(0, len(stream), cut)])
    batch = [item(Path("/home/me"), str(number), size=50) for number in range(len(contents))]
    removed = next((number for number, data in enumerate(contents) if data is None), len(contents))
    found: list[bytes] = []
    with contextlib.ExitStack() as end:
        if removed < len(contents):
            end.enter_context(pytest.raises(TransientError, match="was taken away"))
        for _, facts, data in _unpacked(batch, pieces):
            assert (facts.size, facts.mode, facts.mtime_ns) == (len(data), 0o600, 3)
            found.append(data)
    assert found == contents[:removed]


# ---- directories


def item(base: Path, path: str, size: int = 1) -> Item:
    return Item("vu", FIRST, file(path, size), base, base / path)


@pytest.fixture
def directories() -> Iterator[OutputDirectories]:
    with OutputDirectories(InstanceId("abcde")) as made:
        yield made


def test_no_directory_is_created_through_a_link_that_leads_out(tmp_path: Path, directories: OutputDirectories) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(RequestError) as refused:
        directories.make_directories([item(tmp_path / "home", "fine/x"), item(tmp_path / "home", "link/deep/x")])
    assert refused.value.reason.code == "leads_out"
    assert os.listdir(tmp_path / "home") == ["link"]
    assert os.listdir(tmp_path / "outside") == []


@pytest.mark.parametrize("leads", ["real", "./real/../real", "other/../real", "{base}/real", "{base}/via/real"])
def test_a_link_to_a_directory_below_the_job_is_followed(
    tmp_path: Path, directories: OutputDirectories, leads: str
) -> None:
    for name in ("real", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "via").symlink_to(".")
    (tmp_path / "link").symlink_to(leads.format(base=tmp_path))
    directories.make_directories([item(tmp_path, "link/x/y")])
    assert (tmp_path / "real" / "x").is_dir()


@pytest.mark.parametrize("leads", ["..", "real/../..", "link", "{base}/..", "/", "../{name}/real"])
def test_a_link_that_leads_out_or_to_itself_is_refused(
    tmp_path: Path, directories: OutputDirectories, leads: str
) -> None:
    """A link that leads out and back in is refused too, since directories above may be replaced."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(leads.format(base=tmp_path, name=tmp_path.name))
    with pytest.raises(RequestError) as refused:
        directories.make_directories([item(tmp_path, "link/x/y")])
    assert refused.value.reason.code == "leads_out"


def test_missing_disk_space_is_reported_before_any_write(tmp_path: Path, directories: OutputDirectories) -> None:
    huge = item(tmp_path, "huge", 1 << 60)
    with pytest.raises(RequestError) as refused:
        directories.check_room([huge], {})
    assert refused.value.reason.code == "no_room"
    directories.check_room([huge], {huge.target: (1 << 60) - 1})


def test_a_part_is_not_written_through_a_link(tmp_path: Path, directories: OutputDirectories) -> None:
    """Another user with write permission may place such a link; the part becomes a file of its own."""
    (tmp_path / "precious").write_text("mine")
    large, small = item(tmp_path, "x", 6), item(tmp_path, "y", 6)
    for each in (large, small):
        (tmp_path / directories.name_of_part(each)).symlink_to(tmp_path / "precious")
    with Part(directories, large) as part:
        part.write(b"theirs")
        part.become(0o600)
    Small(directories).write(small, 0o600, 0, b"theirs")
    assert (tmp_path / "precious").read_text() == "mine"
    assert (tmp_path / "x").read_text() == "theirs"


@pytest.mark.parametrize("plant", [os.link, lambda precious, there: os.mkfifo(there)], ids=["link", "fifo"])
def test_a_part_is_not_written_to_a_hard_link_or_fifo(
    tmp_path: Path, directories: OutputDirectories, plant: Callable[[Path, Path], None]
) -> None:
    (tmp_path / "precious").write_text("mine")
    large = item(tmp_path, "x", 6)
    plant(tmp_path / "precious", tmp_path / directories.name_of_part(large))
    with Part(directories, large) as part:
        part.write(b"theirs")
        part.become(0o600)
    assert (tmp_path / "precious").read_text() == "mine"
    assert (tmp_path / "x").read_text() == "theirs"


def test_a_directory_s_mode_keeps_the_owner_s_permissions(tmp_path: Path, directories: OutputDirectories) -> None:
    made = Item("vu", FIRST, Found("d", DIRECTORY, 0, 0o055), tmp_path, tmp_path / "d")
    directories.make_directories([made])
    directories.set_modes([made])
    assert (tmp_path / "d").stat().st_mode & 0o777 == 0o755


def test_the_number_of_directories_is_not_limited_by_descriptors(
    tmp_path: Path, directories: OutputDirectories
) -> None:
    """There are more directories than descriptors are kept open."""
    items = [item(tmp_path / str(base), f"{number}/x/y") for base in range(3) for number in range(40)]
    directories.make_directories(items)
    small = Small(directories)
    for each in items:
        small.write(each, 0o644, 5, b"x")
    assert not any(map(directories.is_there, items))
    small.become()
    assert all(map(directories.is_there, items))
    assert len(os.listdir("/proc/self/fd")) < 100


def test_a_directory_that_is_replaced_by_a_link_meanwhile_is_not_followed(tmp_path: Path) -> None:
    """Another process replaces the directory repeatedly while files are written."""
    (tmp_path / "outside").mkdir()
    base = tmp_path / "home"
    base.mkdir()
    swapper = subprocess.Popen(
        [sys.executable, "-c", _SWAPS, str(base), str(tmp_path / "outside")], stdout=subprocess.PIPE
    )
    assert swapper.stdout is not None
    swapper.stdout.readline()
    refused = 0
    try:
        for number in range(300):
            items = [item(base, f"d/e/{number}-{each}", 3) for each in range(4)]
            try:
                with OutputDirectories(InstanceId("abcde")) as directories:
                    directories.make_directories(items)
                    small = Small(directories)
                    for each in items[:2]:
                        small.write(each, 0o644, 5, b"abc")
                    small.become()
                    for each in items[2:]:
                        with Part(directories, each) as part:
                            part.write(b"abc")
                            part.become(0o644)
            except (OSError, RequestError):
                refused += 1
    finally:
        swapper.terminate()
        swapper.wait()
        swapper.stdout.close()
    assert list((tmp_path / "outside").rglob("*")) == []
    assert refused < 300, "no file reached its destination"


_SWAPS = """
import os, sys
base, outside = sys.argv[1:]
print("begun", flush=True)
while True:
    try:
        os.rename(base + "/d", base + "/aside")
    except OSError:
        pass
    try:
        os.symlink(outside, base + "/d")
    except OSError:
        pass
    try:
        os.unlink(base + "/d")
    except OSError:
        pass
    try:
        os.rename(base + "/aside", base + "/d")
    except OSError:
        pass
"""


# ---- limits of hostile clusters


@pytest.mark.parametrize(
    "entry",
    [
        ["a", "file", math.inf, 0, 0, ""],
        ["a", "file", 1e3, 0, 0, ""],
        ["a", "file", 1 << 63, 0, 0, ""],
        ["a", "file", "1", 0, 0, ""],
        ["a", "file", True, 0, 0, ""],
        ["a", "file", 1, -1, 0, ""],
        ["a", "file", 1, 0, 1e30, ""],
        ["a", "file", 1, 0, 1 << 63, ""],
        ["a", "file", 1, 0, 0, None],
        ["\ud800", "file", 1, 0, 0, ""],
        ["a", ["file"], 1, 0, 0, ""],
    ],
)
def test_a_listing_with_a_field_of_another_type_is_refused(entry: list[Any]) -> None:
    with pytest.raises(ClusterError):
        list(entries([json.dumps(entry).encode() + b"\n"]))


@pytest.mark.parametrize("path", ["/".join("a" * 2000), "a" * 300, "/".join(["b" * 200] * 25)])
def test_a_path_is_bounded_in_length_and_depth(path: str) -> None:
    with pytest.raises(RequestError) as refused:
        list(entries([json.dumps(list(file(path))).encode() + b"\n"]))
    assert refused.value.reason.code == "path_too_long"


@pytest.mark.parametrize("line", [b"[" * (1 << 20), b'["' + b"a" * (1 << 20)], ids=["nested", "long"])
def test_a_line_of_a_listing_is_bounded(line: bytes) -> None:
    taken = Counted(line[at : at + 65536] for at in range(0, len(line), 65536))
    with pytest.raises(ClusterError):
        list(entries(taken))
    assert taken.bytes <= 2 * 65536
    with pytest.raises(ClusterError):
        list(entries([line[:60000] + b"\n"]))


class Counted:
    """The pieces of a stream, with a count of the bytes taken."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces, self.bytes = iter(pieces), 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        piece = next(self._pieces)
        self.bytes += len(piece)
        return piece


@pytest.mark.parametrize(
    ("begins", "words"),
    [
        (b"[1152921504606846976,420,0]\n", "has grown"),
        (b"[11,420,0]\n", "has grown"),
        (b"[-1,420,0]\n", "is invalid"),
        (b"[1e3,420,0]\n", "is invalid"),
        (b"[Infinity,420,0]\n", "is invalid"),
        (b"[5,420,0,0]\n", "is invalid"),
        (b"x", "is invalid"),
    ],
)
def test_a_stream_that_exceeds_its_listing_is_refused(begins: bytes, words: str) -> None:
    endless = Counted(chain([begins], repeat(bytes(1000))))
    with pytest.raises(KoalaError, match=words):
        list(_unpacked([item(Path("/home/me"), "a", 10)], endless))
    assert endless.bytes <= 2000


def test_a_stream_with_more_files_than_requested_is_refused() -> None:
    with pytest.raises(ClusterError, match="more than was asked for"):
        list(_unpacked([item(Path("/home/me"), "a")], iter([b"[1,420,0]\na", b"[1,420,0]\nb"])))


def test_a_stream_that_breaks_off_is_an_error() -> None:
    for cut in ([b"[5,384,0]\nab"], [b"[5,38"], []):
        with pytest.raises(ClusterError, match="broke off"):
            list(_unpacked([item(Path("/home/me"), "a", 5)], iter(cut)))


class Hostile:
    """A cluster that announces files of `size` bytes, and sends zeros without an end."""

    def __init__(self, size: int) -> None:
        self._size, self.sent = size, 0

    def list_files(self, attempt: AttemptId, patterns: Sequence[str]) -> Iterator[bytes]:
        yield json.dumps(list(file("a", self._size))).encode() + b"\n"

    def fetch(
        self, attempt: AttemptId, where: str, path: str = "", offset: int = 0, *, ended: Callable[[Fetched], None]
    ) -> Iterator[bytes]:
        return self._zeros()

    def fetch_many(self, attempt: AttemptId, paths: Sequence[str], ended: Callable[[Fetched], None]) -> Iterator[bytes]:
        return chain([b"[%d,420,0]\n" % self._size], self._zeros())

    def read_ends(self, attempt: AttemptId, where: str, most: int) -> Iterator[bytes]:
        return self._zeros()

    def _zeros(self) -> Iterator[bytes]:
        while True:
            self.sent += 65536
            yield bytes(65536)


@pytest.mark.parametrize("size", [2_000_000, 10], ids=["large", "small"])
def test_a_file_longer_than_listed_is_not_written_and_leaves_no_part(tmp_path: Path, size: int) -> None:
    cluster = Hostile(size)
    command = CollectOutput(job=JobId(7), sources=(("vu", FIRST),), paths=("a",), directory=str(tmp_path))
    download = Download({"vu": cluster}, Transfer(JobId(7), None, "", "out", lambda: None))
    with pytest.raises(KoalaError):
        list(collect_job(InstanceId("abcde"), command, download))
    assert cluster.sent <= 3 * (size + 2 * 65536), "a try took more than was listed"
    assert os.listdir(tmp_path) == []
    with OutputDirectories(InstanceId("abcde")) as directories, Part(directories, item(tmp_path, "a", 10)) as part:
        assert part.write(bytes(10))
        assert not part.write(b"x")
        part.drop()


def test_a_part_that_is_longer_than_its_file_is_started_again(tmp_path: Path, directories: OutputDirectories) -> None:
    shorter = item(tmp_path, "x", 3)
    (tmp_path / directories.name_of_part(shorter)).write_bytes(b"too long")
    with Part(directories, shorter) as part:
        assert part.size == 0
        part.drop()


def test_disk_space_is_checked_during_a_transfer(tmp_path: Path, directories: OutputDirectories) -> None:
    with Part(directories, item(tmp_path, "x", 1 << 60)) as part, pytest.raises(RequestError) as refused:
        part.write(b"some")
    assert refused.value.reason.code == "no_room"
    assert os.listdir(tmp_path) == []
