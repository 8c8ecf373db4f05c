"""Grid Engine's dialect reads a queue: from captured output, and from that changed in one respect."""

import re
from pathlib import Path

import pytest
from koalapy_adapters.batch import sge
from koalapy_adapters.batch.protocol import BatchSettings, Capacity
from koalapy_adapters.errors import ClusterError, Result

SAMPLES = Path(__file__).parents[1] / "samples" / "sge"
CLUSTER = BatchSettings(user="koala", queue="all.q", parallel_environment="mpi")
ENVIRONMENT = (SAMPLES / "qconf_sp_mpi.out").read_text()


def tag(number: int) -> str:
    return f"kaaaaa{number:09d}"


def said(name: str) -> Result:
    """A command that printed this sample on stdout."""
    return printed((SAMPLES / f"{name}.out").read_text())


def printed(text: str) -> Result:
    return Result(["a command"], 0, text, "")


def captured(state: str, cluster: BatchSettings = CLUSTER, selected: str = "", **rules: str) -> Capacity:
    return capacity(said(f"{state}-qstat"), said(selected or f"{state}-qselect"), cluster, **rules)


def capacity(
    listed: Result,
    selected: Result,
    cluster: BatchSettings = CLUSTER,
    environment: str = "$fill_up",
    quotas: str = "",
) -> Capacity:
    """`environment`: its allocation rule."""
    results = [listed, selected, printed(quotas)]
    if cluster.parallel_environment:
        results.append(printed(ENVIRONMENT.replace("$fill_up", environment)))
    return sge.parse_capacity(cluster, results)


def test_a_busy_cluster() -> None:
    """Three hosts of four processors in two queues: all.q has 3 of wombat's and 6 of ours, short.q 1 of wombat's."""
    seen = captured("busy")
    assert (seen.total, seen.idle, seen.ours, seen.others) == (12, 2, 6, 4)
    assert (seen.free_nodes, seen.unit) == ([[2, 1]], "slot")
    assert seen.allocated == [tag(11)]
    assert sorted(seen.pending) == [tag(12), tag(13), tag(14)]
    assert {status.name: (status.state, status.stuck) for status in seen.statuses.values()} == {
        tag(11): ("running", ""),
        tag(12): ("queued", ""),
        tag(13): ("held", ""),
        tag(14): ("queued", "error_state"),
    }


def test_local_jobs_that_wait_are_those_that_want_slots_now() -> None:
    """wombat's 12 slots; not the held one, the one in error, nor the one whose start time is years away."""
    assert captured("busy").waiting_local == 1


def test_a_local_job_lacks_whole_hosts() -> None:
    """wombat wants 12 slots, which are all three hosts; two slots of one are idle, and no host is."""
    seen = captured("busy")
    assert (seen.idle, seen.wanted_local, seen.whole_nodes, seen.others_hidden) == (2, 2 + 12, [], False)


@pytest.mark.parametrize(
    ("tasks", "wanted"), [("", 1), ("7", 1), ("3,4", 2), ("1-9:4", 6), ("2,5-9:2", 6), ("1-9:1", 10), ("1-999:1", 14)]
)
def test_each_task_of_an_array_counts(tasks: str, wanted: int) -> None:
    """On the two slots that are idle, then on hosts of four that must be given back."""
    text = said("busy-qstat").stdout.replace("<slots>12</slots>", f"<slots>1</slots><tasks>{tasks}</tasks>")
    assert capacity(printed(text), said("busy-qselect")).wanted_local == wanted


def test_what_a_sweeps_launcher_waits_for_counts_for_nobody() -> None:
    waits = r"<JB_name>[^<]*(</JB_name>\s*<JB_owner>wombat</JB_owner>\s*<state>qw)"
    launcher = re.sub(waits, r"<JB_name>kbbbbbg00000011\1", said("busy-qstat").stdout)
    seen = capacity(printed(launcher), said("busy-qselect"))
    assert (seen.waiting_local, seen.wanted_local) == (0, 0)


