"""The output of a sweep's parameters: named for each, found by its result, and collected in pages."""

import os
import queue
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from koalapy_adapters import errors
from koalapy_adapters.kcm.shared_directory.output import FileList, ManyFiles, OneFile
from koalapy_adapters.messages.kcm import Fetched

from koalapy.driver.driver import Delivery
from koalapy.languages import from_mapping, sweep_request
from koalapy.languages.stageout import check_templates
from koalapy.model.commands import CollectOutput, OutputKind
from koalapy.model.errors import KoalaError, Reason, RequestError, TransientError
from koalapy.model.events import OutputCollected
from koalapy.model.identity import AttemptId, InstanceId, JobId
from koalapy.model.parameters import ParameterResult, ResultBatch
from koalapy.model.request import Request
from koalapy.model.states import JobState
from koalapy.model.sweep import Sweep
from koalapy.model.units import Instant
from koalapy.runtime.collecting import sweep_collect as module
from koalapy.runtime.collecting import sweep_collect as paging
from koalapy.runtime.collecting.cluster_queues import Steps
from koalapy.runtime.collecting.collect import Collected
from koalapy.runtime.collecting.collector import Collector
from koalapy.runtime.collecting.download import Download
from koalapy.runtime.collecting.sweep_collect import SweepCollection
from koalapy.runtime.parameters import open_regular
from koalapy.runtime.session.exchange import RefusedError
from koalapy.runtime.transfers import Transfer
from koalapy.store.contract import StoreError

SWEEP = JobId(7)
T = TypeVar("T")


def result(number: int, status: int = 0) -> ParameterResult:
    return ParameterResult(number, status, "exited", "n1", 0, 5, 6, 0, 1, 0, 1)


def launcher(number: int) -> AttemptId:
    return AttemptId(JobId((1 << 23) + number), 0, 1)


class Cluster:
    """The attempts' directories of one cluster, read by the code of a KCM. `lost`: the cluster is unreachable."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self.lost = False
        self.asked: list[str] = []

    def work(self, attempt: AttemptId) -> Path:
        work = self._place / str(attempt.job) / "work"
        work.mkdir(parents=True, exist_ok=True)
        return work

    def list_files(self, attempt: AttemptId, patterns: Sequence[str]) -> Iterator[bytes]:
        return self._read("list", FileList(self._of(attempt), list(patterns)), lambda end: None)

    def fetch(
        self, attempt: AttemptId, where: str, path: str = "", offset: int = 0, *, ended: Callable[[Fetched], None]
    ) -> Iterator[bytes]:
        return self._read(f"fetch {path}", OneFile(self._of(attempt), path, offset), ended)

    def fetch_many(self, attempt: AttemptId, paths: Sequence[str], ended: Callable[[Fetched], None]) -> Iterator[bytes]:
        return self._read(f"many {len(paths)}", ManyFiles(self._of(attempt), list(paths)), ended)

    def read_ends(self, attempt: AttemptId, where: str, most: int) -> Iterator[bytes]:
        raise AssertionError("a sweep's standard streams are read from its journals")

    def _of(self, attempt: AttemptId) -> str:
        return str(self._place / str(attempt.job))

    def _read(self, what: str, stream: Any, ended: Callable[[Fetched], None]) -> Iterator[bytes]:
        if self.lost:
            raise TransientError("unreachable", "It is out of reach.", "")
        self.asked.append(what)
        try:
            stream.open()
        except errors.RequestError as error:
            raise RefusedError(Reason(error.code, "request", str(error))) from error
        while data := stream.read(1 << 16, False):
            yield data
        if isinstance(stream, OneFile):
            stream.close()
        ended(Fetched(1, stream.sent, stream.mode, stream.digest))


@pytest.fixture
def clusters(tmp_path: Path) -> dict[str, Cluster]:
    return {name: Cluster(tmp_path / name) for name in ("vu", "delft")}


def request_of(directory: Path, parameters: Sequence[str], *stage_out: Any, **more: Any) -> Request:
    names = [f"{{{each.partition('=')[0]}}}" for each in parameters]
    job = sweep_request(["./solve", *names], parameters, stage_out=list(stage_out), **more)
    return from_mapping(job, "koala sweep", str(directory), open_file=open_regular)


def run_steps(steps: Steps[T]) -> T:
    """Run all steps; return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found


