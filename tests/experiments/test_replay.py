"""Replays of traces: reading them, errors, and the figures and pictures of the result."""

import gzip
import itertools
import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from koalapy.experiments.replay import run as replay_run
from koalapy.experiments.replay.comparison import figures
from koalapy.experiments.replay.gantt import MOST_DRAWN, Block, Use, blocks, draw, paint
from koalapy.experiments.replay.jobs import Jobs, Share, Survey, survey
from koalapy.experiments.replay.record import Ran, Record, ReplayJob
from koalapy.experiments.replay.rules import Grace, ReplayRules, measured, sites, sizes
from koalapy.experiments.replay.schedule import Origin, schedule
from koalapy.experiments.workers import leave_signals_to_parent
from koalapy.experiments.workloads.reading import Ended
from koalapy.experiments.workloads.swf import read_swf
from koalapy.model.errors import OurError, RequestError
from koalapy.model.settings import Settings
from koalapy.model.units import HOUR, SECOND, Duration
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fcfs
from koalapy.scheduler.schedule import Policies

SIZES = {"vu": 8, "delft": 4}
TERMS = ReplayRules(sizes=SIZES)
ORIGIN = Origin(trace="log.swf", comments=(), begun=Duration(0), queue="fcfs", placement="worst-fit")


def line(number: int = 1, at: int = 0, runtime: int = 60, processors: int = 2, status: int = 1, site: str = "1") -> str:
    return f"{number} {at} -1 {runtime} {processors} -1 -1 {processors} 100 -1 {status} 4 5 -1 2 {site} -1 -1\n"


def log(tmp_path: Path, *lines: str, name: str = "log.swf") -> Path:
    path = tmp_path / name
    path.write_text("".join(lines))
    return path


def seconds(count: float) -> Duration:
    return Duration(round(count * SECOND))


# ---- what is read


def test_a_job_of_a_log_is_one_component_and_time_begins_with_the_first(tmp_path: Path) -> None:
    jobs = Jobs(log(tmp_path, "; MaxProcs: 8\n", line(7, at=500), line(8, at=530, runtime=0)), TERMS)
    first, second = jobs
    assert first == ReplayJob(
        number=7, submitted=seconds(0), components=((2, None),), runtime=seconds(60), walltime=seconds(100), user="4",
        group="5", queue="2",
    )  # fmt: skip
    assert (second.submitted, second.runtime) == (seconds(30), 0)
    assert jobs.begun == seconds(500)
    assert jobs.comments == [" MaxProcs: 8"]


def test_without_an_estimate_the_walltime_is_the_run_time(tmp_path: Path) -> None:
    text = line().replace(" 100 ", " -1 ") + line(runtime=0).replace(" 100 ", " 0 ")
    assert [job.walltime for job in Jobs(log(tmp_path, text), TERMS)] == [seconds(60), seconds(1)]


def test_jobs_that_never_ran_are_left_out_and_counted(tmp_path: Path) -> None:
    jobs = Jobs(log(tmp_path, line(1, status=5, runtime=-1), line(2), line(3, status=0, processors=0)), TERMS)
    assert [job.number for job in jobs] == [2]
    assert jobs.left_out == {"that never ran": 2}


WRONG = [
    (line(processors=9), "has a job of 9 processors, more than vu has (8)", "larger than any cluster"),
    (line(at=-9), "has '-9' for submit time, which cannot be", "with negative or too large numbers"),
    (line(runtime=-1), "has a completed job without its run time", "that never ran"),
    ("1 2 3\n", "has 3 fields where 18 are needed", "of another number of fields"),
    (line().replace("60", "long"), "has 'long' for run time, which is not a number", "with words for numbers"),
]


@pytest.mark.parametrize(("wrong", "words", "kind"), WRONG, ids=[kind for _, _, kind in WRONG])
def test_an_invalid_line_is_reported_or_left_out_and_counted(tmp_path: Path, wrong: str, words: str, kind: str) -> None:
    path = log(tmp_path, "; Version: 2.2\n", line(1, at=50), wrong, line(3, at=60))
    with pytest.raises(RequestError) as refused:
        list(Jobs(path, TERMS))
    assert refused.value.reason.message.startswith(f"{path}, line 3 {words}")
    assert "--lenient" in refused.value.reason.advice
    lenient = Jobs(path, replace(TERMS, lenient=True))
    assert [job.number for job in lenient] == [1, 3]
    assert lenient.left_out == {kind: 1}


