"""Logs of real systems and the model of Lublin and Feitelson: reading, errors, and random draws."""

import bz2
import gzip
import itertools
import lzma
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koalapy.experiments.workloads.gwf import read_gwf
from koalapy.experiments.workloads.lublin import (
    BATCH,
    INTERACTIVE,
    UNTYPED,
    Model,
    daily_weights,
    gamma_cdf,
    jobs,
    mean_gap,
)
from koalapy.experiments.workloads.reading import Ended, TraceJob
from koalapy.experiments.workloads.swf import read_swf, write_swf
from koalapy.model.errors import RequestError
from koalapy.model.units import SECOND, Duration

LOGS = Path(__file__).parents[3] / "shared" / "workloads"
HEADER = "; Version: 2.2\n; MaxProcs: 128\n"
LINE = "2 423 60 8977 16 9.56 -1 16 36000 1024 1 4 5 -1 2 3 -1 -1"
GWF = "7\t100\t-12\t50\t2\t-1\t-1\t2\t600\t-1\t1\tU4\tG1\tX1\tQ2\tP1\tS1\tS3\tUNITARY\t" + "\t".join(["-1"] * 10)


def swf(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "log.swf"
    path.write_text(text)
    return path


def test_a_line_of_swf_is_a_job(tmp_path: Path) -> None:
    reader = read_swf(swf(tmp_path, HEADER + LINE + "\n"))
    assert list(reader) == [
        TraceJob(
            number=2,
            submitted=Duration(423 * SECOND),
            waited=Duration(60 * SECOND),
            runtime=Duration(8977 * SECOND),
            processors=16,
            requested=Duration(36_000 * SECOND),
            memory_per_processor=1 << 20,
            user="4",
            group="5",
            queue="2",
            site="3",
            ended=Ended.COMPLETED,
        )
    ]
    assert reader.header == {"Version": "2.2", "MaxProcs": "128"}
    assert reader.comments == [" Version: 2.2", " MaxProcs: 128"]
    assert reader.line == 3


def test_a_line_of_gwf_is_a_job_and_a_negative_wait_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "log.gwf"
    path.write_text("# JobID SubmitTime ...\n" + GWF + "\n")
    (job,) = read_gwf(path)
    assert (job.number, job.submitted, job.runtime, job.processors) == (7, 100 * SECOND, 50 * SECOND, 2)
    assert job.waited is None
    assert (job.user, job.site, job.ended) == ("U4", "S1", Ended.COMPLETED)


@pytest.mark.parametrize("suffix", [".swf", ".gz", ".xz", ".bz2"])
def test_a_log_may_be_compressed(tmp_path: Path, suffix: str) -> None:
    squeezes: dict[str, Callable[[bytes], bytes]] = {
        ".gz": gzip.compress,
        ".xz": lzma.compress,
        ".bz2": bz2.compress,
        ".swf": bytes,
    }
    path = tmp_path / f"log{suffix}"
    path.write_bytes(squeezes[suffix]((HEADER + LINE + "\n").encode()))
    assert [job.number for job in read_swf(path)] == [2]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEADER + LINE + "\n1 2 3\n", "line 4 has 3 fields where 18 are needed"),
        (HEADER + LINE.replace("8977", "long"), "line 3 has 'long' for run time, which is not a number"),
        (HEADER + LINE.replace("8977", "nan"), "line 3 has 'nan' for run time, which cannot be"),
        (HEADER + LINE.replace("423", "-423"), "line 3 has '-423' for submit time, which cannot be"),
        (HEADER + LINE.replace("423", "-1"), "line 3 has no submit time"),
        (
            HEADER + LINE.replace(" 16 ", " 1.5 "),
            "line 3 has '1.5' for allocated processors, which is not a whole number",
        ),
        ("x" * 100_000, "line 1 is longer than any line of a workload"),
    ],
)
def test_an_invalid_log_is_refused_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(RequestError) as refused:
        list(read_swf(swf(tmp_path, text)))
    assert words in refused.value.reason.message
    assert refused.value.reason.advice


def test_a_lenient_reader_skips_and_counts(tmp_path: Path) -> None:
    reader = read_swf(swf(tmp_path, f"{LINE}\n1 2 3\n\n{LINE}\n{LINE.replace('60', '-60')}\n"), lenient=True)
    assert [job.number for job in reader] == [2, 2]
    assert reader.skipped == {"of another number of fields": 1, "with negative or too large numbers": 1}
    assert reader.line == 4


