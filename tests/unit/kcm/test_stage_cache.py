"""The staging cache: which files it keeps, continues and refuses."""

import hashlib
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koalapy_adapters.errors import BatchError, ClusterError, RequestError, TransientError
from koalapy_adapters.kcm.shared_directory.stage_cache import KEPT, PARTIAL_KEPT, Stage

DATA = bytes(range(256)) * 1000


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(str(tmp_path), "here")


def receive_part(stage: Stage, data: bytes, offset: int = 0, upto: int | None = None) -> None:
    """Receive the bytes from `offset` to `upto` over a connection that is lost there."""
    arrival = stage.arrival(digest_of(DATA), len(DATA), offset)
    try:
        arrival.open()
        arrival.write(data[offset:upto])
        arrival.finish()
    finally:
        arrival.close()


def test_a_transfer_that_was_cut_continues_where_it_stopped(stage: Stage, tmp_path: Path) -> None:
    with pytest.raises(TransientError):
        receive_part(stage, DATA, upto=100_000)
    assert stage.wanted([[digest_of(DATA), len(DATA)]])["missing"] == [[0, 100_000]]
    receive_part(stage, DATA, offset=100_000)
    assert (tmp_path / digest_of(DATA)).read_bytes() == DATA
    assert stage.wanted([[digest_of(DATA), len(DATA)]])["missing"] == []
    assert os.listdir(tmp_path) == [digest_of(DATA)]


def test_a_part_with_another_content_is_refused_at_the_end(stage: Stage, tmp_path: Path) -> None:
    with pytest.raises(TransientError):
        receive_part(stage, bytes(len(DATA)), upto=100_000)
    with pytest.raises(ClusterError) as damaged:
        receive_part(stage, DATA, offset=100_000)
    assert damaged.value.code == "stage_damaged"
    assert os.listdir(tmp_path) == []


def test_two_clusters_of_one_directory_keep_separate_parts(stage: Stage, tmp_path: Path) -> None:
    with pytest.raises(TransientError):
        receive_part(stage, DATA, upto=100_000)
    assert Stage(str(tmp_path), "there").wanted([[digest_of(DATA), len(DATA)]])["missing"] == [[0, 0]]


def test_a_missing_part_is_an_error(stage: Stage) -> None:
    with pytest.raises(TransientError) as moved:
        receive_part(stage, DATA, offset=5)
    assert moved.value.code == "stage_moved"


def test_more_bytes_than_announced_are_refused(stage: Stage) -> None:
    with pytest.raises(RequestError):
        receive_part(stage, DATA + b"x")


def test_a_link_in_the_cache_is_not_followed(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    os.symlink(tmp_path / "precious", tmp_path / f"{digest_of(DATA)}.here.part")
    with pytest.raises(OSError, match="symbolic"):
        receive_part(stage, DATA)
    assert (tmp_path / "precious").read_text() == "mine"


@settings(max_examples=60, deadline=None)
@given(contents=st.lists(st.binary(max_size=300), max_size=20), cut=st.integers(1, 700))
def test_small_files_are_read_from_one_stream_however_it_is_cut(
    contents: list[bytes], cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directory = tmp_path_factory.mktemp("stage")
    batch = Stage(str(directory), "here").batch([[digest_of(each), len(each)] for each in contents], "me")
    stream = b"".join(contents)
    for start in range(0, len(stream), cut):
        batch.write(stream[start : start + cut])
    batch.finish()
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == {digest_of(c): c for c in contents}


def test_a_damaged_small_file_spoils_no_other(stage: Stage, tmp_path: Path) -> None:
    batch = stage.batch([[digest_of(b"abc"), 3], [digest_of(b"def"), 3]], "me")
    batch.write(b"axcdef")
    with pytest.raises(ClusterError, match=digest_of(b"abc")):
        batch.finish()
    assert os.listdir(tmp_path) == [digest_of(b"def")]


@pytest.mark.parametrize("data", [b"abc", b"abcdefg"])
def test_a_stream_of_another_length_is_refused(stage: Stage, data: bytes) -> None:
    batch = stage.batch([[digest_of(b"abc"), 3], [digest_of(b"def"), 3]], "me")
    batch.write(data)
    with pytest.raises(BatchError):
        batch.finish()


@pytest.mark.parametrize("digest", ["", "..", "../" + 61 * "0", 63 * "0", 64 * "G", 64 * "0" + "\n"])
def test_only_a_hash_names_a_file(stage: Stage, digest: str) -> None:
    with pytest.raises(RequestError):
        stage.wanted([[digest, 1]])
    with pytest.raises(RequestError):
        stage.arrival(digest, 1, 0)
    with pytest.raises(RequestError):
        stage.batch([[digest, 1]], "me")


def test_requested_files_are_kept_and_unused_ones_removed(stage: Stage, tmp_path: Path) -> None:
    used, unused, part, old_part = digest_of(b"a"), digest_of(b"b"), f"{64 * '1'}.here.part", f"{64 * '2'}.here.part"
    for name in (used, unused, part, old_part):
        (tmp_path / name).write_bytes(b"?")
        os.utime(tmp_path / name, (0, 0))
    os.utime(tmp_path / part, (PARTIAL_KEPT, PARTIAL_KEPT))
    assert stage.wanted([[used, 1]])["missing"] == []
    os.utime(tmp_path / unused, (1, 1))
    stage.clean(now=PARTIAL_KEPT + 10)
    assert set(os.listdir(tmp_path)) == {used, unused, part}
    stage.clean(now=KEPT + 10)
    assert set(os.listdir(tmp_path)) == {used}


def test_the_free_space_is_reported(stage: Stage) -> None:
    reported = stage.wanted([])
    assert 0 < reported["free"] <= reported["total"]