def test_jobs_out_of_order_are_refused_or_submitted_with_the_job_above(tmp_path: Path) -> None:
    path = log(tmp_path, line(1, at=50), line(2, at=40), line(3, at=60))
    message = r"line 2 has a job submitted at 40 s, before the one above it \(50 s\). Sort the trace"
    with pytest.raises(RequestError, match=message):
        list(Jobs(path, TERMS))
    lenient = Jobs(path, replace(TERMS, lenient=True))
    assert [job.submitted for job in lenient] == [0, 0, seconds(10)]
    assert (lenient.left_out.total(), lenient.changed.total()) == (0, 1)


def test_a_trace_without_a_job_to_replay_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"no job that can be replayed: left out are 1 that never ran\."):
        survey(log(tmp_path, line(status=5, runtime=-1)), TERMS)
    with pytest.raises(RequestError, match=r"has no job that can be replayed\."):
        survey(log(tmp_path, "; Version: 2.2\n"), TERMS)


def test_jobs_that_ran_no_time_on_unknown_processors_are_left_out_whatever_they_requested(tmp_path: Path) -> None:
    """Some logs write a run time of 0 instead of -1. Such a job would wait until the whole cluster is empty."""
    phantoms = [f"{n} {n} -1 0 -1 -1 -1 8 200 -1 {status} 4 5 -1 2 1 -1 -1\n" for n, status in ((2, 5), (3, 0), (4, 1))]
    jobs = Jobs(log(tmp_path, line(1), *phantoms, line(5, at=9, runtime=0), line(6, at=9, runtime=0, status=5)), TERMS)
    assert [job.number for job in jobs] == [1, 5]
    assert jobs.left_out == {"that never ran": 4}


def test_lines_with_more_fields_are_replayed_and_reported(tmp_path: Path) -> None:
    wide = line().rstrip("\n") + " node7 batch -1\n"
    jobs = Jobs(log(tmp_path, wide, wide), TERMS)
    assert len(list(jobs)) == 2
    assert jobs.changed == {"of more than 18 fields, the rest of which is ignored": 2}


@pytest.mark.parametrize(
    ("grace", "walltime_s"),
    [
        pytest.param(Grace(), 100, id="none"),
        pytest.param(Grace(time=seconds(30)), 130, id="shorter than it ran on"),
        pytest.param(Grace(time=seconds(60)), 150, id="a time"),
        pytest.param(Grace(part=0.2), 120, id="a part"),
        pytest.param(Grace(time=seconds(30), part=0.2), 150, id="both"),
    ],
)
def test_a_job_that_ran_beyond_its_request_gets_the_grace(tmp_path: Path, grace: Grace, walltime_s: int) -> None:
    """Its walltime is at most its run time; that of other jobs is the one that they requested."""
    late, other = Jobs(log(tmp_path, line(1, runtime=150), line(2, runtime=90)), replace(TERMS, grace=grace))
    assert (late.walltime, other.walltime) == (seconds(walltime_s), seconds(100))


def test_the_share_of_left_out_jobs_among_those_that_ran_is_reported(tmp_path: Path) -> None:
    path = log(tmp_path, line(1, runtime=10), line(2, runtime=20, processors=64), line(3, status=5, runtime=-1))
    found = survey(path, replace(TERMS, lenient=True))
    assert (found.kept, found.lost) == (Share(1, 20 * SECOND), Share(1, 1280 * SECOND))


@pytest.mark.parametrize(
    ("text", "terms", "words"),
    [
        (line(processors=64), replace(TERMS, lenient=True), "--size"),
        (line(site="9"), replace(TERMS, lenient=True, sites={}), "--site"),
        (line(status=5, runtime=-1), TERMS, "Is it the right file"),
    ],
)
def test_if_all_jobs_are_left_out_the_advice_names_the_most_frequent_cause(
    tmp_path: Path, text: str, terms: ReplayRules, words: str
) -> None:
    with pytest.raises(RequestError) as refused:
        survey(log(tmp_path, text), terms)
    assert words in refused.value.reason.advice


def test_the_waits_of_the_trace_are_a_row_of_the_table(tmp_path: Path) -> None:
    """Two of three jobs wait. The second begins when the first one ends."""
    lines = [line(1), line(2, runtime=20, processors=8), line(3)]
    texts = [text.replace(" -1 ", f" {wait} ", 1) for text, wait in zip(lines, (0, 60, -1), strict=True)]
    found = figures(survey(log(tmp_path, *texts), TERMS).logged)
    assert (found.ran, found.wait_mean_s, found.makespan_s) == (2, 30, 80)
    assert found.utilisation == pytest.approx((60 * 2 + 20 * 8) / (80 * 12))
    assert found.backlog_mean == pytest.approx(8 * 60 / 80)
    assert len(survey(log(tmp_path, line()), TERMS).logged) == 0


