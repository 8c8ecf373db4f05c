"""Output that is followed: whole lines of many processes, each once and in order, however it comes and breaks off."""

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from koalapy_adapters.errors import RequestError as Refusal
from koalapy_adapters.kcm.shared_directory.output import Outputs

from koalapy.api.files import frame
from koalapy.client.calls import NotReachable
from koalapy.client.following import FollowedLines, Reconnecting
from koalapy.common.lines import Interleaving, Writer
from koalapy.link.stretches import Stretches
from koalapy.model.attempt import Attempt
from koalapy.model.errors import ClusterError, OurError, TransientError
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Job
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.states import JobState
from koalapy.model.units import Instant
from koalapy.runtime.following import Ended, Followed, OutputEnds, Stretchwise, as_text, follow_all, read_all
from koalapy.views import fields


def request(*processors: int) -> Request:
    components = tuple(ComponentRequest(processors=count, executable="/bin/true") for count in processors)
    return Request(name="test", directory="/", components=components)


def job(*processors: int, state: JobState = JobState.RUNNING, ended: int = 0) -> Job:
    """A job whose components run on clusters c0, c1, …; the first `ended` of them have ended."""
    asked = request(*processors)
    attempts = tuple(
        Attempt(
            id=AttemptId(JobId(7), index, 1),
            request=each,
            cluster=f"c{index}",
            started_at=Instant(1),
            ended_at=Instant(2) if index < ended or state.final else None,
        )
        for index, each in enumerate(asked.components)
    )
    return Job(
        id=JobId(7), owner="me", request=asked, state=state, position=1, submitted_at=Instant(1), attempts=attempts
    )


def lines_of(text: bytes) -> list[bytes]:
    """Without their ends; a last one that is empty is none."""
    found = re.split(rb"\r\n|\r|\n", text)
    return found[:-1] if not found[-1] else found


def by_writer(shown: bytes) -> dict[Writer, list[bytes]]:
    """The lines that each has written, out of a stream of prefixed lines."""
    found: dict[Writer, list[bytes]] = {}
    for line in lines_of(shown):
        label, _, rest = line.partition(b"] ")
        component, rank = map(int, label.removeprefix(b"[").split(b"."))
        found.setdefault(Writer(component, rank), []).append(rest)
    return found


# ---- lines


TEXT = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r"]), max_size=12).map(b"".join)
WRITERS = [Writer(component, rank) for component in (0, 1) for rank in (0, 1, 10)]


@settings(max_examples=200)
@given(st.lists(TEXT, min_size=6, max_size=6), st.integers())
def test_lines_are_whole_once_and_in_order_however_they_are_cut(texts: list[bytes], seed: int) -> None:
    dice = Random(seed)
    left = dict(zip(WRITERS, texts, strict=True))
    lines, shown = Interleaving(prefix=True), b""
    while any(left.values()):
        writer = dice.choice([each for each, text in left.items() if text])
        cut = dice.randint(1, len(left[writer]))
        piece, left[writer] = left[writer][:cut], left[writer][cut:]
        shown += lines.take(writer, piece)
    shown += lines.end(0) + lines.end(1)
    written = {writer: lines_of(text) for writer, text in zip(WRITERS, texts, strict=True)}
    assert by_writer(shown) == {writer: found for writer, found in written.items() if found}


def test_two_processes_never_share_a_line() -> None:
    lines = Interleaving(prefix=False)
    assert lines.take(Writer(0, 0), b"one\ntw") == b"one\n"
    assert lines.take(Writer(0, 1), b"three\n") == b"three\n"
    assert lines.take(Writer(0, 0), b"o\nlast") == b"two\n"
    assert lines.take(Writer(1, 0), b"end") == b""
    assert lines.end(0) == b"last"
    assert lines.end(1) == b"\nend"


def test_progress_bars_are_shown_as_they_are_written() -> None:
    lines = Interleaving(prefix=True)
    assert lines.take(Writer(0, 0), b"10%\r20%") == b"[0.0] 10%\r"
    assert lines.take(Writer(0, 1), b"x\r\n") == b"\n[0.1] x\r\n"
    assert lines.take(Writer(0, 0), b"\r") == b""
    assert lines.take(Writer(0, 0), b"\n") == b"[0.0] 20%\r\n"


