"""The parts of a link that need no cluster: the clocks' offset, keys passed on, translation, waits between tries."""

import json
import queue
from collections.abc import Iterator

import pytest
from koalapy_adapters import messages as wire
from koalapy_adapters.batch.protocol import Capacity
from koalapy_adapters.connections.command import CommandConnection
from koalapy_adapters.connections.docker import DockerConnection
from koalapy_adapters.connections.local import LocalConnection
from koalapy_adapters.connections.ssh import SshConnection
from koalapy_adapters.connections.ssh_route import Given
from koalapy_adapters.errors import ClusterError as WireClusterError
from koalapy_adapters.errors import Result
from koalapy_adapters.kcm.attempts import monitor

from koalapy.config.schema import Cluster as ClusterEntry
from koalapy.link import translate
from koalapy.link.conversation import ClockOffset
from koalapy.model.cluster import ClusterState
from koalapy.model.commands import SubmitAttempt
from koalapy.model.errors import Reason, TransientError
from koalapy.model.identity import AttemptId, InstanceId, JobId, tag_of
from koalapy.model.request import ComponentRequest, Launch
from koalapy.model.units import MINUTE, SECOND, Duration, Instant
from koalapy.runtime import rendezvous
from koalapy.runtime.cluster_link.connect import connection_of
from koalapy.runtime.rendezvous import RendezvousHub

INSTANCE = InstanceId("abcde")
HOUR = 3600 * SECOND

# ---- clocks


def test_without_an_answer_the_clocks_agree() -> None:
    assert ClockOffset().to_ours(5_000, Instant(10_000)) == 5_000


def test_the_offset_comes_from_the_shortest_round_trip() -> None:
    offset = ClockOffset()
    offset.add(Instant(0), HOUR + 900_000, Instant(1_000_000))  # 1 s, answered late
    offset.add(Instant(2_000_000), HOUR + 2_000_500, Instant(2_001_000))  # 1 ms
    offset.add(Instant(3_000_000), HOUR + 3_000_100, Instant(3_400_000))  # 0.4 s, answered early
    assert offset.ahead == HOUR
    assert offset.to_ours(HOUR + 7, Instant(HOUR)) == 7


def test_an_offset_is_kept_until_a_round_trip_refutes_it() -> None:
    offset = ClockOffset()
    offset.add(Instant(0), 120, Instant(200))
    assert offset.ahead == 20
    offset.add(Instant(1000), 1055, Instant(1100))  # 5 ± 50: 20 may be true
    assert offset.ahead == 20
    offset.add(Instant(2000), 2011, Instant(2020))  # 1 ± 10: 20 cannot
    assert offset.ahead == 1


def test_the_offset_follows_a_clock_that_was_set() -> None:
    offset = ClockOffset()
    for at in range(0, 20_000, 1000):
        offset.add(Instant(at), at + 5 + (HOUR if at >= 5000 else 0), Instant(at + 10))
    assert offset.ahead == HOUR


def test_no_reported_instant_is_in_the_future() -> None:
    assert ClockOffset().to_ours(11_000, Instant(10_000)) == 10_000


# ---- keys

A, B, C = AttemptId(JobId(1), 0, 1), AttemptId(JobId(1), 1, 1), AttemptId(JobId(1), 2, 1)
CLUSTERS = {A: "alpha", B: "beta", C: "beta"}


LAST = AttemptId(JobId(9), 0, 1)  # its keys are sent back at once, which shows that all earlier ones are done


class Hub:
    """A hub over three components on two clusters, with recorded links."""

    def __init__(self) -> None:
        self.clusters = dict(CLUSTERS)
        self.busy = 0
        self._sent: list[tuple[str, AttemptId, str, str]] = []
        self._turns: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.hub = RendezvousHub(self._peers, self._send)
        self.hub.start()

    def sent_so_far(self) -> list[tuple[str, AttemptId, str, str]]:
        """Wait until all keys so far are handled; return the messages since the last call."""
        self.hub.forget(LAST)
        self.hub.put("none", LAST, "turn", "")
        self._turns.get(timeout=30)
        sent, self._sent = self._sent, []
        return sent

    def _peers(self, attempt: AttemptId, cluster: str | None) -> list[tuple[str, AttemptId]]:
        if attempt == LAST:
            return [("none", LAST)]
        if self.busy:
            self.busy -= 1
            raise TransientError("busy", "koalad is busy.")
        if attempt not in self.clusters:
            return []
        return [(cluster, other) for other, cluster in self.clusters.items() if other != attempt]

    def _send(self, cluster: str, attempt: AttemptId, key: str, value: str) -> None:
        if attempt == LAST:
            self._turns.put(None)
        else:
            self._sent.append((cluster, attempt, key, value))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.setattr(rendezvous, "_RETRY_S", 0.01)
    made = Hub()
    yield made
    made.hub.close()


