"""Slurm's dialect reads a partition: from captured output, and from lines of it changed in one respect."""

from pathlib import Path

import pytest
from koalapy_adapters.batch import slurm
from koalapy_adapters.batch.protocol import BatchSettings, Capacity
from koalapy_adapters.errors import ClusterError, Result, TransientError, UnreadableError
from koalapy_adapters.kcm.execution.batch_system import BatchSystem
from koalapy_adapters.kcm.execution.subprocess_runner import Ran

SAMPLES = Path(__file__).parents[1] / "samples" / "slurm"
CLUSTER = BatchSettings(user="koala")
CONFIG = "PrivateData             = none\n"
IDLE = "c1|batch*|idle|0/4/0/4|1:4:1|NO|up|0|4000|UNLIMITED\n"


def capacity(
    sinfo: str,
    squeue: str = "",
    cluster: BatchSettings = CLUSTER,
    reservation: str = "",
    limits: str = "",
    config: str = CONFIG,
) -> Capacity:
    answers = [sinfo, squeue, limits, config, reservation]
    results = [Result(argv, 0, text, "") for argv, text in zip(slurm.capacity_argvs(cluster), answers, strict=False)]
    return slurm.parse_capacity(cluster, results)


def captured(state: str, cluster: BatchSettings = CLUSTER) -> Capacity:
    sinfo, squeue = ((SAMPLES / f"{state}-{command}.out").read_text() for command in ("sinfo", "squeue"))
    reservation = SAMPLES / f"{state}-scontrol.out"
    return capacity(sinfo, squeue, cluster, reservation.read_text() if reservation.exists() else "")


def test_a_busy_cluster() -> None:
    """wombat runs on 6 of 12 processors and waits for 12: Slurm plans the four that are free for that."""
    seen = captured("busy")
    assert (seen.total, seen.idle, seen.ours, seen.others, seen.free_nodes) == (12, 0, 2, 6, [])
    assert seen.allocated == ["kaaaaa000000011"]
    assert sorted(seen.pending) == ["kaaaaa000000012", "kaaaaa000000013"]
    assert {status.name: status.state for status in seen.statuses.values()} == {
        "kaaaaa000000011": "running",
        "kaaaaa000000012": "queued",
        "kaaaaa000000013": "held",
    }


def test_local_jobs_that_wait_are_those_that_want_processors_now() -> None:
    """Two of wombat's and an untagged one of our own; not the held, the postponed, nor what a job's name pretends."""
    assert captured("busy").waiting_local == 3


def test_a_node_is_not_idle_while_one_of_our_jobs_is_listed_on_it() -> None:
    """squeue is asked first: what ends before sinfo is would be counted twice, as a sweep's node and as an idle one."""
    listed = "97|RUNNING|koala|batch|4|0|0|None| kaaaaa000000011\n"
    seen = capacity(IDLE + IDLE.replace("c1", "c2"), listed)
    assert (seen.idle, seen.ours, seen.whole_nodes) == (4, 4, [[4, 1]])
    suspended = capacity(IDLE, listed.replace("RUNNING", "SUSPENDED"))
    assert suspended.idle == 4


def test_only_a_reservations_nodes_count_and_drained_ones_are_out() -> None:
    reserved = captured("reserved", CLUSTER._replace(reservation="tutorial"))
    assert (reserved.total, reserved.idle, reserved.free_nodes) == (12, 8, [[4, 2]])


def test_a_node_in_several_partitions_counts_once() -> None:
    again = IDLE.replace("batch*", "high")
    assert capacity(IDLE + again).total == 4
    assert capacity(IDLE + again, cluster=CLUSTER._replace(queue="high,batch")).idle == 4