def test_hosts_that_are_idle_altogether() -> None:
    queue = "<Queue-List><name>all.q@{}</name><qtype>BIP</qtype><slots_used>{}</slots_used><slots_total>4</slots_total>"
    lists = "".join(f"{queue.format(host, used)}</Queue-List>" for host, used in (("a", 0), ("b", 1), ("c", 0)))
    listing = printed(f"<job_info><queue_info>{lists}</queue_info><job_info/></job_info>")
    seen = capacity(listing, printed("all.q@a\nall.q@b\nall.q@c\n"))
    assert (seen.whole_nodes, seen.free_nodes) == ([[4, 2]], [[4, 2], [3, 1]])


def test_without_priorities_every_waiting_job_counts() -> None:
    ungraded = re.sub(r"(<JAT_prio>)[\d.]+", r"\g<1>0.00000", said("busy-qstat").stdout)
    assert capacity(printed(ungraded), said("busy-qselect")).waiting_local == 2


def test_processors_in_several_queues_count_once() -> None:
    both = captured("busy", BatchSettings(user="koala"), "busy-any-qselect")
    assert (both.total, both.idle, both.ours, both.others) == (12, 2, 6, 4)


def test_without_a_limit_of_the_host_its_largest_queue_is_its_size() -> None:
    unlimited = re.sub(r' *<resource name="slots" type="hc">.*\n', "", said("busy-qstat").stdout)
    seen = capacity(printed(unlimited), said("busy-any-qselect"), BatchSettings(user="koala"))
    assert (seen.total, seen.idle, seen.free_nodes) == (12, 2, [[2, 1]])


def test_hosts_that_do_not_answer_and_disabled_queues_are_out() -> None:
    seen = captured("down")
    assert (seen.total, seen.idle, seen.free_nodes) == (12, 4, [[4, 1]])


@pytest.mark.parametrize("state", ["a", "A", "u", "au", "d", "D", "s", "S", "C", "E", "c", "o", "P"])
def test_any_state_of_a_queue_means_that_nothing_starts_there(state: str) -> None:
    stopped = said("busy-qstat").stdout.replace("</Queue-List>", f"<state>{state}</state></Queue-List>")
    assert capacity(printed(stopped), said("busy-qselect")).idle == 0


def test_slots_of_an_advance_reservation_are_out() -> None:
    reserved = said("busy-qstat").stdout.replace("<slots_resv>0", "<slots_resv>2")
    assert capacity(printed(reserved), said("busy-qselect")).idle == 1


def test_interactive_queues_run_no_batch_jobs() -> None:
    interactive = said("busy-qstat").stdout.replace("BIP", "I")
    assert capacity(printed(interactive), said("busy-qselect")).idle == 0


def test_exclusive_allocation_counts_whole_hosts_only() -> None:
    assert captured("busy", CLUSTER._replace(exclusive=True)).idle == 0
    assert captured("down", CLUSTER._replace(exclusive=True)).idle == 4


def test_hosts_of_other_queues_do_not_count() -> None:
    seen = capacity(said("busy-qstat"), printed("all.q@nu-c3\n"))
    assert (seen.total, seen.idle, seen.ours, seen.others) == (4, 2, 1, 1)


@pytest.mark.parametrize("words", ["", "error: no such parallel environment\n"])
def test_a_queue_that_is_not_there(words: str) -> None:
    with pytest.raises(ClusterError) as caught:
        capacity(said("busy-qstat"), Result(["qselect"], 1, "", words))
    assert caught.value.code == "no_such_queue"


def test_the_sample_of_another_cluster() -> None:
    """Eight slots, seven in use by untagged jobs; a job that is starting again, arrays, and five that wait in vain."""
    seen = capacity(said("qstat_f_xml"), printed("all.q@gamma\nshort.q@gamma\n"), BatchSettings(user="koala"))
    assert (seen.total, seen.idle, seen.ours, seen.others, seen.waiting_local) == (8, 1, 0, 7, 1)


def test_memory_is_that_of_the_smallest_host_of_the_queue() -> None:
    assert captured("busy").memory is None
    sizes = iter(["7.500G", "100.000M"])
    text = re.sub(
        "(?=<resource)",
        lambda _: f'<resource name="mem_total" type="hl">{next(sizes, "9.000G")}</resource>',
        said("busy-qstat").stdout,
    )
    assert capacity(printed(text), said("busy-qselect")).memory == 100 << 20