def test_of_one_process_alone_nothing_is_held() -> None:
    lines = Interleaving(prefix=False, alone=True)
    assert lines.take(Writer(0, 0), b"Go on? ") == b"Go on? "
    prefixed = Interleaving(prefix=True, alone=True)
    assert (
        prefixed.take(Writer(0, 0), b"Go on? ") + prefixed.take(Writer(0, 0), b"yes\nso")
        == b"[0.0] Go on? yes\n[0.0] so"
    )


def test_what_is_held_of_lines_is_bounded() -> None:
    lines, shown = Interleaving(prefix=False), 0
    for number in range(40):
        for rank in range(64):
            shown += len(lines.take(Writer(0, rank), bytes(1 << 16)))
        if number % 8 == 0:
            assert sum(map(len, lines._held.values())) <= 16 << 20
    assert shown + len(lines.end(0)) >= 40 * 64 << 16


@pytest.mark.parametrize(
    "sent",
    [
        b"x" * 100,
        b"[1]\n",
        b"[-1,5]\nabcde",
        b"[0,0]\n",
        b"[0,70000]\n",
        b"[0,1e3]\n",
        b"[true,1]\n",
        b"{}\n",
        b"[" * 63 + b"\n",
    ],
)
def test_what_is_no_stretch_is_refused(sent: bytes) -> None:
    with pytest.raises(ClusterError):
        list(Stretches().feed(sent))


# ---- one attempt's files, and reading on


class Files:
    """One attempt's output, in files that its ranks write, read by what a KCM reads them with.

    `cut`: after how many bytes the connection breaks next, None for never. `over`: it writes no more.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "output").mkdir(parents=True)
        self.cut: Callable[[], int | None] = lambda: None
        self.over = False
        self.before: Callable[[], None] = lambda: None

    def write(self, rank: int, data: bytes) -> None:
        with (self.directory / "output" / f"{rank}.out").open("ab") as file:
            file.write(data)

    def read(self, positions: Mapping[int, int], follow: bool) -> Iterator[bytes]:
        source = Outputs(str(self.directory), "output", [[rank, at] for rank, at in positions.items()])
        source.open()
        left = self.cut()
        while True:
            over = self.over
            while data := source.read(1 << 16, False):
                if left is not None and len(data) > left:
                    yield data[:left]
                    raise TransientError("lost", "The connection was lost.", "")
                left = None if left is None else left - len(data)
                yield data
            if over or not follow:
                return
            self.before()
            yield b""


@settings(max_examples=100, deadline=None)
@given(st.integers())
def test_every_line_comes_once_over_any_cuts(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """Several ranks write lines of any length, by pieces; the connection breaks at any byte, within frames too."""
    dice = Random(seed)
    files = Files(tmp_path_factory.mktemp("attempt"))
    texts = {
        rank: b"".join(b"%d %d %s\n" % (rank, line, b"x" * dice.randint(0, 30)) for line in range(dice.randint(0, 30)))
        for rank in range(3)
    }
    left = dict(texts)

    def write() -> None:
        for rank, text in left.items():
            cut = dice.randint(0, 60)
            files.write(rank, text[:cut])
            left[rank] = text[cut:]
        files.over = not any(left.values())

    files.before = write
    files.cut = lambda: dice.choice([None, dice.randint(0, 200)])
    source = Stretchwise(lambda *asked: files.read(asked[3], asked[4]), "c0", AttemptId(JobId(7), 0, 1), "output")
    lines, shown = Interleaving(prefix=True), b""
    while True:
        try:
            for rank, data in source.pieces(follow=True):
                shown += lines.take(Writer(0, rank), data)
            break
        except TransientError:
            write()
    shown += lines.end(0)
    assert by_writer(shown) == {Writer(0, rank): lines_of(text) for rank, text in texts.items() if text}
    assert all(line.startswith(b"[0.%s] %s " % (line[3:4], line[3:4])) for line in shown.splitlines())


def test_what_a_program_puts_in_the_place_of_its_output_holds_nobody_up(tmp_path: Path) -> None:
    """A FIFO without a writer would be waited for; the files of others are read."""
    files = Files(tmp_path / "attempt")
    os.mkfifo(tmp_path / "attempt" / "output" / "0.out")
    files.write(1, b"fine\n")
    assert b"".join(files.read({}, False)) == b"[1,5]\nfine\n"


def test_where_there_is_nothing_to_read(tmp_path: Path) -> None:
    with pytest.raises(Refusal):
        Outputs(str(tmp_path), "nothing", [])


# ---- a job


class Grid:
    """Components' files by cluster; `look` is how the job is."""

    def __init__(self, root: Path, *processors: int) -> None:
        self.files = {f"c{index}": Files(root / str(index)) for index in range(len(processors))}
        self.job = job(*processors)
        self.lost: set[str] = set()

    def read(
        self, cluster: str, attempt: AttemptId, stream: str, positions: Mapping[int, int], follow: bool
    ) -> Iterator[bytes]:
        for piece in self.files[cluster].read(positions, follow):
            if cluster in self.lost:
                raise TransientError("lost", "The connection was lost.", "")
            yield piece

    def end(self) -> None:
        for each in self.files.values():
            each.over = True
        self.job = job(*[each.processors for each in self.job.request.components], state=JobState.DONE)


