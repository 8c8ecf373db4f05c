"""Queue fingerprints change with others' waiting jobs, and with nothing else, in each dialect that has them."""

import re
from pathlib import Path
from types import ModuleType

import pytest
from koalapy_adapters.batch import pbs, sge, slurm
from koalapy_adapters.batch.protocol import BatchSettings
from koalapy_adapters.errors import BatchError, Result

SAMPLES = Path(__file__).parents[1] / "samples"
CLUSTER = BatchSettings(user="koala", instance="aaaaa")
SGE = (SAMPLES / "sge" / "busy-qstat.out").read_text()
SLURM = (SAMPLES / "slurm" / "busy-squeue.out").read_text()


def fingerprint(dialect: ModuleType, text: str, status: int = 0) -> list[str]:
    result = Result(dialect.queue_fingerprint_argv(CLUSTER), status, text, "")
    seen: list[str] = dialect.parse_queue_fingerprint(CLUSTER, result)
    return seen


def sge_without(number: int) -> str:
    entries = re.sub(rf"<job_list state=\"\w+\">\s*<JB_job_number>{number}<.*?</job_list>", "", SGE, flags=re.DOTALL)
    assert entries != SGE
    return entries


def slurm_without(number: int) -> str:
    lines = [line for line in SLURM.splitlines(keepends=True) if not line.startswith(f"{number}|")]
    assert "".join(lines) != SLURM
    return "".join(lines)


def test_grid_engine_shows_others_that_wait_and_none_of_ours() -> None:
    assert fingerprint(sge, sge_without(70)) != fingerprint(sge, SGE)
    assert fingerprint(sge, sge_without(71)) == fingerprint(sge, SGE)


def test_grid_engines_priorities_move_all_the_time_but_that_there_is_one_is_news() -> None:
    assert fingerprint(sge, SGE.replace("0.60500", "0.60700")) == fingerprint(sge, SGE)
    assert fingerprint(sge, SGE.replace("0.00000", "0.50500")) != fingerprint(sge, SGE)


def test_slurm_shows_others_that_wait_and_none_of_ours() -> None:
    assert fingerprint(slurm, slurm_without(91)) != fingerprint(slurm, SLURM)
    assert fingerprint(slurm, slurm_without(98)) == fingerprint(slurm, SLURM)


def test_why_a_job_waits_for_slurms_processors_is_no_news_but_that_it_does_not() -> None:
    assert fingerprint(slurm, SLURM.replace("|Resources|", "|Priority|")) == fingerprint(slurm, SLURM)
    assert fingerprint(slurm, SLURM.replace("|Resources|", "|JobHeldUser|")) != fingerprint(slurm, SLURM)


def test_pbs_shows_others_that_wait_and_none_of_ours() -> None:
    assert fingerprint(pbs, "13.phead\n14.phead\n15[].phead\n--\n14.phead\n") == ["13.phead", "15[].phead"]
    assert fingerprint(pbs, "\n--\n\n") == []


@pytest.mark.parametrize(
    ("dialect", "text"),
    [(sge, "<job_info/>"), (sge, SGE[:-20]), (slurm, "slurm_load_jobs\n"), (pbs, ""), (pbs, "13.phead\n")],
)
def test_what_cannot_be_read_is_no_empty_queue(dialect: ModuleType, text: str) -> None:
    with pytest.raises(BatchError):
        fingerprint(dialect, text)


@pytest.mark.parametrize("dialect", [pbs, sge, slurm])
def test_nor_is_a_failure(dialect: ModuleType) -> None:
    with pytest.raises(BatchError):
        fingerprint(dialect, "", 1)