@pytest.mark.parametrize(
    "state",
    [
        "idle+drain",
        "mixed+drain",
        "down",
        "down+not_responding",
        "idle+not_responding",
        "idle+planned",
        "mixed+planned",
        "mixed+completing",
        "idle+reserved",
        "idle+maint",
        "idle+reboot_requested",
        "IDLE+DRAIN",
        "unknown",
        "idle+something_new",
    ],
)
def test_nodes_that_can_start_nothing_now(state: str) -> None:
    seen = capacity(IDLE.replace("idle", state))
    assert (seen.total, seen.idle, seen.free_nodes) == (4, 0, [])


@pytest.mark.parametrize("state", ["idle", "IDLE", "mixed", "idle+cloud", "idle+dynamic_norm"])
def test_nodes_that_can(state: str) -> None:
    assert capacity(IDLE.replace("idle", state)).idle == 4


def test_exclusive_allocation_counts_whole_nodes_only() -> None:
    mixed = "c2|batch*|mixed|1/3/0/4|1:4:1|NO|up|100|4000|UNLIMITED\n"
    assert capacity(IDLE + mixed).free_nodes == [[4, 1], [3, 1]]
    assert capacity(IDLE + mixed, cluster=CLUSTER._replace(exclusive=True)).free_nodes == [[4, 1]]
    assert capacity((IDLE + mixed).replace("|NO|", "|EXCLUSIVE|")).free_nodes == [[4, 1]]


def test_a_partition_that_is_down_has_nothing_idle() -> None:
    assert capacity(IDLE.replace("|up|", "|drain|")).idle == 0


def test_a_node_without_memory_and_a_limit_on_each_node() -> None:
    assert capacity(IDLE.replace("|0|4000|", "|4000|4000|")).idle == 0
    assert capacity(IDLE.replace("UNLIMITED", "3")).idle == 3


@pytest.mark.parametrize(
    ("shape", "unit"), [("1:4:1", "core"), ("1:2:2", "thread"), ("1:4:2", "core")], ids=["plain", "threads", "cores"]
)
def test_the_unit(shape: str, unit: str) -> None:
    """The last node has threads, but its four processors are its four cores."""
    assert capacity(IDLE.replace("1:4:1", shape)).unit == unit


@pytest.mark.parametrize("cluster", [CLUSTER._replace(queue="nope"), CLUSTER], ids=["unknown", "no default"])
def test_a_queue_that_is_not_there(cluster: BatchSettings) -> None:
    with pytest.raises(ClusterError) as caught:
        capacity(IDLE.replace("batch*", "batch"), cluster=cluster)
    assert caught.value.code == "no_such_queue"


def test_a_reservation_that_is_not_there_or_not_yet() -> None:
    cluster = CLUSTER._replace(reservation="nope")
    nothing = Result([], 0, "", "")
    results = [Result([], 0, IDLE, ""), nothing, nothing, nothing, Result([], 1, "Reservation nope not found\n", "")]
    with pytest.raises(ClusterError) as caught:
        slurm.parse_capacity(cluster, results)
    assert caught.value.code == "no_such_reservation"
    assert capacity(IDLE, cluster=cluster, reservation="ReservationName=nope Nodes=c1 State=INACTIVE").idle == 0


def test_a_controller_that_is_down() -> None:
    words = (SAMPLES / "ctld_down_sinfo.err").read_text()
    with pytest.raises(TransientError):
        slurm.parse_capacity(CLUSTER, [Result(["sinfo"], 1, "", words), Result(["squeue"], 1, "", words)])


def test_lines_that_are_no_nodes() -> None:
    with pytest.raises(UnreadableError):
        capacity("Something new\n")


# ---- what others' waiting jobs want ----------------------------------------------------------------------------------

FULL = IDLE.replace("idle|0/4/0/4", "allocated|4/0/0/4")
HERE = "kaaaaa000000011"  # a job of this user's, of the store aaaaa
THERE = "kbbbbb000000011"
LAUNCHER = "kbbbbbg00000011"


def nodes(*lines: str) -> str:
    """These nodes of the default partition, numbered."""
    return "".join(line.replace("c1|", f"c{number}|", 1) for number, line in enumerate(lines, 1))


