"""OpenPBS's dialect reads a queue: from captured output, and from such output changed in one respect."""

import json
from pathlib import Path
from typing import Any

import pytest
from koalapy_adapters.batch import pbs
from koalapy_adapters.batch.protocol import BatchSettings, Capacity
from koalapy_adapters.errors import BatchError, ClusterError, Result, TransientError, UnreadableError

SAMPLES = Path(__file__).parents[1] / "samples" / "pbs"
CLUSTER = BatchSettings(user="kuser")
OURS, OTHERS = "kaaaaa000000001", "fill"
Table = dict[str, Any]


def sample(name: str, table: str) -> Table:
    found: Table = json.loads((SAMPLES / name).read_text()).get(table, {})
    return found


class Cluster:
    """Four nodes of two processors, four queues, no job: to be changed before it is measured."""

    def __init__(self, nodes: str = "pbsnodes-a.json") -> None:
        self.nodes = sample(nodes, "nodes")
        self.jobs: Table = {}
        self.queues = sample("qstat-Q-f.json", "Queue")
        self.servers = sample("qstat-B-f.json", "Server")

    def add(self, name: str, state: str, processors: int, user: str = "kuser", **more: Any) -> None:
        (fields,) = sample("job-running.json", "Jobs").values()
        fields.update(Job_Name=name, job_state=state, Job_Owner=f"{user}@pbs-head", comment="", **more)
        fields["Resource_List"]["ncpus"] = processors
        self.jobs[f"{len(self.jobs)}.pbs-head"] = fields

    def take(self, node: str, processors: int) -> None:
        self.nodes[node].update(resources_assigned={"ncpus": processors}, jobs=["1.pbs-head"])
        if processors == 2:
            self.nodes[node]["state"] = "job-busy"

    @property
    def server(self) -> Table:
        found: Table = self.servers["pbs-head"]
        return found

    def measure(self, cluster: BatchSettings = CLUSTER) -> Capacity:
        tables = ({"nodes": self.nodes}, {"Jobs": self.jobs}, {"Queue": self.queues}, {"Server": self.servers})
        argvs = pbs.capacity_argvs(cluster)
        results = [Result(argv, 0, json.dumps(table), "") for argv, table in zip(argvs, tables, strict=True)]
        return pbs.parse_capacity(cluster, results)


def test_an_idle_cluster() -> None:
    seen = Cluster().measure()
    assert (seen.total, seen.idle, seen.ours, seen.others, seen.free_nodes) == (8, 8, 0, 0, [[2, 4]])


def test_ours_and_others() -> None:
    cluster = Cluster()
    cluster.add(OURS, "R", 1)
    cluster.add(OURS, "H", 1)
    cluster.add(OURS, "R", 2, user="wombat")  # anybody may call a job so
    cluster.add(OTHERS, "R", 1)
    cluster.take("node01", 2)
    cluster.take("node02", 2)
    seen = cluster.measure()
    assert (seen.total, seen.idle, seen.ours, seen.others, seen.free_nodes) == (8, 4, 1, 3, [[2, 2]])
    assert (seen.allocated, seen.pending) == ([OURS], [OURS])
    assert {status.state for status in seen.statuses.values()} == {"running", "held"}