def test_fields_beyond_those_of_the_format_are_ignored_and_counted(tmp_path: Path) -> None:
    plain = list(read_swf(swf(tmp_path, f"{LINE}\n" * 3)))
    reader = read_swf(swf(tmp_path, f"{LINE} node7 batch -1\n{LINE}\n{LINE} node8 batch -1\n"))
    assert list(reader) == plain
    assert reader.ignored == {"of more than 18 fields, the rest of which is ignored": 2}


@pytest.mark.parametrize("lenient", [False, True])
def test_a_log_whose_lines_all_have_too_few_fields_is_in_another_format(tmp_path: Path, lenient: bool) -> None:
    """If such lines were skipped, nothing would be left."""
    few = LINE.rpartition(" ")[0]
    with pytest.raises(RequestError) as refused:
        list(read_swf(swf(tmp_path, f"{HEADER}{few}\n\n{few}\n{few}\n"), lenient))
    assert "line 3 has 17 fields where 18 are needed, and so have all 3 lines" in refused.value.reason.message
    assert "--lenient" not in refused.value.reason.advice
    assert "as -1" in refused.value.reason.advice


@pytest.mark.parametrize(
    ("allocated", "requested", "runtime", "status", "processors"),
    [
        pytest.param(-1, 64, 0, 5, 0, id="cancelled before it ran"),
        pytest.param(-1, 64, 0, 1, 0, id="completed without a processor"),
        pytest.param(0, 64, 0, 0, 0, id="failed without a processor"),
        pytest.param(64, 64, 0, 5, 0, id="cancelled as it was to start"),
        pytest.param(64, 64, 0, 1, 64, id="completed at once"),
        pytest.param(64, 64, 0, 0, 64, id="failed at once"),
        pytest.param(-1, 64, 9, 1, 64, id="ran on what it requested"),
        pytest.param(16, 64, 9, 5, 16, id="cancelled while it ran"),
    ],
)
def test_a_job_without_run_time_and_processors_never_ran(
    tmp_path: Path, allocated: int, requested: int, runtime: int, status: int, processors: int
) -> None:
    line = f"10 14 -1 {runtime} {allocated} -1 -1 {requested} 200 -1 {status} 4 5 -1 2 3 -1 -1\n"
    (job,) = read_swf(swf(tmp_path, line))
    assert (job.processors, job.ran) == (processors, processors > 0)
    path = tmp_path / "log.gwf"
    rest = "\t".join(["-1"] * 10)
    path.write_text(
        f"7\t100\t-1\t{runtime}\t{allocated}\t-1\t-1\t{requested}\t600\t-1\t{status}\tU4\tG1\tX1\tQ2\tP1\tS1\tS3\tUNITARY\t{rest}\n"
    )
    (job,) = read_gwf(path)
    assert (job.processors, job.ran) == (processors, processors > 0)


