"""Parallel environments and quotas of Grid Engine: what of free slots a job can get."""

from pathlib import Path

import pytest
from koalapy_adapters.batch import sge
from koalapy_adapters.batch.protocol import BatchSettings, Capacity
from koalapy_adapters.batch.sge_environments import fewer
from koalapy_adapters.batch.sge_quotas import Room, room
from koalapy_adapters.errors import BatchError, ClusterError, Result, TransientError, UnreadableError

SAMPLES = Path(__file__).parents[1] / "samples" / "sge"
CLUSTER = BatchSettings(user="koala", queue="all.q", parallel_environment="mpi")
QUOTAS = (SAMPLES / "quotas.out").read_text()
NO_QUOTAS = Result(["qquota"], 0, "", "")


def printed(text: str, exit_status: int = 0, stderr: str = "") -> Result:
    return Result(["a command"], exit_status, text, stderr)


def listed(*hosts: tuple[int, int]) -> Result:
    """qstat of hosts with so many slots, of which so many are used."""
    element = (
        "<Queue-List><name>all.q@n{0}</name><qtype>BIP</qtype><slots_used>{2}</slots_used><slots_resv>0</slots_resv>"
        "<slots_total>{1}</slots_total><state></state></Queue-List>"
    )
    elements = (element.format(number, total, used) for number, (total, used) in enumerate(hosts))
    return printed("<job_info><queue_info>" + "".join(elements) + "</queue_info></job_info>")


def capacity(
    rule: str, *hosts: tuple[int, int], cluster: BatchSettings = CLUSTER, slots: int = 999, quotas: Result = NO_QUOTAS
) -> Capacity:
    environment = (SAMPLES / "qconf_sp_mpi.out").read_text().replace("$fill_up", rule).replace("999", str(slots))
    selected = printed("".join(f"all.q@n{number}\n" for number in range(len(hosts))))
    return sge.parse_capacity(cluster, [listed(*hosts), selected, quotas, printed(environment)])


# ---- allocation rules ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["$fill_up", "$round_robin"])
def test_slots_that_come_as_they_are(rule: str) -> None:
    seen = capacity(rule, (4, 0), (4, 1), (2, 2))
    assert (seen.total, seen.idle, seen.free_nodes) == (10, 7, [[4, 1], [3, 1]])
    assert (seen.largest, seen.largest_idle) == (None, None)


def test_all_slots_of_a_job_on_one_host() -> None:
    seen = capacity("$pe_slots", (4, 0), (4, 1), (8, 6))
    assert (seen.total, seen.idle) == (16, 9)
    assert (seen.largest, seen.largest_idle) == (8, 4)


def test_so_many_slots_of_each_host() -> None:
    """With 4, 3 and 1 free slots, a job that takes 2 of each host can get 2 + 2 + 2; of all three 4 + 4 + 2."""
    seen = capacity("2", (4, 0), (4, 1), (3, 2))
    assert (seen.total, seen.idle, seen.free_nodes) == (11, 6, [[4, 1], [2, 1]])
    assert (seen.largest, seen.largest_idle) == (10, 6)


def test_hosts_smaller_than_the_rule_give_nothing() -> None:
    seen = capacity("8", (4, 0), (8, 0))
    assert (seen.idle, seen.largest) == (8, 8)


def test_the_environments_own_slots_are_a_limit() -> None:
    assert capacity("$fill_up", (4, 0), (4, 0), slots=5).idle == 5
    assert capacity("2", (4, 0), (4, 0), slots=5).idle == 4


@pytest.mark.parametrize(("per_node", "refused"), [(2, False), (None, False), (4, True)])
def test_processors_per_node_that_the_environment_cannot_give(per_node: int | None, refused: bool) -> None:
    cluster = CLUSTER._replace(processors_per_node=per_node)
    if not refused:
        assert capacity("2", (4, 0), cluster=cluster).idle == 4
        return
    with pytest.raises(ClusterError) as caught:
        capacity("2", (4, 0), cluster=cluster)
    assert caught.value.code == "processors_per_node"
    assert "processors_per_node: 2" in caught.value.advice