@pytest.mark.parametrize(
    ("state", "more", "waiting"),
    [
        ("Q", {"comment": ""}, 1),
        ("Q", {"comment": "Not Running: Not enough free nodes available"}, 1),
        ("Q", {"comment": "Not Running: Insufficient amount of resource: ncpus (R: 2 A: 0 T: 8)"}, 1),
        ("Q", {"comment": "Not Running: User has reached queue workq running job limit."}, 0),
        ("Q", {"comment": "Not Running: would exceed user wombat's limit on resource ncpus in queue workq"}, 0),
        ("Q", {"comment": "Not Running: Queue not started."}, 0),
        ("Q", {"comment": "Can Never Run: Not enough total nodes available"}, 0),
        ("Q", {"comment": "", "queue": "R17"}, 0),
        ("H", {}, 0),
        ("W", {}, 0),
        ("R", {}, 0),
        ("B", {"array_state_count": "Queued:3 Running:2 Exiting:0 Expired:1"}, 3),
        ("B", {"array_state_count": "Queued:9 Running:2 Exiting:0 Expired:1", "max_run_subjobs": 3}, 1),
        ("H", {"array_state_count": "Queued:3 Running:0 Exiting:0 Expired:0"}, 0),
    ],
)
def test_local_jobs_that_wait_are_those_that_want_processors_now(state: str, more: Table, waiting: int) -> None:
    cluster = Cluster()
    cluster.queues["R17"] = {**cluster.queues["workq"], "hasnodes": "True"}
    cluster.add(OTHERS, state, 1, user="wombat")
    cluster.jobs["0.pbs-head"].update(more)
    assert cluster.measure().waiting_local == waiting


@pytest.mark.parametrize(
    "state",
    [
        "down",
        "offline",
        "state-unknown,down",
        "job-exclusive",
        "resv-exclusive",
        "busy",
        "Stale",
        "maintenance",
        "provisioning",
        "free,offline",
        "job-busy",
        "something-new",
    ],
)
def test_nodes_that_can_start_nothing_now(state: str) -> None:
    cluster = Cluster()
    cluster.nodes["node01"]["state"] = state
    seen = cluster.measure()
    assert (seen.total, seen.idle, seen.free_nodes) == (8, 6, [[2, 3]])


def test_a_node_with_reservations_to_come_is_left_alone() -> None:
    cluster = Cluster()
    cluster.nodes["node01"]["resv"] = "R17.pbs-head"
    assert cluster.measure().idle == 6


def test_a_reservation_is_a_queue_with_nodes_of_its_own() -> None:
    cluster = Cluster()
    cluster.nodes["node01"].update(resv="R17.pbs-head", queue="R17")
    cluster.queues["R17"] = {**cluster.queues["workq"], "hasnodes": "True"}
    assert cluster.measure(CLUSTER._replace(reservation="R17.pbs-head", queue="workq")).total == 2
    assert cluster.measure().total == 6


def test_exclusive_allocation_counts_whole_nodes_only() -> None:
    cluster = Cluster("pbsnodes-a-busy.json")
    assert cluster.measure().free_nodes == [[2, 3], [1, 1]]
    assert cluster.measure(CLUSTER._replace(exclusive=True)).free_nodes == [[2, 3]]
    cluster.nodes["node01"]["sharing"] = "default_exclhost"
    assert cluster.measure().free_nodes == [[2, 3]]


def test_vnodes_of_a_host_make_one_node() -> None:
    cluster = Cluster()
    cluster.nodes["node02"]["resources_available"]["host"] = "node01"
    assert cluster.measure().free_nodes == [[4, 1], [2, 2]]


def test_a_node_without_memory() -> None:
    cluster = Cluster()
    cluster.nodes["node01"]["resources_assigned"] = {"mem": "4194304kb", "ncpus": 1}
    assert cluster.measure().idle == 6


def test_memory_is_that_of_the_smallest_node() -> None:
    cluster = Cluster()
    cluster.nodes["node01"]["resources_available"]["mem"] = "2gb"
    cluster.nodes["node02"]["resources_available"].pop("mem", None)
    assert cluster.measure().memory == 2 << 30


def test_where_a_queue_adds_a_word_to_each_chunk_only_nodes_that_have_it_count() -> None:
    cluster = Cluster()
    cluster.queues["workq"]["default_chunk"] = {"Qlist": "workq", "ncpus": 1, "mem": "1gb"}
    cluster.nodes["node01"]["resources_available"]["Qlist"] = "short,workq"
    assert cluster.measure().total == 2


def test_only_nodes_that_meet_the_constraint_count() -> None:
    cluster = Cluster()
    cluster.nodes["node01"]["resources_available"].update(model="haswell", ib="True")
    cluster.nodes["node02"]["resources_available"]["model"] = "haswell"
    assert cluster.measure(CLUSTER._replace(constraint="model=haswell:mem=1gb")).total == 4
    assert cluster.measure(CLUSTER._replace(constraint="model=haswell:ib=True")).total == 2


