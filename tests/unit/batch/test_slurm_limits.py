"""The limits of an account, as Slurm 24.11 and 22.05 print them."""

from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters.batch import slurm, slurm_limits
from koalapy_adapters.batch.protocol import BatchSettings, Capacity
from koalapy_adapters.batch.slurm_limits import Limits
from koalapy_adapters.errors import Result

SAMPLES = Path(__file__).parents[1] / "samples" / "slurm"
CLUSTER = BatchSettings(user="koala")
TAG = "kaaaaa000000001"


def said(name: str) -> str:
    return (SAMPLES / f"{name}.out").read_text()


def limits(text: str, exit_status: int = 0, **cluster: Any) -> Limits:
    return slurm_limits.limits(CLUSTER._replace(**cluster), Result(["scontrol"], exit_status, text, ""))


@pytest.mark.parametrize(
    ("account", "room", "largest"),
    [(None, None, None), ("grid", None, None), ("small", 0, 2), ("few", 0, None), ("nobody", None, None)],
    ids=["default", "unlimited", "processors", "jobs", "unknown"],
)
def test_the_room_of_an_account_that_is_in_use(account: str | None, room: int | None, largest: int | None) -> None:
    """Small may have 2 processors and has them, few may run one job and does."""
    cluster: dict[str, Any] = {"account": account} if account else {}
    assert limits(said("24.11-limits-scontrol"), **cluster) == Limits(room, largest, most=2)


def test_the_room_of_an_account_that_is_not_all_in_use() -> None:
    text = said("24.11-limits-scontrol").replace("GrpTRES=cpu=2(2)", "GrpTRES=mem=4000(200),cpu=7(2)")
    assert limits(text, account="small") == Limits(5, 7, 7)


def test_a_limit_further_up_holds_below_too() -> None:
    text = said("24.11-limits-scontrol")
    above = text.index("GrpTRES=cpu=N(6)")  # of the account root, above all others
    text = text[:above] + text[above:].replace("GrpTRES=cpu=N(6)", "GrpTRES=cpu=9(6)", 1)
    assert limits(text) == Limits(3, 9, 9)


def test_a_quality_of_service_counts_where_the_grid_file_names_it() -> None:
    """It allows each user 4 processors, of which 2 are in use."""
    assert "qos=short" in slurm_limits.argv(CLUSTER._replace(qos="short"))
    found = limits(said("24.11-limits-qos-scontrol"), qos="short")
    assert (found.room, found.largest) == (2, 4)


def test_a_limit_on_each_job_leaves_room_for_others() -> None:
    text = said("24.11-limits-scontrol").replace("MaxTRESPJ=\n", "MaxTRESPJ=cpu=3,mem=100M\n")
    assert (limits(text).room, limits(text).largest) == (None, 3)


def test_an_association_of_another_partition_does_not_count() -> None:
    text = said("24.11-limits-scontrol").replace(
        "UserName=koala(2000) Partition= ", "UserName=koala(2000) Partition=x "
    )
    assert limits(text, account="small") == Limits()
    assert limits(text, account="small", queue="batch,x").room == 0


def test_without_accounts_or_an_answer_there_are_no_limits() -> None:
    assert limits(said("no-limits-scontrol")) == Limits()
    assert limits("", exit_status=1) == Limits()


def test_accounts_that_are_each_other_s_parents_do_not_hang() -> None:
    record = "ClusterName=x Account={} UserName={} Partition= ID=1\n ParentAccount={}(1) DefAssoc=Yes\n"
    text = record.format("a", "", "b") + record.format("b", "", "a") + record.format("a", "koala(1)", "")
    assert limits(text) == Limits()


def capacity(squeue: str, **cluster: Any) -> Capacity:
    here = CLUSTER._replace(**cluster)
    answers = [said("24.11-limits-sinfo"), squeue, said("24.11-limits-scontrol"), "PrivateData = none"]
    results = [Result(argv, 0, text, "") for argv, text in zip(slurm.capacity_argvs(here), answers, strict=True)]
    return slurm.parse_capacity(here, results)


def test_no_more_is_idle_than_the_account_may_have() -> None:
    assert capacity(said("24.11-limits-squeue")).idle == 2
    small = capacity(said("24.11-limits-squeue"), account="small")
    assert (small.idle, small.largest) == (0, 2)


@pytest.mark.parametrize(("processors", "stuck"), [(4, "assoc_grp_cpu_limit"), (2, "")])
def test_a_job_that_its_account_can_never_run_is_stuck(processors: int, stuck: str) -> None:
    line = f"27|PENDING|koala|batch|{processors}|0:0|0|AssocGrpCpuLimit|{TAG}\n"
    assert capacity(line).statuses["27"].stuck == stuck