def test_no_more_jobs_are_read_than_asked_for(tmp_path: Path) -> None:
    path = log(tmp_path, line(1), line(2, status=5, runtime=-1), line(3), "what is no job\n")
    assert [job.number for job in Jobs(path, replace(TERMS, most=2))] == [1, 3]


@pytest.mark.parametrize("name", ["grid5000_clean_trace.log", "anon_jobs.gwf.gz"])
def test_a_trace_of_the_grid_workloads_archive_is_read_unchanged(tmp_path: Path, name: str) -> None:
    rest = "\t".join(["-1"] * 10)
    text = (
        "# JobID\tSubmitTime\tWaitTime\n"
        f"1\t1100000000\t-12\t50\t2\t-1\t-1\t2\t-1\t-1\t1\tU4\tG1\tX1\tQ2\tP1\tS1\tdelft\tUNITARY\t{rest}\n"
        f"2\t1100000009\t-1\t-1\t1\t-1\t-1\t1\t-1\t-1\t0\tU5\tG1\tX1\tQ2\tP1\t-1\tdelft\tUNITARY\t{rest}\t\n"
    )
    path = tmp_path / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    jobs = Jobs(path, replace(TERMS, sites={"S1": "delft"}))
    (job,) = jobs
    assert (job.submitted, job.user, job.components) == (0, "U4", ((2, "delft"),))
    assert jobs.left_out == {"that never ran": 1}


def test_pinned_jobs_go_to_the_cluster_of_their_site(tmp_path: Path) -> None:
    path = log(tmp_path, "; Partition: 1 delft\n", "; Partition: 2 fs0.example\n", line(), line(2, site="2"))
    comments = [" Partition: 1 delft", " Partition: 2 fs0.example"]
    pinned = replace(TERMS, sites=sites(list(SIZES), {"2": "vu"}, comments))
    assert [job.components for job in Jobs(path, pinned)] == [((2, "delft"),), ((2, "vu"),)]
    with pytest.raises(RequestError, match="line 4 has a job of site '2', which is not a cluster"):
        list(Jobs(path, replace(TERMS, sites=sites(list(SIZES), {}, comments))))
    with pytest.raises(RequestError, match=r"line 1 has a job of 6 processors, more than delft has \(4\)"):
        list(Jobs(log(tmp_path, line(processors=6)), pinned))
    with pytest.raises(RequestError, match="line 1 does not name the site of its job"):
        list(Jobs(log(tmp_path, line(site="-1")), pinned))


# ---- koalad's own history


def component(**changes: Any) -> dict[str, Any]:
    return {
        "cluster": "vu", "named_cluster": None, "processors": 2, "walltime_s": 3600.0,
        "started_at": "2030-01-31T12:00:10.000000Z", "ended_at": "2030-01-31T12:01:10.000000Z",
    } | changes  # fmt: skip


def kept(*components: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "id": 3, "owner": "ada", "priority": 5, "submitted_at": "2030-01-31T12:00:00.000000Z", "sweep": None,
        "finished_at": "2030-01-31T12:01:20.000000Z", "components": list(components or [component()]),
    } | changes  # fmt: skip


def history(tmp_path: Path, *jobs: dict[str, Any]) -> Path:
    return log(tmp_path, json.dumps({"schema": "koala.jobs/1", "jobs": jobs}, indent=2) + "\n", name="history.json")


def test_a_job_of_koalads_history_has_all_its_components(tmp_path: Path) -> None:
    later = kept(
        component(named_cluster="delft", cluster="delft"), component(), id=4, submitted_at="2030-01-31T12:00:05Z"
    )
    path = history(tmp_path, later, kept())
    first, second = Jobs(path, TERMS)
    assert first == ReplayJob(
        number=3,
        submitted=seconds(0),
        components=((2, None),),
        runtime=seconds(60),
        walltime=HOUR,
        waited=seconds(10),
        user="ada",
        priority=5,
    )
    assert (second.number, second.submitted, second.components) == (4, seconds(5), ((2, "delft"), (2, None)))
    assert [job.components for job in Jobs(path, replace(TERMS, sites={}))] == [
        ((2, "vu"),), ((2, "delft"), (2, "vu")),
    ]  # fmt: skip
    assert Jobs(path, TERMS).comments == []
    assert survey(path, TERMS).comments == (" UnixStartTime: 1896091200",)