def begin(job: Job) -> bytes:
    """The first frame of an answer."""
    components = [[index, each.processors] for index, each in enumerate(job.request.components)]
    return json.dumps({"components": components}).encode() + b"\n"


def followed(grid: Grid, prefix: bool | None = None) -> Iterator[bytes]:
    """Return what a client shows of what koalad sends."""
    lines = FollowedLines(prefix)
    lines.feed(begin(grid.job))
    return shown_of(follow_all(grid.read, lambda: grid.job, Followed("output")), lines)


def shown_of(pieces: Iterator[Sequence[OutputEnds | Ended]], lines: FollowedLines) -> Iterator[bytes]:
    try:
        for some in pieces:
            yield lines.feed(b"".join(map(frame, some)))
    finally:
        pieces.close()  # type: ignore[attr-defined]


def until(pieces: Iterator[bytes], wanted: bytes) -> bytes:
    shown = b""
    while wanted not in shown:
        shown += next(pieces)
    return shown


def test_all_components_are_shown_as_they_write(tmp_path: Path) -> None:
    """The first is silent all the while, and the second cut off; what comes next is whole."""
    grid = Grid(tmp_path, 2, 1, 1)
    pieces = followed(grid)
    grid.files["c2"].write(0, b"of the third\n")
    assert until(pieces, b"third\n") == b"[2.0] of the third\n"
    grid.files["c1"].write(0, b"of the sec")
    grid.lost.add("c1")
    grid.files["c0"].write(1, b"of the first\nand")
    assert until(pieces, b"first\n") == b"[0.1] of the first\n"
    grid.files["c1"].write(0, b"ond\n")
    grid.lost.clear()
    assert until(pieces, b"second\n") == b"[1.0] of the second\n"
    grid.end()
    assert b"".join(pieces) == b"[0.1] and"


def test_what_a_kcm_takes_for_the_end_is_not_accepted(tmp_path: Path) -> None:
    """As when the batch system does not list a job for a moment."""
    grid = Grid(tmp_path, 1)
    grid.files["c0"].over = True
    pieces = followed(grid)
    grid.files["c0"].write(0, b"first\n")
    assert until(pieces, b"first\n") == b"first\n"
    grid.files["c0"].write(0, b"last")
    assert until(pieces, b"last") == b"last"
    grid.end()
    assert b"".join(pieces) == b""


def test_another_try_is_followed_too(tmp_path: Path) -> None:
    grid = Grid(tmp_path, 1)
    pieces = followed(grid)
    grid.files["c0"].write(0, b"of the first try")
    assert until(pieces, b"try") == b"of the first try"
    grid.files["c0"].over = True
    grid.files["c9"] = Files(tmp_path / "again")
    [first] = grid.job.present
    second = replace(first, id=AttemptId(JobId(7), 0, 2), cluster="c9")
    grid.job = replace(grid.job, attempts=(second,))
    grid.files["c9"].write(0, b"of the second\n")
    assert until(pieces, b"second\n") == b"\nof the second\n"
    grid.end()
    grid.job = replace(grid.job, attempts=(replace(second, ended_at=Instant(3)),))
    assert b"".join(pieces) == b""