def test_a_key_is_sent_to_all_other_components_on_every_cluster(hub: Hub) -> None:
    hub.hub.put(hub.clusters[A], A, "port", "1")
    hub.hub.put(hub.clusters[B], B, "port", "2")
    assert hub.sent_so_far() == [
        ("beta", B, "port", "1"),
        ("beta", C, "port", "1"),
        ("alpha", A, "port", "2"),
        ("beta", C, "port", "2"),
    ]


def test_a_key_that_is_put_again_is_not_sent_again(hub: Hub) -> None:
    hub.hub.put(hub.clusters[A], A, "port", "1")
    hub.sent_so_far()
    hub.hub.put(hub.clusters[A], A, "port", "1")
    hub.hub.put(hub.clusters[A], A, "port", "another value")
    assert hub.sent_so_far() == []


def test_all_keys_are_sent_again_to_a_cluster_that_reconnects(hub: Hub) -> None:
    hub.hub.put(hub.clusters[A], A, "one", "1")
    hub.hub.put(hub.clusters[A], A, "two", "2")
    hub.hub.put(hub.clusters[C], C, "three", "3")
    hub.sent_so_far()
    hub.hub.connected("beta")
    assert hub.sent_so_far() == [
        ("beta", B, "one", "1"),
        ("beta", C, "one", "1"),
        ("beta", B, "two", "2"),
        ("beta", C, "two", "2"),
        ("beta", B, "three", "3"),
    ]
    hub.hub.connected("alpha")
    assert hub.sent_so_far() == [("alpha", A, "three", "3")]


def test_the_keys_of_an_ended_attempt_are_forgotten(hub: Hub) -> None:
    hub.hub.put(hub.clusters[A], A, "one", "1")
    hub.hub.forget(A)
    hub.hub.connected("beta")
    assert len(hub.sent_so_far()) == 2
    assert hub.hub._keys.keys() == hub.hub._sizes.keys() == {LAST}


def test_keys_of_unknown_attempts_are_not_kept(hub: Hub) -> None:
    hub.clusters = {}
    hub.hub.put("alpha", A, "one", "1")
    assert hub.sent_so_far() == []
    assert hub.hub._keys.keys() == {LAST}


def test_a_busy_koalad_loses_no_key(hub: Hub) -> None:
    hub.busy = 3
    hub.hub.put(hub.clusters[A], A, "one", "1")
    assert len(hub.sent_so_far()) == 2


def test_keys_are_limited_in_number_and_size(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous, "MAX_KEYS", 2)
    for key in ("one", "two", "three"):
        hub.hub.put(hub.clusters[A], A, key, "1")
    assert {put[2] for put in hub.sent_so_far()} == {"one", "two"}
    monkeypatch.setattr(rendezvous, "MAX_BYTES", 10)
    hub.hub.put(hub.clusters[B], B, "key", "x" * 10)
    assert hub.sent_so_far() == []


# ---- translation


def submit_command(**wishes: object) -> SubmitAttempt:
    wanted: dict[str, object] = {"processors": 4, "executable": "./a.out"}
    return SubmitAttempt(
        cluster="alpha",
        attempt=AttemptId(JobId(7), 1, 2),
        components=3,
        request=ComponentRequest(**{**wanted, **wishes}),  # type: ignore[arg-type]
        walltime=Duration(90 * SECOND + 1),
        barrier_timeout=Duration(5 * MINUTE),
        stage_in=(),
        directory="/",
    )


def test_a_submit_message_contains_only_the_fields_that_the_component_sets() -> None:
    message = translate.submit(INSTANCE, 12, submit_command(), [], True, Duration(5 * SECOND))
    assert (message.id, message.tag, message.doubt) == (12, tag_of(INSTANCE, AttemptId(JobId(7), 1, 2)), True)
    assert message.batch == {"processors": 4, "walltime_s": 91}
    assert (message.program["walltime"], message.program["barrier_timeout"], message.program["grace"]) == (3600, 300, 5)
    assert wire.from_json(wire.to_json(message)) == message