def test_jobs_of_koalads_history_that_never_ran_or_still_run_are_left_out(tmp_path: Path) -> None:
    path = history(
        tmp_path, kept(), kept(sweep={}), kept(finished_at=None), kept(component(started_at=None, ended_at=None))
    )
    assert survey(path, TERMS).left_out == {"that are sweeps": 1, "that were not over": 1, "that never ran": 1}


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda text: text[: len(text) // 2], r"line \d+ is not JSON"),
        (lambda text: text.replace('"walltime_s"', '"wall"', 1), "line 4 begins a job without walltime_s"),
        (lambda text: text.replace('"2030-01-31T12:00:10.000000Z"', "7", 1), "line 4 begins a job in another form"),
        (lambda text: text.replace("12:00:10", "noon", 1), "line 4 begins a job whose times are none"),
        (lambda text: text.replace("12:00:10", "11:00:10", 1), "line 4 begins job 3, which ended or started before"),
        (lambda text: text.replace('"processors": 2', '"processors": "two"'), "line 4 .* 'two' for processors"),
        (lambda text: text.replace('"processors": 2', '"processors": 0'), "line 4 .* with 0 for processors"),
        (lambda text: text.replace('"priority": 5', '"priority": 21'), "line 4 .* with 21 for priority"),
        (lambda text: text.replace("3600.0", "NaN"), "line 4 .* with nan for walltime_s"),
        (lambda text: text.replace('"ada"', "7"), "line 4 .* with 7 for owner"),
        (lambda text: text.replace("koala.jobs/1", "koala.job/1"), "does not begin as what `koala jobs --json` prints"),
        (lambda text: "{", "does not begin as what"),
    ],
    ids=[
        "cut",
        "field missing",
        "no time",
        "no hour",
        "started before",
        "a word for a number",
        "no processor",
        "no priority",
        "no walltime",
        "no name",
        "another schema",
        "nothing",
    ],
)
def test_an_invalid_history_is_refused_with_its_line(tmp_path: Path, spoil: Callable[[str], str], words: str) -> None:
    path = history(tmp_path, kept(), kept())
    path.write_text(spoil(path.read_text()))
    with pytest.raises(RequestError, match=words):
        list(Jobs(path, TERMS))


# ---- sizes


def test_sizes_are_those_given_or_measured_or_for_an_only_cluster_the_header_s() -> None:
    assert sizes(["vu", "here"], {"vu": 8}, {"here": 4, "vu": 1}, {"MaxProcs": "9"}) == {"vu": 8, "here": 4}
    assert sizes(["vu"], {}, {}, {"MaxNodes": "9"}) == {"vu": 9}
    assert sizes(["vu"], {}, {}, {"MaxProcs": "57", "MaxNodes": "9"}) == {"vu": 57}


def test_sizes_are_read_from_koalad_s_measurements(tmp_path: Path) -> None:
    clusters = [{"name": "vu", "total": 8}, {"name": "delft", "total": None}]
    path = log(tmp_path, json.dumps({"schema": "koala.clusters/1", "clusters": clusters}), name="clusters.json")
    assert measured(path) == {"vu": 8}
    for text in ("[]", "{", json.dumps({"schema": "koala.jobs/1", "jobs": []})):
        with pytest.raises(RequestError, match="is not what `koala clusters --json` prints"):
            measured(log(tmp_path, text, name="clusters.json"))


@pytest.mark.parametrize(
    ("said", "header", "words"),
    [
        (
            {},
            {"MaxProcs": "9"},
            "It is unknown how many processors vu and delft have. Give the number: --size vu=N --size delft=N.",
        ),
        ({"vu": 2}, {}, "It is unknown how many processors delft has."),
        ({"delf": 2}, {}, "The grid has no cluster delf. Did you mean delft?"),
    ],
)
def test_unknown_sizes_are_an_error_that_asks_for_them(
    said: dict[str, int], header: dict[str, str], words: str
) -> None:
    with pytest.raises(RequestError) as refused:
        sizes(["vu", "delft"], said, {}, header)
    assert words in str(refused.value.reason)


# ---- what came of it