def test_two_hundred_who_follow_a_flooding_cluster_see_the_output_of_another() -> None:
    """The output of the one writer has no end; no more of it is held than some pieces for each reader."""
    over = threading.Event()
    sent = [0] * 200

    def reading(follower: int) -> Callable[..., Iterator[bytes]]:
        def read(cluster: str, *_: object) -> Iterator[bytes]:
            if cluster == "c1":
                yield b"[0,6]\nquiet\n"
            while not over.is_set():
                if cluster == "c0":
                    sent[follower] += 1
                    yield b"[0,8000]\n" + b"x" * 7999 + b"\n"
                else:
                    over.wait(1)  # as a link does
                    yield b""

        return read

    running = job(1, 1)
    followers = [follow_all(reading(each), lambda: running, Followed("output")) for each in range(200)]
    try:
        shown = [0] * 200
        left = dict(enumerate(followers))
        for _ in range(100):
            for each, pieces in [*left.items()]:
                some = [piece for piece in next(pieces) if isinstance(piece, OutputEnds)]
                shown[each] += sum(piece.component == 0 for piece in some)
                if any(piece.data == b"quiet\n" for piece in some):
                    del left[each]
        assert not left
        assert all(some <= seen + 20 for some, seen in zip(sent, shown, strict=True))
    finally:
        over.set()
        for pieces in followers:
            pieces.close()  # type: ignore[attr-defined]


def test_who_leaves_leaves_no_thread(tmp_path: Path) -> None:
    grid = Grid(tmp_path, 1, 1)
    before = threading.active_count()
    pieces = followed(grid)
    next(pieces)
    assert isinstance(pieces, Iterator)
    readers = [thread for thread in threading.enumerate() if thread.name == "follow"]
    assert readers
    pieces.close()  # type: ignore[attr-defined]
    for reader in readers:
        reader.join(60)
    assert threading.active_count() <= before


def test_what_was_written_is_read_in_order(tmp_path: Path) -> None:
    grid = Grid(tmp_path, 2, 1)
    for cluster, rank, data in (("c0", 1, b"b\n"), ("c0", 0, b"a\nno end"), ("c1", 0, b"c\n")):
        grid.files[cluster].write(rank, data)
    grid.end()
    assert read(grid) == b"a\nno endb\nc\n"
    assert read(grid, prefix=True) == b"[0.0] a\n[0.0] no end\n[0.1] b\n[1.0] c\n"
    assert read(grid, component=1) == b"c\n"


def read(grid: Grid, component: int | None = None, prefix: bool = False) -> bytes:
    return b"".join(as_text(read_all(grid.read, grid.job, Followed("output", component)), prefix))


# ---- a client that comes back