def waits(shape: str, user: str = "wombat", name: str = "job", reason: str = "Resources", number: int = 7) -> str:
    """`shape`: PROCESSORS NODES OVERSUBSCRIBE, and what array and which nodes it asks for."""
    processors, count, shared, array, named, feature = [*shape.split(), *[""] * 6][:6]
    array = f"{number}{array}" if array else str(number)
    fields = [number, "PENDING", user, "batch", processors, "0", "0", reason, array, count, shared, named]
    return "|".join(map(str, fields)) + f"|{feature or '(null)':6.6}|{name:>16.16}\n"


@pytest.mark.parametrize(
    ("shape", "lacks"),
    [
        ("4 1 OK", 4),
        ("1 1 OK", 4),
        ("8 2 OK", 8),
        ("2 2 OK", 8),
        ("1 1 NO", 4),
        ("1 1 OK _[1-3]", 4),
        ("1 1 OK _[1-9]", 12),
        ("1 1 OK _[1-100%2]", 4),
        ("4 1 OK _[1,3,5-8", 12),
        ("1 1 OK _[0-20:4]", 8),
        ("2K 512 OK", 12),
    ],
)
def test_a_local_job_lacks_whole_nodes(shape: str, lacks: int) -> None:
    """Three nodes are taken; no more than all of them can be given back."""
    seen = capacity(nodes(FULL, FULL, FULL), waits(shape))
    assert (seen.waiting_local, seen.wanted_local, seen.whole_nodes) == (1, lacks, [])


def test_no_more_tasks_of_an_array_start_than_its_limit_allows() -> None:
    running = waits("1 1 OK _3", number=8).replace("PENDING", "RUNNING").replace("|8_3|", "|7_3|")
    taken = nodes(FULL, FULL)
    assert capacity(taken, waits("4 1 OK _[4-9%2]") + running).wanted_local == 4
    assert capacity(taken, waits("4 1 OK _[4-9%1]") + running).wanted_local == 0


def test_pieces_that_are_of_no_use_to_it_are_lacking_too() -> None:
    """Three processors here and three there are no node: with what is idle, one more must be."""
    piece = IDLE.replace("idle|0/4/0/4", "mixed|1/3/0/4")
    assert capacity(nodes(piece, piece, FULL), waits("4 1 OK")).wanted_local == 6 + 4
    assert capacity(nodes(piece, piece, FULL), waits("3 1 OK")).wanted_local == 3
    assert capacity(nodes(piece, piece, FULL), waits("6 2 OK")).wanted_local == 6
    assert capacity(nodes(piece, piece, FULL), waits("8 2 NO")).wanted_local == 6 + 8


def test_what_slurm_keeps_for_it_is_not_lacking() -> None:
    planned = IDLE.replace("idle|", "idle+planned|")
    seen = capacity(nodes(planned, planned, FULL), waits("12 3 OK"))
    assert (seen.idle, seen.wanted_local) == (0, 4)


@pytest.mark.parametrize("asks", ["c1", "(null) haswel"])
def test_of_a_job_that_asks_for_certain_nodes_nobody_knows_whether_those_will_do(asks: str) -> None:
    named, feature = [*asks.split(), ""][:2]
    line = waits("4 1 OK").replace("|OK||(null)", f"|OK|{named}|{feature or '(null)'}")
    assert capacity(nodes(IDLE, FULL), line).wanted_local == 4 + 4


@pytest.mark.parametrize("reason", ["JobHeldUser", "Dependency", "QOSMaxCpuPerUserLimit", "BeginTime", "Licenses"])
def test_a_job_that_waits_for_something_else_lacks_nothing(reason: str) -> None:
    assert capacity(nodes(FULL), waits("4 1 OK", reason=reason)).wanted_local == 0