class Play:
    """A sweep whose parameters have ended. `batches` are its results."""

    def __init__(self, clusters: dict[str, Cluster], request: Request, batches: Sequence[ResultBatch]) -> None:
        self.clusters, self.request, self.batches = clusters, request, batches
        self.transfer = Transfer(SWEEP, None, "", "out", lambda: None)
        self._made: SweepCollection | None = None

    def collect(self, kind: OutputKind = OutputKind.SUCCESSFUL_PARAMETERS) -> Collected:
        self._made = self._made or SweepCollection(
            InstanceId("abcde"), self.command(kind), self.request, lambda: self.batches
        )
        return run_steps(self._made.steps(Download(self.clusters, self.transfer)))

    def command(self, kind: OutputKind) -> CollectOutput:
        request = self.request
        paths, to = request.stage_out, request.stage_out_to
        return CollectOutput(job=SWEEP, sources=(), paths=paths, directory=request.directory, to=to, kind=kind)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def ran(cluster: str, attempt: AttemptId, *numbers: int, failed: Sequence[int] = ()) -> ResultBatch:
    return ResultBatch(SWEEP, cluster, attempt, tuple(result(each, int(each in failed)) for each in numbers))


def contents(home: Path) -> dict[str, str]:
    return {str(each.relative_to(home)): each.read_text() for each in sorted(home.rglob("*")) if each.is_file()}


# ---- requests


@pytest.mark.parametrize(
    ("parameters", "path", "lacks"),
    [
        (["x=1:3"], "out", "{#} into it, or {x}."),
        (["x=1:3", "y=a,b"], "out-{x}", "{#} into it, or {y}."),
        (["x=1:3", "y=a,b"], "out", "{#} into it, or {x} and {y}."),
        (["x=1:3", "y=a,b"], ".", "{#} into it, or {x} and {y}."),
        (["x=a,b,a"], "out-{x}", "{#} into it."),
        (["x=1:3", "y=a,b"], "{#}/**", ""),
        (["x=1:3", "y=one"], "out-{x}*", ""),
        (["x=1:1"], "out", ""),
    ],
)
def test_a_stage_out_path_must_differ_between_parameters(
    tmp_path: Path, parameters: list[str], path: str, lacks: str
) -> None:
    if not lacks:
        assert request_of(tmp_path, parameters, path).stage_out == (path,)
        return
    with pytest.raises(RequestError) as caught:
        request_of(tmp_path, parameters, path)
    assert caught.value.reason.code == "one_path"
    assert "stage_out.0 is" in str(caught.value.reason)
    assert f"Parameters of one Launcher share a directory: write {lacks}" in str(caught.value.reason)


def test_one_name_without_repeated_values_makes_a_path_distinct(tmp_path: Path) -> None:
    together = ["x=1:3", "y=a,a,b", "z=a,b,b"]
    assert request_of(tmp_path, together, "{x}", combine="zip").stage_out == ("{x}",)
    with pytest.raises(RequestError, match="the same path"):
        request_of(tmp_path, together, "{y}", combine="zip")
    assert request_of(tmp_path, together[1:], "{y}-{z}", combine="zip").stage_out == ("{y}-{z}",)


