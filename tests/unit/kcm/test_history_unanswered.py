"""A history that cannot answer: what a look at an attempt finds then, on what Grid Engine printed on a cluster."""

from pathlib import Path

import pytest
from koalapy_adapters.batch import sge
from koalapy_adapters.batch.protocol import BatchSettings
from koalapy_adapters.errors import BatchError, Result
from koalapy_adapters.kcm.execution.batch_system import BatchSystem, UnaccountedError
from koalapy_adapters.kcm.execution.subprocess_runner import Handle, Ran

CASE = Path(__file__).parents[2] / "data" / "cases" / "33-sge-qacct-no-file.txt"
NO_JOBS = "<?xml version='1.0'?>\n<job_info><queue_info></queue_info><job_info></job_info></job_info>\n"
TAG = "kabcde000000001"


def head(qacct: Result, qstat: Result) -> BatchSystem:
    """Grid Engine whose qstat and qacct have these answers."""

    def run(argv: list[str], timeout: float, handle: Handle | None) -> Ran:
        return Ran((qstat if argv[0] == "qstat" else qacct)._replace(argv=argv), 0)

    return BatchSystem(sge, BatchSettings("koala"), runner=run)


NOTHING_LISTED = Result([], 0, NO_JOBS, "")


def test_a_cluster_without_an_accounting_file_has_no_history() -> None:
    found = head(Result([], 1, "", CASE.read_text()), NOTHING_LISTED).look(TAG, "7")
    assert found == (None, None)
    (argv,) = sge.account_argvs(BatchSettings("koala"), ["7"], 0.0)
    assert sge.parse_account(Result(argv, 1, "", CASE.read_text())) == []


def test_a_failure_of_the_accounting_is_another_one_than_that_of_the_queue() -> None:
    broken = Result([], 1, "", "qacct: accounting file is on fire")
    with pytest.raises(UnaccountedError) as caught:
        head(broken, NOTHING_LISTED).look(TAG, "7")
    assert caught.value.whose == "cluster"
    assert "on fire" in caught.value.message
    with pytest.raises(BatchError) as other:
        head(broken, Result([], 1, "", "error: commlib error: got select error")).look(TAG, "7")
    assert not isinstance(other.value, UnaccountedError)


def test_a_job_that_is_listed_needs_no_history() -> None:
    job = f"<job_list><JB_job_number>7</JB_job_number><JB_name>{TAG}</JB_name><state>r</state></job_list>"
    listed = Result([], 0, NO_JOBS.replace("<queue_info>", "<queue_info>" + job), "")
    found = head(Result([], 1, "", "on fire"), listed).look(TAG, "7")
    assert found.listed is not None
    assert found.listed.state == "running"