@settings(max_examples=100, deadline=None)
@given(st.integers())
def test_every_line_comes_once_however_often_koalad_is_gone(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    """Two components of three ranks write; answers break off at any byte, within frames too, and each koalad is new."""
    dice = Random(seed)
    grid = Grid(tmp_path_factory.mktemp("grid"), 3, 3)
    texts = {
        writer: b"".join(
            b"%d.%d %d %s\n" % (*writer, line, b"x" * dice.randint(0, 30)) for line in range(dice.randint(0, 20))
        )
        for writer in (Writer(component, rank) for component in (0, 1) for rank in range(3))
    }
    left = dict(texts)

    def write() -> None:
        for writer, text in left.items():
            cut = dice.randint(0, 60)
            grid.files[f"c{writer.component}"].write(writer.rank, text[:cut])
            left[writer] = text[cut:]
        if not any(left.values()):
            grid.end()

    def answer() -> Iterator[bytes]:
        """Return the answer of a koalad that reads now: what it would send, in a random order of components."""
        yield begin(grid.job)
        positions: dict[tuple[int, int], dict[int, int]] = {}
        for component, attempt, rank, size in asked or ():
            positions.setdefault((component, attempt), {})[rank] = size
        while True:
            is_over = grid.job.state.final
            for each in dice.sample(grid.job.present, 2):
                key = each.id.component, each.id.number
                source = Stretchwise(grid.read, each.cluster, AttemptId(JobId(7), *key), "output", positions)
                for rank, data in source.pieces(follow=False):
                    yield frame(OutputEnds(*key, rank, data))
                positions[key] = source.positions
            if is_over:
                break
            write()
        yield (
            b"".join(frame(Ended(each.id.component, each.id.number)) for each in grid.job.present) + b'{"end": null}\n'
        )

    lines, shown = FollowedLines(), b""
    while not lines.has_ended:
        asked, bound = lines.restart(), dice.choice([None, dice.randint(0, 400)])
        for piece in answer():
            shown += lines.feed(piece if bound is None else piece[:bound])
            bound = None if bound is None else bound - len(piece)
            if bound is not None and bound <= 0:
                break
        write()
    assert by_writer(shown) == {writer: lines_of(text) for writer, text in texts.items() if text}
    assert all(line.startswith(b"[%s] %s " % (line[1:4], line[1:4])) for line in shown.splitlines())


def test_koalad_goes_on_where_it_is_asked_to(tmp_path: Path) -> None:
    """The output is that of one try of a component; another try's is another file."""
    grid = Grid(tmp_path, 2, 1)
    for cluster, rank, data in (("c0", 0, b"one\ntwo\n"), ("c0", 1, b"three\n"), ("c1", 0, b"four\n")):
        grid.files[cluster].write(rank, data)
    grid.end()
    positions = {(0, 1): {0: 4, 1: 6}, (1, 2): {0: 3}}
    found = [each for some in follow_all(grid.read, lambda: grid.job, Followed("output"), positions) for each in some]
    assert sorted(each for each in found if isinstance(each, OutputEnds)) == [
        OutputEnds(0, 1, 0, b"two\n"),
        OutputEnds(1, 1, 0, b"four\n"),
    ]
    assert sorted(each for each in found if isinstance(each, Ended)) == [Ended(0, 1), Ended(1, 1)]


def test_the_last_line_of_a_try_is_ended_by_the_next_one(tmp_path: Path) -> None:
    """Also if the next one began while koalad was away, which then reports no end."""
    lines = FollowedLines(prefix=False)
    answer = begin(job(2)) + frame(OutputEnds(0, 1, 1, b"of the first try"))
    assert lines.feed(answer) == b""
    assert lines.restart() == [[0, 1, 1, 16]]
    assert (
        lines.feed(begin(job(2)) + frame(OutputEnds(0, 2, 0, b"of the second\n")))
        == b"of the first try\nof the second\n"
    )


def test_the_error_that_ends_the_output_is_koalads_own() -> None:
    lines = FollowedLines()
    assert lines.restart() is None
    error = ClusterError("no_room", "There is no room.", "Make some.").reason
    with pytest.raises(ClusterError, match="no room"):
        lines.feed(begin(job(1)) + json.dumps({"end": fields.error(error)}).encode() + b"\n")


@pytest.mark.parametrize("sent", [b"[1, 2, 3]\n", b'{"end": 3}\n', b"7\n", b'["a", 1, 1, 1]\n'])
def test_what_is_no_frame_is_refused(sent: bytes) -> None:
    lines = FollowedLines()
    with pytest.raises(OurError):
        lines.feed(begin(job(1)) + sent)


def test_a_koalad_that_is_away_is_reported_once() -> None:
    """A client that never reached koalad does not wait; of several that wait one reports it, and each ends in time."""
    said: list[str] = []
    error = NotReachable("not_reachable", "koalad is away.", "")
    with pytest.raises(NotReachable):
        Reconnecting(60.0, said.append).pause(error)
    assert said == []
    reconnecting = Reconnecting(0.2, said.append)
    before = time.monotonic()
    reconnecting.answered(before)
    for _ in range(2):
        with pytest.raises(NotReachable):  # noqa: PT012
            while True:
                reconnecting.pause(error)
        reconnecting.answered(before)  # the rest of an older answer, by a koalad that ends
    assert said == ["koalad is away. Waiting for it for 0.2 s."]
    reconnecting.answered(time.monotonic())
    assert said[1:] == ["koalad answers again."]