def ran(
    number: int, at: float, start: float | None, end: float | None, *places: tuple[str, int], user: str = "1"
) -> Ran:
    return Ran(
        number=number,
        submitted=seconds(at),
        started=None if start is None else seconds(start),
        ended=None if end is None else seconds(end),
        processors=sum(count for _, count in places) or 3,
        places=places,
        requested=seconds(100),
        user=user,
        group="",
        queue="",
        killed=False,
        reason="" if places else "Does not fit.",
    )


def record(*jobs: Ran) -> Record:
    made = Record(dict(SIZES))
    for job in jobs:
        made.add(job)
    return made


def test_the_figures_of_a_schedule_equal_those_computed_by_hand() -> None:
    found = figures(
        record(
            ran(1, 0, 0, 20, ("vu", 8)),
            ran(3, 2, 20, 25, ("vu", 4)),  # a bounded slowdown of 23 / 10
            ran(2, 0, 10, 100, ("vu", 2), ("delft", 4)),
            ran(4, 90, None, None),
        )
    )
    assert (found.jobs, found.ran, found.killed, found.makespan_s) == (4, 3, 0, 100)
    assert found.wait_mean_s == pytest.approx(28 / 3)
    assert found.wait_median_s == 10
    assert found.wait_95_s == pytest.approx(10 + 0.9 * 8)
    assert found.bounded_slowdown == pytest.approx((1 + 2.3 + 100 / 90) / 3)
    assert found.utilisation == pytest.approx((160 + 20 + 540) / (12 * 100))
    assert found.backlog_mean == pytest.approx((4 * 18 + 6 * 10 + 3 * 10) / 100)
    assert found.backlog_most == 10


def test_waits_are_reported_by_job_size() -> None:
    """Sizes are parts of the largest cluster: a small job has up to 1/64 of it, a medium one up to 1/8."""
    made = Record({"big": 640, "little": 8})
    waits = {1: 1, 10: 3, 11: 5, 80: 7, 81: 9, 640: 11}
    for number, (processors, wait) in enumerate(waits.items()):
        made.add(ran(number, 0, wait, wait + 10, ("big", processors)))
    found = figures(made)
    assert (found.small_ran, found.medium_ran, found.large_ran) == (2, 2, 2)
    assert (found.small_wait_mean_s, found.medium_wait_mean_s, found.large_wait_mean_s) == (2, 6, 10)


def test_a_schedule_without_jobs_has_figures() -> None:
    found = figures(record(ran(1, 5, None, None)))
    assert (found.jobs, found.ran, found.utilisation, found.wait_95_s, found.makespan_s) == (1, 0, 0, 0, 5)


times = st.floats(0, 1e7, allow_nan=False)


@st.composite
def some_runs(draw: st.DrawFn) -> list[Ran]:
    made = []
    for number in range(draw(st.integers(1, 8))):
        at, wait, runtime = draw(times), draw(times), draw(times)
        places = draw(st.sampled_from([(), (("vu", 3),), (("delft", 1), ("vu", 2))]))
        start = at + wait if places else None
        end = start + runtime if start is not None else None
        made.append(ran(number, at, start, end, *places, user=draw(st.sampled_from(["", "4", "ada", "b c"]))))
    return made


@given(some_runs())
def test_a_schedule_is_read_back_by_our_own_reader(tmp_path_factory: pytest.TempPathFactory, runs: list[Ran]) -> None:
    path = tmp_path_factory.mktemp("swf") / "schedule.swf"
    path.write_text("".join(schedule(record(*runs), ORIGIN)))
    found = list(read_swf(path))
    assert sorted(job.number for job in found) == sorted(run.number for run in runs)
    assert all(one.submitted <= other.submitted for one, other in itertools.pairwise(found))
    by_number = {run.number: run for run in runs}
    for job in found:
        run = by_number[job.number]
        assert (job.processors, job.requested) == (run.processors, run.requested)
        assert job.ended is (Ended.CANCELLED if run.started is None else Ended.COMPLETED)
        assert job.site == ("1" if len(run.places) == 1 else "")
        if run.started is not None and run.ended is not None:
            assert job.waited is not None
            assert job.runtime is not None
            start = job.submitted + job.waited
            assert abs(start - run.started) <= SECOND / 2
            assert abs(start + job.runtime - run.ended) <= SECOND / 2


