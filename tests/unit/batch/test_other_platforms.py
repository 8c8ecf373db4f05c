"""Elastic Slurm clusters, later Grid Engines, and odd names, on what such clusters print: `tests/data/cases`."""

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from koalapy_adapters.batch import hostlist, pbs_records, sge, sge_jobs, slurm, torque
from koalapy_adapters.batch.protocol import BatchSettings, Capacity
from koalapy_adapters.batch.sge_drmaa import FAMILY
from koalapy_adapters.errors import BatchError, ClusterError, Result

CASES = Path(__file__).parents[2] / "data" / "cases"
CLOUD = (CASES / "24-slurm-cloud-nodes.txt").read_text()
VERSIONS = (CASES / "32-sge-versions.txt").read_text().splitlines()


def capacity(sinfo: str, **cluster: Any) -> Capacity:
    settings = BatchSettings(user="koala", **cluster)
    argvs = slurm.capacity_argvs(settings)
    texts = [sinfo, "", "", "PrivateData             = none\n"]
    return slurm.parse_capacity(settings, [Result(argv, 0, text, "") for argv, text in zip(argvs, texts, strict=True)])


def test_nodes_that_slurm_boots_for_a_job_are_idle() -> None:
    found = capacity(CLOUD)
    assert (found.total, found.idle) == (20, 2 + 4 + 4)
    assert found.free_nodes == [[4, 2], [2, 1]]
    assert found.others == 4


def test_a_cluster_without_power_up_has_no_powered_down_node_idle() -> None:
    found = capacity(CLOUD, power_up=False)
    assert (found.total, found.idle, found.free_nodes) == (20, 2, [[2, 1]])


@pytest.mark.parametrize(
    "flag", ["powering_up", "powering_down", "power_down", "powered_down+not_responding", "reboot_issued"]
)
def test_other_states_of_power_start_nothing_now(flag: str) -> None:
    assert capacity(f"n1|spot*|idle+cloud+{flag}|0/4/0/4|1:4:1|NO|up|0|7500|UNLIMITED\n").idle == 0


def nodes(*partitions: str) -> str:
    return "".join(
        f"n{place}|{name}|idle|0/4/0/4|1:4:1|NO|up|0|7500|UNLIMITED\n" for place, name in enumerate(partitions)
    )


@pytest.mark.parametrize(
    ("partitions", "queue", "total"),
    [
        (("a*", "b"), None, 4),
        (("a*", "b"), "a", 4),
        (("a*", "b", "gpu"), "b,gpu", 8),
        (("gpu**", "a"), None, 4),
        (("gpu**", "a"), "gpu*", 4),
        (("gpu*", "a*"), "gpu*", 4),
        (("gpu*", "a*"), "a", 4),
        (("gpu**", "a*"), None, 4),
        (("gpu**", "a*"), "a*", 4),
    ],
)
def test_a_partitions_own_asterisk_is_not_the_mark_of_the_default(
    partitions: tuple[str, ...], queue: str | None, total: int
) -> None:
    assert capacity(nodes(*partitions), queue=queue).total == total


def test_a_partition_that_is_not_there_is_still_none() -> None:
    with pytest.raises(ClusterError, match="no partition named gpu"):
        capacity(nodes("gpu**", "a"), queue="gpu")


@pytest.mark.parametrize(
    "line", [*VERSIONS, r"GCS 9.0.6\nusage: qstat [options]", r"XGE/Plus 10.1\nusage: qstat [options]"]
)
def test_grid_engine_is_known_by_whichever_name_it_is_made(line: str) -> None:
    text = line.replace(r"\n", "\n") + "\n"
    version = line.partition(r"\n")[0].split()[1]
    assert sge.parse_describe(Result(["qstat", "-help"], 0, text, "")).version == version
    with pytest.raises(ClusterError) as caught:
        torque.parse_describe(Result(["sh", "-c", "", "qstat"], 0, text, ""))
    assert caught.value.code == "batch_system_other"


@pytest.mark.parametrize(
    "text",
    ["usage: qstat [-f] [-J]\n", "Version: 6.1.3\nCommit: 1\n", "pbs_version = 23.06.06\n", "qstat: invalid option\n"],
)
def test_other_batch_systems_are_still_others(text: str) -> None:
    with pytest.raises(BatchError):
        sge.parse_describe(Result(["qstat", "-help"], 2, "", text))


def test_the_drmaa_library_of_the_open_cluster_scheduler_is_grid_engines() -> None:
    assert [bool(re.search(FAMILY, name)) for name in ("OCS 9.0.6", "GCS 9.0.6", "SGE 8.1.9", "Slurm 24")] == [
        True, True, True, False,
    ]  # fmt: skip


def test_why_a_job_is_in_error_is_found_without_the_elements_around_it() -> None:
    root = ElementTree.fromstring((CASES / "35-uge-qstat-j.xml").read_text())
    assert sge_jobs.explanations(root) == {"4712": "can't chdir to /s/x: No such file or directory"}


def test_a_users_backslash_is_read_from_grid_engines_list() -> None:
    result = Result(["qstat", "-xml"], 0, (CASES / "36-sge-user-backslash.xml").read_text(), "")
    (job,) = sge_jobs.jobs(sge_jobs.listing(result))
    assert (job.batch_id, job.name, sge_jobs.status(job, result).state) == ("7", "kj1a2b3c4d5e6f7", "running")
    found = sge.parse_find(result, "kj1a2b3c4d5e6f7")
    assert found is not None
    assert found.batch_id == "7"


def test_host_lists_of_strangers_clusters() -> None:
    lines = (CASES / "23-slurm-hostlists.txt").read_text().splitlines()
    foo = ["foo003", *(f"foo0{n}" for n in range(10, 21)), "foo103", "foo104", "foo10", "foo12", "foo13", "foo14"]
    assert [hostlist.expand(line) for line in lines] == [
        ["c427-032", "c429-002"],
        ["c457-011", "c457-012"],
        ["c438-062", "c438-104"],
        [*foo, "foo-m11-16"],
        ["cn-10-01", "cn-10-02", "cn-11-01", "cn-11-02"],
        ["ml-16-node-001", "ml-16-node-002", "ml-16-node-004", *(f"ml-17-node-00{n}" for n in (1, 2, 3))],
        ["host.domain1.example", "host.domain2.example"],
    ]


def test_a_task_on_a_core_with_two_threads_is_one_processor() -> None:
    lines = (CASES / "28-slurm-environment-hyperthreads.txt").read_text().splitlines()
    (host,) = slurm.hosts(dict(line.split("=", 1) for line in lines), lambda path: "")
    assert (host.name, host.processors) == ("c-7", 1)


def test_torque_s_jobs_and_nodes_are_read() -> None:
    listed = Result(
        [*torque.status_argv(["4711.master.example"])], 0, (CASES / "40-torque-qstat-x.xml").read_text(), ""
    )
    found = torque.parse_find(listed, "kj1a2b3c4d5e6f7")
    assert found is not None
    assert (found.batch_id, found.state) == ("4711.master.example", "running")
    shown = Result(["pbsnodes", "-a"], 0, (CASES / "41-torque-pbsnodes.txt").read_text(), "")
    nodes = pbs_records.nodes(shown)
    assert [(node.name, node.fields["state"], node.fields["np"]) for node in nodes] == [
        ("wn0835.example", "job-exclusive", "8"),
        ("wn0787.example", "free", "8"),
        ("0xx.example", "down,offline", "4"),
    ]