def test_columns_that_only_stage_out_uses_are_read(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("case,temp\na,1\nb,1\n")
    job = sweep_request(["./solve", "{temp}"], csv=["runs.csv"], stage_out=[{"path": "{#}", "to": "of-{case}"}])
    found = from_mapping(job, "s", str(tmp_path), open_file=open_regular)
    assert found.parameters is not None
    assert [each.names for axis in found.parameters.axes for each in axis.sources] == [("case",), ("temp",)]


def test_unknown_names_and_lone_braces_are_refused(tmp_path: Path) -> None:
    for stage_out, words in (
        ("{y}", "stage_out.0 uses {y}, which is not a parameter. Available: {x} and {#}"),
        ("{x", "stage_out.0 is '{x', which has a lone {"),
        ({"path": "{x}", "to": "{y}"}, "stage_out.0.to uses {y}, which is not a parameter."),
        ({"path": "{x}-{job}", "to": "{job}"}, "stage_out.0 uses {job}, which is not a parameter."),
    ):
        with pytest.raises(RequestError) as caught:
            request_of(tmp_path, ["x=1:2"], stage_out)
        assert words in str(caught.value.reason)


def test_paths_of_a_later_fetch_are_checked_alike(tmp_path: Path) -> None:
    request = request_of(tmp_path, ["x=1:2", "y=1:2"])
    assert check_templates(request, ["{#}", "{x}/{y}/*"])
    assert not check_templates(request, ["core.*", "a{{b}}"])
    for paths, words in (
        (["{x}"], "'{x}' is the same path for several of the 4 parameters. Parameters of one"),
        (["{#}", "all"], "'all' is the same path"),
        (
            ["{z}"],
            "'{z}' uses {z}, which is not a parameter. Available: {#}, {x} and {y}. Write {{ and }} for literal",
        ),
        (["{"], "'{' has a lone {."),
    ):
        with pytest.raises(RequestError) as caught:
            check_templates(request, paths)
        assert words in str(caught.value.reason)


# ---- collected files


def test_each_file_is_fetched_from_the_attempt_that_its_result_names(clusters: dict[str, Cluster], home: Path) -> None:
    first, second = clusters["vu"].work(launcher(1)), clusters["delft"].work(launcher(2))
    for number in range(1, 7):
        for work, by in ((first, "vu"), (second, "delft")):
            (work / f"out-{number}").write_text(f"{number} {by}")
    batches = [ran("vu", launcher(1), 1, 4), ran("delft", launcher(2), 2, 3), ran("vu", launcher(1), 6, 5)]
    play = Play(clusters, request_of(home, ["x=1:6"], "out-{x}"), batches)
    found = play.collect()
    places = {1: "vu", 2: "delft", 3: "delft", 4: "vu", 5: "vu", 6: "vu"}
    assert contents(home) == {f"out-{number}": f"{number} {name}" for number, name in places.items()}
    assert (found.files, found.size, found.lack, found.notes) == (6, 4 * 4 + 2 * 7, "", ())
    progress = play.transfer.progress()
    assert (progress["parameters_done"], progress["parameters"]) == (4, 6)
    assert clusters["vu"].asked == ["list", "many 4"]


def test_destinations_directories_and_patterns_are_expanded_for_each_parameter(
    clusters: dict[str, Cluster], home: Path
) -> None:
    work = clusters["vu"].work(launcher(1))
    for number in (1, 2, 3):
        (work / str(number) / "deep").mkdir(parents=True)
        (work / str(number) / "deep" / "a").write_text(f"a{number}")
        (work / str(number) / "log").write_text(f"log{number}")
        (work / f"{number}.dat").write_text(f"dat{number}")
        (work / f"{number}.dat.more").write_text(f"more{number}")
    stage_out = [
        {"path": "{#}/deep", "to": "of/{y}-{cluster}/{job}{component}{{}}"},
        {"path": "{#}/l*", "to": "logs"},
        {"path": "{#}.dat*", "to": "{x}"},
    ]
    play = Play(clusters, request_of(home, ["x=1:3", "y=b"], *stage_out), [ran("vu", launcher(1), 1, 2, 3)])
    assert play.collect().files == 12
    expected: dict[str, str] = {}
    for number in (1, 2, 3):
        expected |= {
            f"of/b-vu/70{{}}/{number}/deep/a": f"a{number}",
            f"logs/{number}/log": f"log{number}",
            f"{number}/{number}.dat": f"dat{number}",
            f"{number}/{number}.dat.more": f"more{number}",
        }
    assert contents(home) == expected


def test_missing_files_are_counted_and_named_and_the_others_are_collected(
    clusters: dict[str, Cluster], home: Path, tmp_path: Path
) -> None:
    work = clusters["vu"].work(launcher(1))
    for number in range(1, 21):
        if number % 2:
            (work / f"out-{number}").write_text("there")
    (work / "out-2").symlink_to(tmp_path)
    batches = [
        ran("vu", launcher(1), *range(1, 21), failed=[1, 20]),
        ran("vu", launcher(2), 21),
        ran("left", launcher(3)),
    ]
    play = Play(clusters, request_of(home, ["x=1:21"], "out-{x}", "{x}-*"), batches)
    found = play.collect()
    assert found.files == 9
    assert set(contents(home)) == {f"out-{number}" for number in range(3, 20, 2)}
    missing = "out-4 (parameter 4), out-6 (parameter 6), out-8 (parameter 8), out-10 (parameter 10)"
    assert found.lack.startswith("10 expected output files are missing (of 21 parameters): ")
    assert missing in found.lack
    assert "and 5 more." in found.lack
    assert any(each.startswith("out-2 (parameter 2: it is a link that leads out") for each in found.missing)
    assert "out-21 (parameter 21: The attempt's directory is not there)" in found.missing
    assert [note.partition(":")[0] for note in found.notes] == [
        "19 patterns matched nothing", "2 parameters did not end well (1, 20)",
    ]  # fmt: skip
    assert "`koala fetch 7` brings it" in found.notes[1]


def test_a_requested_fetch_collects_files_of_failed_parameters_and_misses_none(
    clusters: dict[str, Cluster], home: Path
) -> None:
    (clusters["vu"].work(launcher(1)) / "out-1").write_text("half")
    play = Play(clusters, request_of(home, ["x=1:3"], "out-{x}"), [ran("vu", launcher(1), 1, 2, failed=[1, 2])])
    found = play.collect(OutputKind.ENDED_PARAMETERS)
    assert (found.files, found.lack, found.notes) == (1, "", ())
    assert contents(home) == {"out-1": "half"}


def test_a_file_that_is_already_collected_is_not_fetched_again(clusters: dict[str, Cluster], home: Path) -> None:
    work = clusters["vu"].work(launcher(1))
    for number in (1, 2, 3):
        (work / f"out-{number}").write_text(str(number))
    (work / "out-2").write_bytes(b"x" * (2 << 20))
    request = request_of(home, ["x=1:3"], "out-{x}")
    batches = [ran("vu", launcher(1), 1, 2, 3)]
    assert Play(clusters, request, batches).collect().files == 3
    (home / "out-3").unlink()
    clusters["vu"].asked.clear()
    assert Play(clusters, request, batches).collect().files == 3
    assert clusters["vu"].asked == ["list", "many 1"]


def test_an_unreachable_cluster_does_not_delay_files_of_another(clusters: dict[str, Cluster], home: Path) -> None:
    batches = []
    for number, name in ((1, "vu"), (2, "delft"), (3, "vu")):
        (clusters[name].work(launcher(number)) / f"out-{number}").write_text(name)
        batches.append(ran(name, launcher(number), number))
    clusters["vu"].lost = True
    play = Play(clusters, request_of(home, ["x=1:3"], "out-{x}"), batches)
    for _ in range(2):
        with pytest.raises(TransientError):
            play.collect()
    assert contents(home) == {"out-2": "delft"}
    assert clusters["delft"].asked == ["list", "many 1"]
    clusters["vu"].lost = False
    assert play.collect().files == 3
    assert contents(home) == {"out-1": "vu", "out-2": "delft", "out-3": "vu"}
    assert clusters["delft"].asked == ["list", "many 1"]


def test_a_cluster_that_left_the_grid_file_is_reported_after_the_others_are_collected(
    clusters: dict[str, Cluster], home: Path
) -> None:
    (clusters["vu"].work(launcher(1)) / "out-2").write_text("there")
    play = Play(
        clusters, request_of(home, ["x=1:2"], "out-{x}"), [ran("left", launcher(2), 1), ran("vu", launcher(1), 2)]
    )
    with pytest.raises(RequestError) as caught:
        play.collect()
    assert caught.value.reason.code == "no_such_cluster"
    assert contents(home) == {"out-2": "there"}


def test_a_value_is_used_as_a_literal_path(clusters: dict[str, Cluster], home: Path) -> None:
    """A `*` in a value is no pattern, a slash separates directories, and no value leads out of the directory."""
    work = clusters["vu"].work(launcher(1))
    (work / "d").mkdir()
    for name in ("*", "a", "d/[b]", "b", "\udcff"):
        path = work / f"{name}.out"
        path.parent.mkdir(exist_ok=True)
        path.write_text(name.encode("utf-8", "replace").decode())
    (home / "values").write_bytes(b"*\nd/[b]\n\xff\n../../etc/passwd\n/etc/passwd\n")
    play = Play(clusters, request_of(home, ["x=@values"], "{x}.out"), [ran("vu", launcher(1), 1, 2, 3, 4, 5)])
    found = play.collect()
    names = {os.fsencode(each.relative_to(home)) for each in home.rglob("*.out")}
    assert names == {b"*.out", b"d/[b].out", b"\xff.out"}
    assert found.files == 3
    assert "those of parameter 4, since '../../etc/passwd.out' is not a path below" in found.lack


def test_without_the_file_of_values_only_numbers_are_expanded(clusters: dict[str, Cluster], home: Path) -> None:
    (home / "values").write_text("a\nb\n")
    for name in ("a", "1", "2"):
        (clusters["vu"].work(launcher(1)) / name).write_text(name)
    batches = [ran("vu", launcher(1), 1, 2)]
    by_value, by_number = (request_of(home, ["x=@values"], path) for path in ("{x}", "{#}"))
    (home / "values").unlink()
    assert Play(clusters, by_number, batches).collect().files == 2
    with pytest.raises(RequestError, match="The values of parameter 1 are not known any more"):
        Play(clusters, by_value, batches).collect()


def test_files_that_were_not_requested_are_refused(
    clusters: dict[str, Cluster], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = clusters["vu"].work(launcher(1))
    for name in ("out-1", "out-2"):
        (work / name).write_text(name)
    honest = clusters["vu"].list_files
    monkeypatch.setattr(clusters["vu"], "list_files", lambda attempt, patterns: honest(attempt, ["out-*"]))
    play = Play(clusters, request_of(home, ["x=1:2"], "out-{x}"), [ran("vu", launcher(1), 1)])
    with pytest.raises(KoalaError, match="not asked for"):
        play.collect()
    assert contents(home) == {}


class Recorded:
    """The records of one sweep in a store that fails the first `troubles` times."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self.troubles = 2

    def job(self, job_id: JobId) -> None:
        """There is no job, only the sweep."""

    def sweep(self, sweep: JobId) -> Sweep:
        request = self._play.request
        return Sweep(
            id=sweep, owner="me", request=request, state=JobState.RUNNING, position=1, submitted_at=Instant(1),
            count=2, collecting=True,
        )  # fmt: skip

    def results(self, sweep: JobId, after: int = 0) -> Iterator[tuple[int, ResultBatch]]:
        for number, batch in enumerate(self._play.batches, start=1):
            if self.troubles and number == 2:
                self.troubles -= 1
                raise StoreError("store_unreachable", "The database is out of reach.", "")
            yield number, batch


def test_collecting_waits_for_an_unreachable_store(clusters: dict[str, Cluster], home: Path) -> None:
    for number in (1, 2):
        (clusters["vu"].work(launcher(1)) / f"out-{number}").write_text("there")
    play = Play(clusters, request_of(home, ["x=1:2"], "out-{x}"), [ran("vu", launcher(1), each) for each in (1, 2)])
    recorded, counted = Recorded(play), queue.SimpleQueue[Delivery]()
    collector = Collector(InstanceId("abcde"), clusters, counted.put, retry_max_s=0.01, recorded=recorded)
    collector.collect(5, play.command(OutputKind.SUCCESSFUL_PARAMETERS))
    assert counted.get(timeout=60) == Delivery(events=(OutputCollected(job=SWEEP, files=2, size=10),), confirmed=(5,))
    assert recorded.troubles == 0
    collector.close()


# ---- large sweeps


def test_a_request_with_too_many_files_is_split_in_halves(
    clusters: dict[str, Cluster], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("koalapy.runtime.collecting.plan.MOST_FILES", 25)
    work = clusters["vu"].work(launcher(1))
    for number in range(1, 9):
        (work / str(number)).mkdir()
        for file in range(30 if number == 5 else 6):
            (work / str(number) / str(file)).touch()
    play = Play(clusters, request_of(home, ["x=1:8"], "{x}"), [ran("vu", launcher(1), *range(1, 9))])
    found = play.collect()
    assert found.files == 7 * 6
    assert "5 (parameter 5: More than 25 files are to be staged out)" in found.lack


def test_files_of_many_parameters_are_fetched_in_one_request(
    clusters: dict[str, Cluster], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paging, "PAGE", 100)
    count = 210
    work = clusters["vu"].work(launcher(1))
    for number in range(1, count + 1):
        (work / f"out-{number}").write_text(str(number))
    batches = [ran("vu", launcher(1), *range(start, min(start + 7, count + 1))) for start in range(1, count + 1, 7)]
    play = Play(clusters, request_of(home, [f"x=1:{count}"], "out-{x}"), batches)
    assert play.collect().files == count
    assert len(list(home.iterdir())) == count
    assert clusters["vu"].asked == ["list", "many 100", "list", "many 100", "list", "many 10"]


def test_pages_contain_every_result_once_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paging, "PAGE", 100)
    monkeypatch.setattr(paging, "_HELD", 1_000)
    count, counted = 5_000, 0
    numbers = iter(range(1, count + 1))
    batches = [ran("vu", launcher(turn % 50), *(next(numbers) for _ in range(10))) for turn in range(450)]

    def counted_batches() -> Iterator[ResultBatch]:
        nonlocal counted
        for batch in (*batches, ran("vu", launcher(99), *numbers)):
            counted += len(batch.results)
            yield batch

    seen: list[int] = []
    for page in paging.pages(counted_batches()):
        assert counted - len(seen) <= 1_000 + 500
        assert len(page.results) <= 100
        seen += [each.number for each in page.results]
    assert sorted(seen) == list(range(1, count + 1))


def test_patterns_that_search_a_directory_are_sent_in_small_requests(clusters: dict[str, Cluster], home: Path) -> None:
    count = 2 * module._MOST_WILD
    work = clusters["vu"].work(launcher(1))
    for number in range(1, count + 1):
        (work / f"{number}.out").touch()
    play = Play(clusters, request_of(home, [f"x=1:{count}"], "{x}.*"), [ran("vu", launcher(1), *range(1, count + 1))])
    assert play.collect().files == count
    assert clusters["vu"].asked.count("list") == 2