def test_a_schedule_keeps_the_header_of_its_trace_below_our_own(tmp_path: Path) -> None:
    comments = (" Version: 2.2", " Computer: IBM SP2", " Acknowledge: Lars Malinowsky", "", " MaxProcs: 100")
    origin = replace(ORIGIN, comments=comments, begun=seconds(500))
    path = tmp_path / "schedule.swf"
    path.write_text("".join(schedule(record(ran(1, 3, 4, 5, ("delft", 1), user="ada")), origin)))
    reader = read_swf(path)
    (job,) = reader
    assert (job.submitted, job.user, job.site) == (seconds(503), "1", "2")
    assert tuple(reader.comments[-5:]) == comments
    assert " Note: user 1 is ada" in reader.comments
    assert reader.header["MaxProcs"] == "12"
    assert reader.header["Acknowledge"] == "Lars Malinowsky"


# ---- the picture


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9), st.integers(1, 12)), max_size=30))
def test_blocks_are_side_by_side_and_never_one_above_another(drawn: list[tuple[int, int, int]]) -> None:
    size, uses = 12, list[Any]()
    for row, (start, length, processors) in enumerate(sorted(drawn)):
        taken = sum(use.processors for use in uses if use.end > start)
        if taken + processors <= size:
            uses.append(Use(start, start + length, row, processors))
    found = list(blocks(uses, size))
    for use in uses:
        mine = [block for block in found if block.row == use.row]
        assert sum(block.high - block.low for block in mine) == use.processors
        assert all((block.start, block.end) == (use.start, use.end) for block in mine)
    assert all(0 <= block.low < block.high <= size for block in found)
    for one, other in itertools.combinations(found, 2):
        apart = one.end <= other.start or other.end <= one.start or one.high <= other.low or other.high <= one.low
        assert apart


def test_more_processors_than_there_are_cannot_be_drawn() -> None:
    with pytest.raises(OurError):
        list(blocks([Use(0, 9, 0, 3), Use(5, 9, 1, 2)], 4))


def test_the_darkness_of_a_picture_is_the_cluster_s_use() -> None:
    found = [Block(0, 0, 1, 0, 1), Block(1, 17, 1000, 3, 700), Block(2, 1000, 2000, 0, 1000)]
    used = sum((each.end - each.start) * (each.high - each.low) for each in found)
    image = paint(found, 1000, ["#000000"] * 3, 2000.0)
    assert 1 - image.mean() == pytest.approx(used / (1000 * 2000), rel=1e-9)
    assert numpy.allclose(image[:, 701:], 0)


@pytest.mark.parametrize("count", [12, MOST_DRAWN + 1], ids=["few", "many"])
def test_the_same_record_gives_the_same_pictures(tmp_path: Path, count: int) -> None:
    def drawn(name: str) -> list[bytes]:
        (tmp_path / name).mkdir()
        made = record(*(ran(n, n, n, n + 3, ("vu", 2), user=str(n % 11)) for n in range(count)))
        return [path.read_bytes() for path in draw(made, "What if", "user", tmp_path / name / "gantt")]

    assert drawn("one") == drawn("other")


# ---- side by side


def a_course(trace: Path, base: Path) -> replay_run.ReplayTask:
    settings = Settings(clusters=())
    found = Survey(Duration(0), (), {}, {}, Share(1, 0), Share(), record(), Duration(0), 0)
    policies = Policies(worst_fit, fcfs)
    return replay_run.ReplayTask(
        trace=trace, rules=TERMS, survey=found, settings=settings, policies=policies, base=base, by="user"
    )


def test_an_error_in_a_process_is_raised_with_its_text_and_ends_the_others(tmp_path: Path) -> None:
    good, bad = log(tmp_path, line(), name="good.swf"), log(tmp_path, "1 2 3\n", name="bad.swf")
    with pytest.raises(RequestError, match="line 1 has 3 fields"):
        list(replay_run.side_by_side([a_course(each, tmp_path / "out") for each in (bad, good)], workers=1))
    assert not (tmp_path / "out.swf").exists()


def test_a_killed_process_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*_: object) -> Iterator[int]:
        os._exit(9)

    monkeypatch.setattr(replay_run, "run", killed)
    with pytest.raises(OurError, match="fpfs:20, worst-fit has ended without a word"):
        list(replay_run.side_by_side([a_course(tmp_path / "log.swf", tmp_path / "out")], workers=2))


def test_an_interrupt_at_the_start_of_a_process_is_handled_by_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        leave_signals_to_parent()

    monkeypatch.setattr(replay_run, "leave_signals_to_parent", interrupted)
    replayed = a_course(log(tmp_path, line()), tmp_path / "out")
    assert list(replay_run.side_by_side([replayed], workers=1))[-1].outcome is not None
