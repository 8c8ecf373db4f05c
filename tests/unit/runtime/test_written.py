"""The output of jobs, collected at their end: bounded, whole or not at all, and read without its cluster."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engine_play import Play, component
from hypothesis import given
from hypothesis import strategies as st
from koalapy_adapters.errors import RequestError as Refusal
from koalapy_adapters.kcm.shared_directory.output import Outputs

from koalapy.coallocation.pruning import COLLECTING, judge
from koalapy.link.stretches import Stretches
from koalapy.model.commands import CollectOutput, OutputKind
from koalapy.model.errors import ClusterError, Reason, RequestError, TransientError
from koalapy.model.events import CancelRequested, OutputKept, PruneRequested
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Job, KeptOutput
from koalapy.model.request import KeepOutput
from koalapy.model.states import JobState
from koalapy.runtime.collecting.download import Download
from koalapy.runtime.collecting.written import StreamCollection, WrittenStore
from koalapy.runtime.transfers import Transfer

ATTEMPT = AttemptId(JobId(7), 0, 1)
HOME = KeepOutput.HOME


def attempt_of(directory: Path, *written: bytes) -> Path:
    """An attempt's directory, with what each rank wrote to its standard output."""
    (directory / "output").mkdir(parents=True)
    for rank, data in enumerate(written):
        (directory / "output" / f"{rank}.out").write_bytes(data)
    return directory


def ends(directory: Path, most: int) -> list[bytes]:
    """Return what a KCM sends of an attempt's output, bounded."""
    source = Outputs(str(directory), "output", [], most)
    source.open()
    return list(iter(lambda: source.read(1 << 16, True), b""))


def by_rank(pieces: list[bytes]) -> tuple[dict[int, bytes], int]:
    stretches, found = Stretches(bounded=True), dict[int, bytes]()
    for piece in pieces:
        for rank, data in stretches.feed(piece):
            found[rank] = found.get(rank, b"") + data
    return found, stretches.omitted_bytes


# ---- what a KCM sends


