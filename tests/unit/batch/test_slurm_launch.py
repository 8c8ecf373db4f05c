"""Slurm's dialect inside a job: the nodes of the allocation, and how agents are started on them."""

import pytest
from koalapy_adapters.batch import hostlist, slurm
from koalapy_adapters.batch.protocol import Host
from koalapy_adapters.errors import UnreadableError


def no_file(path: str) -> str:
    raise AssertionError(path)


def environment(**more: str) -> dict[str, str]:
    """The environment of a job of 5 processors, at most 4 a node, on two nodes with three processors each."""
    return {
        "SLURM_JOB_ID": "61",
        "SLURM_JOB_NODELIST": "mu-c[1-2]",
        "SLURM_TASKS_PER_NODE": "3(x2)",
        "SLURM_JOB_CPUS_PER_NODE": "3(x2)",
        "SLURM_NTASKS": "5",
        **more,
    }


def test_hosts_have_the_processors_asked_for_and_no_more() -> None:
    assert slurm.hosts(environment(), no_file) == [Host("mu-c1", 3), Host("mu-c2", 2)]
    assert slurm.batch_id(environment()) == "61"


def test_restarts_are_zero_by_default() -> None:
    assert slurm.restarts(environment()) == 0
    assert slurm.restarts(environment(SLURM_RESTART_COUNT="2")) == 2


def test_one_srun_starts_an_agent_on_every_node() -> None:
    (launch,) = slurm.launch(environment(), ["mu-c1", "mu-c2"], ["python3", "agent"])
    assert launch.hosts == ["mu-c1", "mu-c2"]
    assert launch.argv[0] == "srun"
    assert launch.argv[-3:] == ["--", "python3", "agent"]
    wanted = {"--nodes=2", "--ntasks=2", "--cpus-per-task=3", "--nodelist=mu-c1,mu-c2", "--export=ALL", "--overlap"}
    assert wanted < set(launch.argv)


def test_nodes_of_unequal_processors_are_started_apart() -> None:
    unequal = environment(SLURM_JOB_CPUS_PER_NODE="4,1")
    launches = slurm.launch(unequal, ["mu-c1", "mu-c2"], ["agent"])
    assert [(launch.hosts, "--cpus-per-task=4" in launch.argv) for launch in launches] == [
        (["mu-c1"], True),
        (["mu-c2"], False),
    ]


@pytest.mark.parametrize(
    "broken",
    [{"SLURM_TASKS_PER_NODE": "3"}, {"SLURM_TASKS_PER_NODE": "x"}, {"SLURM_JOB_NODELIST": "a[1-"}],
    ids=["count", "number", "list"],
)  # fmt: skip
def test_an_allocation_that_makes_no_sense_is_unreadable(broken: dict[str, str]) -> None:
    with pytest.raises(UnreadableError):
        slurm.hosts(environment(**broken), no_file)


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a", ["a"]),
        ("a,b-1", ["a", "b-1"]),
        ("a[1-3,07-09],b", ["a1", "a2", "a3", "a07", "a08", "a09", "b"]),
        ("r[1-2]n[08-10]x", ["r1n08x", "r1n09x", "r1n10x", "r2n08x", "r2n09x", "r2n10x"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
    ],
)
def test_host_lists(text: str, hosts: list[str]) -> None:
    assert hostlist.expand(text) == hosts


@pytest.mark.parametrize("text", ["", "a,,b", "a[", "a[]", "a[3-1]", "a[x]", "a[1-999999999]", "a[1-99999]b[1-99999]"])
def test_broken_host_lists(text: str) -> None:
    with pytest.raises(ValueError, match="host"):
        hostlist.expand(text)


def test_counts() -> None:
    assert hostlist.expand_counts("4(x2),1") == [4, 4, 1]
    for text in ("", "4(x)", "4(x999999999)"):
        with pytest.raises(ValueError, match="counts"):
            hostlist.expand_counts(text)