@pytest.mark.parametrize(
    ("answer", "error", "code"),
    [
        (printed("", 1, "nope is not a parallel environment\n"), ClusterError, "no_such_parallel_environment"),
        (printed("pe_name mpi\nslots 4\nallocation_rule $moon\n"), UnreadableError, "unreadable_answer"),
        (printed("hello\n"), UnreadableError, "unreadable_answer"),
        (printed("", 1, "error: commlib error: got select error\n"), TransientError, "batch_system_unreachable"),
    ],
)
def test_an_environment_that_cannot_be_read(answer: Result, error: type[BatchError], code: str) -> None:
    with pytest.raises(error) as caught:
        sge.parse_capacity(CLUSTER, [listed((4, 0)), printed("all.q@n0\n"), NO_QUOTAS, answer])
    assert caught.value.code == code


def test_each_job_gets_one_of_several_environments_that_fits() -> None:
    assert len(sge.capacity_argvs(CLUSTER)) == 4
    assert len(sge.capacity_argvs(CLUSTER._replace(parallel_environment="mpi-*"))) == 3
    assert len(sge.capacity_argvs(CLUSTER._replace(parallel_environment=None))) == 3


def test_a_limit_on_all_leaves_whole_hosts_first() -> None:
    assert fewer({"a": 2, "b": 4, "c": 3}, 5) == {"b": 4, "c": 1, "a": 0}
    assert fewer({"a": 2}, -1) == {"a": 0}


# ---- quotas ----------------------------------------------------------------------------------------------------------


def test_quotas_as_captured() -> None:
    """6 slots of all.q for each user, of which one is used; 4 on each host, of which one is used on gamma-c2."""
    assert room(CLUSTER, printed(QUOTAS)) == Room(5, {"gamma-c2": 3})


def test_a_limit_of_which_nothing_is_used_is_shown_by_its_rule_only() -> None:
    assert room(CLUSTER, printed(QUOTAS.partition("<?xml")[0])) == Room(6, {})


def rules(*limits: str, enabled: str = "TRUE") -> str:
    lines = "".join(f"   limit        {limit}\n" for limit in limits)
    return f"{{\n   name         q\n   description  NONE\n   enabled      {enabled}\n{lines}}}\n"


@pytest.mark.parametrize(
    ("limits", "slots"),
    [
        (["to slots=8"], 8),
        (["users koala to slots=8"], 8),
        (["users {koala,wombat} to slots=8"], 8),
        (["users wombat to slots=8"], None),
        (["users !koala to slots=8"], None),
        (["users *,!koala to slots=8"], None),
        (["users {!wombat} to slots=8"], 8),
        (["users koala queues short.q to slots=2", "users {*} to slots=8"], 8),
        (["users koala to slots=2", "users {*} to slots=8"], 2),
        (["pes mpi to slots=8"], 8),
        (["pes !* to slots=8"], None),
        (["projects * to slots=8"], None),
        (["projects !* to slots=8"], 8),
        (["users @physics to slots=8"], None),
        (["hosts {*} to slots=4"], None),
        (["to h_vmem=8G"], None),
        (["to h_vmem=8G,slots=3"], 3),
        (["name first users koala to slots=3"], 3),
    ],
)
def test_rules_that_concern_a_job_of_this_user(limits: list[str], slots: int | None) -> None:
    assert room(CLUSTER, printed(rules(*limits))).slots == slots


def test_the_strictest_set_counts_and_a_disabled_one_does_not() -> None:
    assert room(CLUSTER, printed(rules("to slots=8") + rules("to slots=3"))).slots == 3
    assert room(CLUSTER, printed(rules("to slots=8") + rules("to slots=3", enabled="FALSE"))).slots == 8


def test_a_site_without_quotas() -> None:
    assert room(CLUSTER, NO_QUOTAS) == Room(None, {})


def test_quotas_are_taken_off_what_is_idle() -> None:
    seen = capacity("$fill_up", (4, 0), (4, 0), quotas=printed(rules("users koala to slots=6")))
    assert (seen.total, seen.idle, seen.free_nodes) == (8, 6, [[4, 1], [2, 1]])
    onehost = printed(QUOTAS.replace("gamma-c2", "n1"))
    assert capacity("$fill_up", (4, 0), (4, 0), quotas=onehost).idle == 5


def test_a_qmaster_that_is_down_reports_no_quotas() -> None:
    with pytest.raises(TransientError):
        room(CLUSTER, printed("", 1, "error: commlib error: got select error (Connection refused)\n"))