def test_a_submit_message_contains_every_field_of_the_component() -> None:
    wishes = {
        "processors_per_node": 2,
        "memory_per_processor": 1 << 30,
        "gpus": 1,
        "exclusive": True,
        "account": "physics",
        "queue": "long",
        "qos": "high",
        "constraint": "ib",
    }
    command = submit_command(
        **wishes,
        native=("--x",),
        environment=(("A", "b\udcff"),),
        setup=("module load x",),
        launch=Launch.ONCE,
        threads_per_process=2,
        optional=True,
        arguments=("--n", "1"),
    )
    message = translate.submit(INSTANCE, 1, command, [["a", "0" * 64, 0o755]], False, Duration(SECOND))
    assert message.batch == {"processors": 4, "walltime_s": 91, "native": ["--x"], **wishes}
    assert message.program["environment"] == [["A", "b\udcff"]]
    assert (message.program["launch"], message.program["threads"], message.program["optional"]) == ("once", 2, True)
    assert message.staged == [["a", "0" * 64, 0o755]]


def test_every_field_of_a_measurement_is_translated() -> None:
    ours, others = tag_of(INSTANCE, A), tag_of(InstanceId("other"), A)
    capacity = Capacity(
        32, 8, 6, 4, 3, [ours, others], [others], [[4, 2]], {}, "thread", 30, 7, 12, True, [[4, 1]], 1024
    )
    message = wire.from_json(json.loads(json.dumps(wire.to_json(monitor._measured(5, capacity)))))
    assert translate.measured(INSTANCE, "vu", message, lambda at: Instant(at + 1)).state == ClusterState(
        measured_at=Instant(6), total=32, idle=8, ours=6, others=4, waiting_local=3, allocated=(ours,), pending=(),
        free_nodes=((4, 2),), unit="thread", largest=30, largest_idle=7, wanted_local=12, others_hidden=True,
        whole_nodes=((4, 1),), memory=1024,
    )  # fmt: skip


@pytest.mark.parametrize("tag", [tag_of(InstanceId("zzzzz"), A), "no-tag", ""])
def test_tags_of_other_stores_are_no_attempts_of_this_one(tag: str) -> None:
    assert translate.own_attempt(INSTANCE, tag) is None
    assert translate.own_attempt(INSTANCE, tag_of(INSTANCE, A)) == A


def test_an_invalid_reason_becomes_one_of_koalapy_s_own() -> None:
    assert translate.reason_of({"whose": "nobody's", "exit_status": "x"}) == Reason(
        "unknown", "ours", "The KCM names no reason."
    )


def test_the_reason_of_an_error_contains_its_command() -> None:
    error = WireClusterError("down", "sbatch failed.", "Wait.", Result(["sbatch", "x"], 1, "", "slurm_load: down\n"))
    reason = translate.reason_of_error(error)
    assert reason == Reason("down", "cluster", "sbatch failed.", "Wait.", "sbatch x", 1, "slurm_load: down")


# ---- connections of the grid file


def entry(connect: str, **more: str) -> ClusterEntry:
    return ClusterEntry.model_validate({"batch": "slurm", "connect": connect, **more})


@pytest.mark.parametrize(
    ("connect", "kind", "where"),
    [
        ("ssh://me@fs0.example:2222", SshConnection, "fs0.example:2222"),
        ("local:", LocalConnection, "this machine"),
        ("docker://me@head", DockerConnection, "the container head"),
        ("command:ssh -T 'fs 0'", CommandConnection, "`ssh -T 'fs 0'`"),
    ],
)
def test_the_grid_file_names_the_connection(connect: str, kind: type, where: str) -> None:
    made = connection_of(entry(connect))
    assert isinstance(made, kind)
    assert made.where == where


def test_identity_and_known_hosts_go_to_ssh() -> None:
    options = {"identity": "~/key", "known_hosts": "/etc/known", "ssh_config": "none"}
    made = connection_of(entry("ssh://me@fs0:2222", **options))
    assert isinstance(made, SshConnection)
    assert made._given == Given("fs0", "me", 2222, "~/key", "/etc/known", "none")