def test_a_job_that_cannot_be_read_hides_ours_only_if_it_is_one() -> None:
    cluster = Cluster()
    cluster.add("fill", "?", 1)
    cluster.add(OURS, "R", 1)
    assert cluster.measure().allocated == [OURS]
    cluster.add(OURS, "?", 1)
    with pytest.raises(UnreadableError):
        cluster.measure()


def test_a_queue_that_routes_has_what_its_destinations_have() -> None:
    cluster = Cluster()
    cluster.queues["route"] = {
        "queue_type": "Route",
        "route_destinations": "short,own,other@far,parked",
        "enabled": "True",
        "started": "True",
    }
    cluster.queues["own"] = {**cluster.queues["workq"], "hasnodes": "True"}
    cluster.nodes["node01"]["queue"] = "own"
    cluster.nodes["node02"]["queue"] = "elsewhere"
    assert cluster.measure(CLUSTER._replace(queue="route")).total == 6
    cluster.queues["route"]["route_destinations"] = "parked"
    assert cluster.measure(CLUSTER._replace(queue="route")).total == 0


@pytest.mark.parametrize("queue", ["closed", "parked"])
def test_a_queue_that_is_closed_or_stopped_has_nothing_idle(queue: str) -> None:
    seen = Cluster().measure(CLUSTER._replace(queue=queue))
    assert (seen.total, seen.idle, seen.free_nodes) == (8, 0, [])


def test_a_server_that_schedules_nothing_has_nothing_idle() -> None:
    cluster = Cluster()
    cluster.server["scheduling"] = "False"
    assert cluster.measure().idle == 0


@pytest.mark.parametrize(
    ("limit", "idle"),
    [
        ({"max_run_res": {"ncpus": "[u:PBS_GENERIC=3]"}}, 2),
        ({"max_run_res": {"ncpus": "[u:PBS_GENERIC=3],[u:kuser=5]"}}, 4),
        ({"max_run_res": {"ncpus": "[o:PBS_ALL=6]"}}, 3),
        ({"max_run_res": {"ncpus": "[u:wombat=1],[g:PBS_GENERIC=1]"}}, 5),
        ({"max_run": "[u:PBS_GENERIC=1]"}, 0),
        ({"max_run": "[u:PBS_GENERIC=2]"}, 5),
        ({"max_run": "[o:PBS_ALL=2]"}, 0),
        ({"max_user_run": 1}, 0),
        ({"max_running": 3}, 5),
        ({"resources_available": {"ncpus": 4}}, 1),
    ],
)
@pytest.mark.parametrize("place", ["queue", "server"])
def test_own_limits_are_applied(place: str, limit: Table, idle: int) -> None:
    cluster = Cluster()
    cluster.add(OURS, "R", 1)
    cluster.add(OTHERS, "R", 2, user="wombat")
    cluster.take("node01", 2)
    cluster.take("node02", 1)
    (cluster.server if place == "server" else cluster.queues["workq"]).update(limit)
    seen = cluster.measure()
    assert seen.idle == idle
    assert sum(free * nodes for free, nodes in seen.free_nodes) == idle


@pytest.mark.parametrize("cluster", [CLUSTER._replace(queue="nope"), CLUSTER._replace(reservation="R1")])
def test_a_queue_that_is_not_there(cluster: BatchSettings) -> None:
    with pytest.raises(ClusterError) as caught:
        Cluster().measure(cluster)
    assert caught.value.code == ("no_such_reservation" if cluster.reservation else "no_such_queue")


def test_without_a_default_queue_one_must_be_named() -> None:
    cluster = Cluster()
    del cluster.server["default_queue"]
    with pytest.raises(ClusterError) as caught:
        cluster.measure()
    assert "default" in caught.value.message
    assert cluster.measure(CLUSTER._replace(queue="workq@pbs-head")).idle == 8


