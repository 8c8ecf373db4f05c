"""Every captured situation of Slurm 22.05 is read as in the golden file: with accounting and without, with daemons
that are down, jobs that it has forgotten, a node that is down.
"""

from typing import Any

import pytest
import readings
from koalapy_adapters.batch import slurm
from koalapy_adapters.batch.protocol import BatchSettings
from koalapy_adapters.errors import BatchError, Result
from readings import Reader, Sample, text

HERE = readings.SAMPLES / "slurm"
SITUATIONS = ("acct", "ctld_down", "dbd_down", "noacct", "noacct_purged", "node_down")
CLUSTER = BatchSettings(user="koala")


def samples(situation: str) -> list[Sample]:
    directory, found = HERE / situation, []
    for line in text(directory / "index.tsv").splitlines():
        name, status, command = line.rstrip(";").split("\t")
        argv = argv_of(command)
        output, error = (text(directory / f"{name}.{ending}") for ending in ("out", "err"))
        result = Result(argv, int(status.removeprefix("rc=")), output, error)
        found.append(Sample(f"{situation}/{name}", result, reader(argv)))
    return found


def argv_of(command: str) -> list[str]:
    """The first command of Slurm's in it; some were run by a shell, or under a time-out."""
    argvs = [part.removeprefix("timeout 60 ").removeprefix("sh -c ").split() for part in command.split("; ")]
    return next((argv for argv in argvs if argv[0].startswith("s")), argvs[0])


def reader(argv: list[str]) -> Reader:
    """How the dialect reads this command's answer; the answer of one that it never asks, like one that it does."""
    readers: dict[str, Reader] = {
        "squeue": slurm.parse_status,
        "sinfo": nodes,
        "sacct": history,
        "scancel": slurm.parse_cancel,
        "scontrol": slurm.parse_hold if "hold" in argv else slurm.parse_describe,
    }
    submits = "sbatch" in argv or "srun" in argv
    return slurm.parse_submit if submits else readers.get(argv[0], slurm.parse_describe)


def nodes(result: Result) -> Any:
    nothing = Result([], 0, "", "")
    return slurm.parse_capacity(CLUSTER, [result, nothing, nothing, nothing])


def history(result: Result) -> Any:
    argv = slurm.history_argv(CLUSTER, "tlimit", "")
    assert argv is not None
    return slurm.parse_history(result._replace(argv=argv), "tlimit")


ALL = [sample for situation in SITUATIONS for sample in samples(situation)]


def test_every_sample_is_read_or_refused_as_expected() -> None:
    assert readings.are_as_blessed(ALL, readings.GOLDEN / "slurm-readings.json")


def test_there_are_all_samples() -> None:
    listed = {sample.name for sample in ALL}
    files = {f"{each}/{path.stem}" for each in SITUATIONS for path in (HERE / each).glob("*.[oe][ur][tr]")}
    assert files <= listed
    assert len(ALL) == 220


REFUSED = readings.refused(ALL)


@pytest.mark.parametrize(("sample", "error"), REFUSED, ids=[sample.name for sample, _ in REFUSED])
def test_a_refusal_names_whose_move_it_is_and_what_is_wrong(sample: Sample, error: BatchError) -> None:
    assert readings.names_whose_move_it_is(sample, error)


def test_a_squeue_in_json_with_errors_is_no_list_of_no_jobs() -> None:
    """It exits 0 with the controller down."""
    (sample,) = (each for each in ALL if each.name == "ctld_down/ctld_down_squeue___json")
    assert sample.result.exit_status == 0
    error = readings.refusal(sample)
    assert error is not None
    assert error.code == "unreadable_answer"