def test_whose_jobs_count() -> None:
    """Not what this store has waiting, which it knows; another store's of the same user as well as anybody's; and no
    Launcher of anybody's, nor as a local job.
    """
    cluster = CLUSTER._replace(instance="aaaaa")

    def seen(user: str, name: str) -> tuple[int, int]:
        found = capacity(nodes(FULL), waits("4 1 OK", user, name), cluster)
        return found.waiting_local, found.wanted_local

    assert seen("koala", HERE) == (0, 0)
    assert seen("koala", THERE) == (0, 4)
    assert seen("koala", "job") == (1, 4)
    assert seen("wombat", THERE) == (1, 4)
    assert seen("wombat", HERE) == (1, 4)
    assert seen("wombat", LAUNCHER) == seen("koala", LAUNCHER) == (0, 0)


def test_nodes_that_are_idle_altogether() -> None:
    mixed = IDLE.replace("idle|0/4/0/4", "mixed|1/3/0/4")
    large = IDLE.replace("0/4/0/4", "0/8/0/8")
    seen = capacity(nodes(IDLE, mixed, large, IDLE, FULL))
    assert (seen.whole_nodes, seen.free_nodes) == ([[8, 1], [4, 2]], [[8, 1], [4, 2], [3, 1]])
    assert capacity(nodes(IDLE.replace("idle|", "idle+planned|"))).whole_nodes == []


def test_large_numbers_of_squeue_are_in_thousands() -> None:
    running = waits("1K 256 OK", "koala", HERE).replace("PENDING", "RUNNING")
    assert capacity(nodes(FULL), running).ours == 1024


@pytest.mark.parametrize(
    ("config", "hidden"),
    [
        ("PrivateData             = none\n", False),
        ("PrivateData             = accounts,jobs,usage\n", True),
        ("PrivateData = all\n", True),
        ("PrivateData = nodes,users\n", False),
        ("", True),
    ],
)
def test_whether_others_are_hidden(config: str, hidden: bool) -> None:
    """An unknown setting counts as hidden: a scavenger must see the waiting jobs."""
    assert capacity(IDLE, config=config).others_hidden is hidden


def test_the_configuration_is_asked_for_seldom() -> None:
    answers = [Result(argv, 0, CONFIG, "") for argv in slurm.capacity_argvs(CLUSTER)]
    assert [slurm.cache_seconds(answer) > 60 for answer in answers] == [False, False, False, True]
    assert slurm.cache_seconds(answers[3]._replace(exit_status=1)) == 0
    assert slurm.cache_seconds(answers[3]._replace(stdout="")) == 0


def test_while_the_list_of_jobs_is_the_same_nothing_else_is_asked() -> None:
    """A poll every second costs one squeue; a job that comes or goes has all of it asked anew."""
    asked: list[str] = []
    answers = {"squeue": "", "sinfo": IDLE, "show assoc_mgr": "", "show config": CONFIG}

    def runner(argv: list[str], timeout: float, handle: object) -> Ran:
        asked.append(argv[0] if argv[0] != "scontrol" else " ".join(argv[1:3]))
        return Ran(Result(argv, 0, answers[asked[-1]], ""), 0)

    batch = BatchSystem(slurm, CLUSTER, runner=runner, keeps=True)
    assert [batch.capacity().idle for _ in range(3)] == [4, 4, 4]
    assert asked == ["squeue", "sinfo", "show assoc_mgr", "show config", "squeue", "squeue"]
    del asked[:]
    answers.update(squeue=waits("4 1 OK"), sinfo=FULL)
    assert (batch.capacity().idle, batch.capacity().wanted_local) == (0, 4)
    assert asked == ["squeue", "sinfo", "show assoc_mgr", "squeue"]


def test_memory_is_that_of_the_smallest_node_for_which_it_is_configured() -> None:
    """RealMemory is 1 where nobody has configured it (slurm.conf(5))."""
    small, unknown = IDLE.replace("|4000|", "|2000|"), IDLE.replace("|4000|", "|1|")
    assert capacity(nodes(IDLE, small, unknown)).memory == 2000 << 20
    assert capacity(unknown).memory is None