@pytest.mark.parametrize("failed", range(4))
def test_a_server_that_is_down(failed: int) -> None:
    answers = ["pbsnodes-a.json", "qstat-empty.json", "qstat-Q-f.json", "qstat-B-f.json"]
    results = [Result(["x"], 0, (SAMPLES / name).read_text(), "") for name in answers]
    results[failed] = Result(["x"], 255, "", "Connection refused\nqstat: cannot connect to server pbs-head (errno=111)")
    with pytest.raises(TransientError):
        pbs.parse_capacity(CLUSTER, results)


@pytest.mark.parametrize("damage", [{"nodes": {}}, {"nodes": []}, {"nodes": {"node01": 5}}, []])
def test_nodes_that_are_none(damage: object) -> None:
    results = [Result(["x"], 0, json.dumps(damage), "")]
    results += [Result(["x"], 0, (SAMPLES / name).read_text(), "") for name in ("qstat-empty.json", "qstat-Q-f.json")]
    results += [Result(["x"], 0, (SAMPLES / "qstat-B-f.json").read_text(), "")]
    with pytest.raises(UnreadableError):
        pbs.parse_capacity(CLUSTER, results)


def test_a_count_that_is_none() -> None:
    cluster = Cluster()
    cluster.nodes["node01"]["resources_available"]["ncpus"] = "two"
    with pytest.raises(BatchError, match="two"):
        cluster.measure()


@pytest.mark.parametrize(
    ("asks", "lacks"),
    [
        ({"ncpus": 2, "nodect": 1, "place": "free"}, 2),
        ({"ncpus": 1, "nodect": 1, "place": "free"}, 2),
        ({"ncpus": 2, "nodect": 2, "place": "scatter"}, 4),
        ({"ncpus": 1, "nodect": 1, "place": "pack:exclhost"}, 2),
        ({"ncpus": 999, "nodect": 500, "place": "scatter"}, 8),
    ],
)
def test_a_local_job_lacks_whole_nodes(asks: Table, lacks: int) -> None:
    cluster = Cluster()
    for node in cluster.nodes:
        cluster.take(node, 2)
    cluster.add(OTHERS, "Q", 1, user="wombat", Resource_List=dict(asks))
    cluster.jobs["0.pbs-head"]["Resource_List"].update(asks)
    assert (cluster.measure().wanted_local, cluster.measure().whole_nodes) == (lacks, [])


def test_each_task_of_an_array_counts_and_the_jobs_of_a_queue_elsewhere_do_not() -> None:
    cluster = Cluster()
    for node in cluster.nodes:
        cluster.take(node, 2)
    counts = {"array_state_count": "Queued:3 Running:2 Exiting:0 Expired:1"}
    cluster.add(OTHERS, "B", 1, user="wombat", **counts)
    assert cluster.measure().wanted_local == 4
    cluster.queues["R17"] = {**cluster.queues["workq"], "hasnodes": "True"}
    cluster.jobs["0.pbs-head"]["queue"] = "R17"
    assert cluster.measure().wanted_local == 0


def test_nodes_that_are_idle_altogether() -> None:
    cluster = Cluster()
    cluster.take("node01", 1)
    assert (cluster.measure().whole_nodes, cluster.measure().free_nodes) == ([[2, 3]], [[2, 3], [1, 1]])


@pytest.mark.parametrize("shown", [True, False])
def test_whether_others_are_hidden(shown: bool) -> None:
    cluster = Cluster()
    cluster.server["query_other_jobs"] = str(shown)
    assert cluster.measure().others_hidden is not shown


def test_nodes_of_another_batch_system_are_no_dialects_mistake() -> None:
    said = Result(["pbsnodes", "-a", "-F", "json"], 2, "", "Unknown option: F\nUsage:\n    pbsnodes [-a]\n")
    with pytest.raises(ClusterError) as caught:
        pbs.parse_capacity(BatchSettings("me"), [said] * len(pbs.capacity_argvs(BatchSettings("me"))))
    assert caught.value.code == "batch_system_other"