@pytest.mark.parametrize(
    ("suffix", "squeeze"), [(".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress)]
)
def test_a_truncated_archive_is_refused_with_its_last_good_line(
    tmp_path: Path, suffix: str, squeeze: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / f"log{suffix}"
    whole = squeeze("".join(f"{number} {LINE[2:]}\n" for number in range(20_000)).encode())
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RequestError, match=r"cannot be decompressed after line \d+"):
        list(read_swf(path))


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2"])
def test_an_invalid_archive_is_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"log{suffix}"
    path.write_text(LINE)
    with pytest.raises(RequestError, match=f"cannot be decompressed after line 0: .* none of {suffix}"):
        list(read_swf(path))


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    """Some editors write a byte order mark."""
    reader = read_swf(swf(tmp_path, "\ufeff" + HEADER + LINE))
    assert [job.number for job in reader] == [2]
    assert reader.header["Version"] == "2.2"


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="No such file"):
        list(read_swf(tmp_path / "none.swf"))


@given(
    st.builds(
        TraceJob,
        number=st.integers(0, 10**9),
        submitted=st.integers(0, 10**9).map(lambda seconds: Duration(seconds * SECOND)),
        processors=st.integers(1, 10**6),
        runtime=st.none() | st.integers(1, 10**9).map(lambda seconds: Duration(seconds * SECOND)),
        user=st.sampled_from(["", "17"]),
        ended=st.sampled_from(list(Ended)),
    )
)
def test_a_written_job_is_read_back(tmp_path_factory: pytest.TempPathFactory, job: TraceJob) -> None:
    path = tmp_path_factory.mktemp("swf") / "log.swf"
    path.write_text("".join(write_swf([job], {"Version": "2.2"})))
    assert list(read_swf(path)) == [job]


@pytest.mark.parametrize(("name", "count"), [("KTH-SP2-1996-2.1-cln.swf.xz", 28_476), ("lublin_256.swf.xz", 10_000)])
def test_real_logs_are_read_completely(name: str, count: int) -> None:
    if not (LOGS / name).exists():
        pytest.skip(f"the log {name} is not here")
    assert sum(1 for _ in read_swf(LOGS / name)) == count


# The reference: half hours 0, 10, 26 and 47 of the normalised cycle; means over samples of 300,000 to 400,000.
CYCLES = [
    (BATCH, [0.5462, 0.3472, 1.6659, 0.5939]),
    (INTERACTIVE, [0.5135, 0.1187, 1.8426, 0.5728]),
    (UNTYPED, [0.5078, 0.1649, 1.8174, 0.5637]),
]
MEANS = [(BATCH, 13.84, 9486, 3479, 0.293), (INTERACTIVE, 8.05, 237, 613, 0.154), (UNTYPED, 12.11, 4347, 902, 0.244)]


@pytest.mark.parametrize(("model", "weights"), CYCLES, ids=["batch", "interactive", "untyped"])
def test_the_daily_cycle_is_the_published_one(model: Model, weights: list[float]) -> None:
    cycle = daily_weights(model)
    assert [round(cycle[half_hour], 4) for half_hour in (0, 10, 26, 47)] == weights
    assert sum(cycle) == pytest.approx(48)


@pytest.mark.parametrize(("model", "size", "runtime", "gap", "serial"), MEANS, ids=["batch", "interactive", "untyped"])
def test_the_model_has_the_published_means(
    model: Model, size: float, runtime: float, gap: float, serial: float
) -> None:
    drawn = list(itertools.islice(jobs(model, 1 << 20, seed=5), 40_000))
    assert sum(job.processors for job in drawn) / len(drawn) == pytest.approx(size, rel=0.05)
    assert sum(job.runtime or 0 for job in drawn) / len(drawn) / SECOND == pytest.approx(runtime, rel=0.1)
    assert sum(job.processors == 1 for job in drawn) / len(drawn) == pytest.approx(serial, abs=0.01)
    assert mean_gap(model) == pytest.approx(gap, rel=0.04)
    assert drawn[-1].submitted / len(drawn) / SECOND == pytest.approx(gap, rel=0.08)


def test_the_same_seed_draws_the_same_jobs_and_none_is_too_large() -> None:
    def draw(seed: int) -> list[TraceJob]:
        return list(itertools.islice(jobs(BATCH, 64, seed), 2_000))

    assert draw(1) == draw(1) != draw(2)
    assert max(job.processors for job in draw(1)) == 64
    assert all(one.submitted <= next.submitted for one, next in itertools.pairwise(draw(1)))


def test_a_stretched_stream_has_the_same_jobs_farther_apart() -> None:
    plain, slow = (list(itertools.islice(jobs(BATCH, 64, 1, stretch), 100)) for stretch in (1.0, 2.0))
    assert [replace(job, submitted=Duration(2 * job.submitted)) for job in plain] == slow


@pytest.mark.parametrize(
    ("value", "shape", "scale", "probability"),
    [(1.0, 1.0, 1.0, 0.6321205588285577), (2.0, 3.0, 1.0, 0.32332358381693654)],
)
def test_the_gamma_distribution_has_the_tabulated_values(
    value: float, shape: float, scale: float, probability: float
) -> None:
    assert gamma_cdf(value, shape, scale) == pytest.approx(probability, rel=1e-12)


@given(st.floats(0.1, 200), st.floats(0.01, 50), st.floats(0, 500))
def test_the_gamma_distribution_grows_from_0_to_1(shape: float, scale: float, value: float) -> None:
    low, high = gamma_cdf(value, shape, scale), gamma_cdf(value * 1.1 + 0.1, shape, scale)
    assert -1e-12 <= low <= high + 1e-9 <= 1 + 1e-8
