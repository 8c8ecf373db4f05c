"""What Slurm's dialect makes of a partition: on captured output, and on lines of it changed in one respect."""

from pathlib import Path

import pytest
from koalapy_adapters.batch import slurm
from koalapy_adapters.batch.protocol import Capacity, Site
from koalapy_adapters.errors import Result, SiteError, TransientError, UnreadableError

SAMPLES = Path(__file__).parent / "samples" / "slurm"
SITE = Site(user="koala")
IDLE = "c1|batch*|idle|0/4/0/4|1:4:1|NO|up|0|4000|UNLIMITED\n"


def capacity(sinfo: str, squeue: str = "", site: Site = SITE, reservation: str = "", limits: str = "") -> Capacity:
    answers = [sinfo, squeue, limits, reservation]
    results = [Result(argv, 0, text, "") for argv, text in zip(slurm.capacity_argvs(site), answers, strict=False)]
    return slurm.parse_capacity(site, results)


def captured(state: str, site: Site = SITE) -> Capacity:
    sinfo, squeue = ((SAMPLES / f"{state}-{command}.out").read_text() for command in ("sinfo", "squeue"))
    reservation = SAMPLES / f"{state}-scontrol.out"
    return capacity(sinfo, squeue, site, reservation.read_text() if reservation.exists() else "")


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


def test_only_a_reservations_nodes_count_and_drained_ones_are_out() -> None:
    reserved = captured("reserved", SITE._replace(reservation="tutorial"))
    assert (reserved.total, reserved.idle, reserved.free_nodes) == (12, 8, [[4, 2]])


def test_a_node_in_several_partitions_counts_once() -> None:
    again = IDLE.replace("batch*", "high")
    assert capacity(IDLE + again).total == 4
    assert capacity(IDLE + again, site=SITE._replace(queue="high,batch")).idle == 4


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
        "idle+powered_down",
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


def test_whole_nodes_only_where_allocation_is_exclusive() -> None:
    mixed = "c2|batch*|mixed|1/3/0/4|1:4:1|NO|up|100|4000|UNLIMITED\n"
    assert capacity(IDLE + mixed).free_nodes == [[4, 1], [3, 1]]
    assert capacity(IDLE + mixed, site=SITE._replace(exclusive=True)).free_nodes == [[4, 1]]
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


@pytest.mark.parametrize("site", [SITE._replace(queue="nope"), SITE], ids=["unknown", "no default"])
def test_a_queue_that_is_not_there(site: Site) -> None:
    with pytest.raises(SiteError) as caught:
        capacity(IDLE.replace("batch*", "batch"), site=site)
    assert caught.value.code == "no_such_queue"


def test_a_reservation_that_is_not_there_or_not_yet() -> None:
    site = SITE._replace(reservation="nope")
    nothing = Result([], 0, "", "")
    results = [Result([], 0, IDLE, ""), nothing, nothing, Result([], 1, "Reservation nope not found\n", "")]
    with pytest.raises(SiteError) as caught:
        slurm.parse_capacity(site, results)
    assert caught.value.code == "no_such_reservation"
    assert capacity(IDLE, site=site, reservation="ReservationName=nope Nodes=c1 State=INACTIVE").idle == 0


def test_a_controller_that_is_down() -> None:
    words = (SAMPLES / "ctld_down_sinfo.err").read_text()
    with pytest.raises(TransientError):
        slurm.parse_capacity(SITE, [Result(["sinfo"], 1, "", words), Result(["squeue"], 1, "", words)])


def test_lines_that_are_no_nodes() -> None:
    with pytest.raises(UnreadableError):
        capacity("Something new\n")