@given(st.lists(st.integers(0, 300_000), min_size=1, max_size=4), st.integers(2, 200_000))
def test_of_a_long_file_its_begin_and_its_end_come(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], most: int
) -> None:
    written = [bytes(index % 251 for index in range(size)) for size in sizes]
    found, omitted_bytes = by_rank(ends(attempt_of(tmp_path_factory.mktemp("a") / "t", *written), most))
    missing = 0
    for rank, data in enumerate(written):
        if len(data) <= most:
            assert found.get(rank, b"") == data
        else:
            missing += len(data) - most
            note = b"\n[koala: %d bytes were left out here]\n" % (len(data) - most)
            assert found[rank] == data[: most // 2] + note + data[len(data) - (most - most // 2) :]
    assert omitted_bytes == missing


@pytest.mark.parametrize("line", [b"[0,5,7]\nabcde", b"[0,5,1,1]\nabcde", b"[0,5,-1]\nabcde", b"[0,5,1e3]\nabcde"])
def test_nothing_is_left_out_where_all_was_asked_for(line: bytes) -> None:
    """A position would be wrong for a followed stream."""
    with pytest.raises(ClusterError):
        list(Stretches().feed(line))
    if line.startswith(b"[0,5,7]"):
        assert [rank for rank, _ in Stretches(bounded=True).feed(line)] == [0, 0]
    else:
        with pytest.raises(ClusterError):
            list(Stretches(bounded=True).feed(line))


# ---- at home


@pytest.fixture
def store(tmp_path: Path) -> WrittenStore:
    return WrittenStore(tmp_path / "home", 1000)


def out_of_reach(cluster: str, *_: object) -> Iterator[bytes]:
    raise TransientError("not_connected", f"{cluster} is not connected.", "")
    yield b""


def read(
    store: WrittenStore,
    from_cluster: object = out_of_reach,
    stream: str = "output",
    positions: dict[int, int] | None = None,
) -> dict[int, bytes]:
    pieces = store.first(from_cluster)("here", ATTEMPT, stream, positions or {}, False)  # type: ignore[arg-type]
    return by_rank(list(pieces))[0]


def test_what_is_at_home_is_read_there(store: WrittenStore) -> None:
    with pytest.raises(TransientError):
        read(store)
    assert store.write(ATTEMPT, "output", iter([b"[0,3]\nab", b"c[2,1]\nd"]), 1000) == (4, 0)
    assert store.write(ATTEMPT, "errors", iter([]), 1000) == (0, 0)
    assert read(store) == {0: b"abc", 2: b"d"}
    assert read(store, stream="errors") == {}


def test_who_has_read_some_of_it_reads_the_rest_at_home(store: WrittenStore) -> None:
    """A cut file has no such positions: its cluster is asked, or the reason why it cannot be asked is reported."""
    store.write(ATTEMPT, "output", iter([b"[0,3]\nabc[1,2]\nde[0,3]\nfgh"]), 1000)
    assert read(store, positions={0: 4, 1: 2}) == {0: b"gh"}
    store.write(ATTEMPT, "errors", iter([b"[0,3]\nabc[0,1,9]\nd"]), 1000)
    with pytest.raises(TransientError):
        read(store, stream="errors", positions={0: 2})


def test_of_what_was_cut_all_is_read_while_its_cluster_is_there(store: WrittenStore) -> None:
    store.write(ATTEMPT, "output", iter([b"[0,3]\nabc[0,1,9]\nd"]), 1000)
    note = b"\n[koala: 9 bytes were left out here]\n"
    assert read(store) == {0: b"abc" + note + b"d"}

    def from_cluster(*_: object) -> Iterator[bytes]:
        yield b""
        yield b"[0,13]\nabc123456789d"

    assert read(store, from_cluster) == {0: b"abc123456789d"}


def test_output_that_breaks_off_is_not_there(store: WrittenStore) -> None:
    def breaks_off() -> Iterator[bytes]:
        yield b"[0,3]\nabc"
        raise TransientError("lost", "The connection was lost.", "")

    with pytest.raises(TransientError):
        store.write(ATTEMPT, "output", breaks_off(), 1000)
    assert store.find(ATTEMPT, "output") is None
    assert [*(store.directory / "7").iterdir()] == []


def test_a_cluster_that_sends_more_than_was_asked_for_fills_no_disk(store: WrittenStore) -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b"[0,60000]\n" + bytes(60_000)

    with pytest.raises(RequestError) as caught:
        store.write(ATTEMPT, "output", endless(), 1000)
    assert caught.value.reason.code == "bad_stream"
    assert store.find(ATTEMPT, "output") is None


def test_where_there_is_no_room_it_is_tried_again(store: WrittenStore, tmp_path: Path) -> None:
    (tmp_path / "home").write_text("no directory")
    with pytest.raises(TransientError) as caught:
        store.write(ATTEMPT, "output", iter([b"[0,1]\na"]), 1000)
    assert caught.value.reason.code == "no_room"


def test_what_is_removed_of_a_job_is_gone(store: WrittenStore) -> None:
    store.write(ATTEMPT, "output", iter([b"[0,1]\na"]), 1000)
    store.remove(JobId(7))
    store.remove(JobId(7))
    assert os.listdir(store.directory) == []


class Cluster:
    """A link to one cluster, by what a KCM reads output with."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.lost, self.asked = directory, False, 0

    def read_ends(self, attempt: AttemptId, where: str, most: int) -> Iterator[bytes]:
        self.asked += 1
        if self.lost:
            raise TransientError("not_connected", "It is not connected.", "")
        source = Outputs(str(self.directory / str(attempt)), where, [], most)
        try:
            source.open()
        except Refusal as error:
            raise RequestError(error.code, error.message, "") from error
        yield from iter(lambda: source.read(1 << 16, True), b"")


def over(play: Play, *clusters: str) -> tuple[Job, CollectOutput]:
    """A job that has run there and is over, and what the engine commands then."""
    job = play.submit(*(component(2, cluster) for cluster in clusters), keep_output=HOME)
    play.run(job)
    for attempt in play.attempts(job):
        play.end(attempt)
    play.obey()
    [command] = [each for each in play.pending if isinstance(each, CollectOutput)]
    return play.job(job), command


def test_another_try_brings_what_is_left(store: WrittenStore, tmp_path: Path) -> None:
    job, command = over(Play(), "alpha", "beta")
    links = {name: Cluster(tmp_path / name) for name in ("alpha", "beta")}
    for (cluster, attempt), data in zip(command.sources, (b"first\n", b"x" * 5000), strict=True):
        attempt_of(tmp_path / cluster / str(attempt), data, data)
    collection = StreamCollection(store, job, command)
    download = Download(links, Transfer(job.id, None, "", "out", lambda: None))  # type: ignore[arg-type]
    links["beta"].lost = True
    with pytest.raises(TransientError):
        list(collection.steps(download))
    asked, links["beta"].lost = links["alpha"].asked, False
    list(collection.steps(download))
    assert links["alpha"].asked == asked
    (_, first), (_, second) = command.sources
    shown = {}
    for attempt in (first, second):
        shown[attempt], _ = by_rank(list(store.first(out_of_reach)("gone", attempt, "output", {}, False)))
    assert shown[first] == {0: b"first\n", 1: b"first\n"}
    note = b"\n[koala: 4500 bytes were left out here]\n"
    assert shown[second] == dict.fromkeys((0, 1), b"x" * 250 + note + b"x" * 250), "each rank has its share"
    assert collection.omitted_bytes == 9000


def test_a_directory_that_is_not_there_is_reported(store: WrittenStore, tmp_path: Path) -> None:
    job, command = over(Play(), "alpha")
    (tmp_path / "alpha").mkdir()
    collection = StreamCollection(store, job, command)
    links: Any = {"alpha": Cluster(tmp_path / "alpha")}
    list(collection.steps(Download(links, Transfer(job.id, None, "", "out", lambda: None))))
    assert collection.notes == ["Component 0 has no directory on its cluster."]


# ---- the job's record


def test_a_job_that_keeps_its_output_is_over_at_once_and_reports_when_it_is_home() -> None:
    play = Play()
    job, command = over(play, "alpha", "beta")
    assert (job.state, job.kept_output) == (JobState.DONE, KeptOutput.PENDING)
    assert command.kind is OutputKind.STANDARD_STREAMS
    assert [cluster for cluster, _ in command.sources] == ["alpha", "beta"]
    play.apply(OutputKept(job=job, size=7))
    play.apply(OutputKept(job=play.job(job.id), reason=Reason("x", "request", "Not again.", "")))
    assert play.job(job.id).kept_output is KeptOutput.KEPT
    assert play.kinds.count("output_kept") == 1
    assert play.engine.job(job.id) is None, "it is forgotten as before"


def test_output_that_cannot_come_is_lost() -> None:
    play = Play()
    job, _ = over(play, "alpha")
    play.apply(OutputKept(job=job, reason=Reason("no_such_cluster", "request", "It is gone.", "")))
    assert play.job(job.id).kept_output is KeptOutput.LOST


def test_a_cancelled_job_keeps_its_output_too_and_one_that_never_ran_has_none() -> None:
    play = Play()
    never, job = play.submit(component(40), keep_output=HOME), play.submit(component(2, "alpha"), keep_output=HOME)
    play.run(job)
    play.apply(CancelRequested(job), CancelRequested(never))
    play.obey()
    assert play.job(job).kept_output is KeptOutput.PENDING
    assert (play.job(never).state.final, play.job(never).kept_output) == (True, KeptOutput.NONE)


@pytest.mark.parametrize("keep", [None, KeepOutput.CLUSTER])
def test_of_a_job_that_does_not_keep_its_output_none_is_asked_for(keep: KeepOutput | None) -> None:
    play = Play()
    job = play.submit(component(2, "alpha"), keep_output=keep)
    play.run(job)
    play.end(play.attempts(job)[0])
    play.obey()
    assert play.job(job).kept_output is KeptOutput.NONE
    assert not [each for each in play.pending if isinstance(each, CollectOutput)]


def test_what_is_not_home_yet_is_not_pruned() -> None:
    play = Play()
    job, _ = over(play, "alpha")
    asked = PruneRequested(work=(job,), before=play.now, records=True)
    assert [why for why, _ in judge(play.engine.core, asked).kept] == [COLLECTING]
    play.apply(OutputKept(job=job))
    asked = PruneRequested(work=(play.job(job.id),), before=play.now, records=True)
    assert [each.id for each in judge(play.engine.core, asked).ready] == [job.id]
