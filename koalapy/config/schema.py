"""The schema of the grid file (docs/grid-file.md): its sections, keys and defaults."""

from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

from koalapy.config.attributes import Attributes
from koalapy.config.connect import Command, Connection, Ssh, connections_of
from koalapy.config.maintenance import Maintenance, names_differ
from koalapy.config.scavenging import Scavenge, Scavenging
from koalapy.config.site import Site
from koalapy.config.values import (
    BatchSystem,
    ConfigFile,
    Connect,
    Directory,
    Drmaa,
    File,
    GridName,
    Lines,
    Networks,
    Placement,
    Python,
    Queueing,
    Relay,
    RelayKind,
    StoreUrl,
    Token,
    VisibleDirectory,
    check_names_differ,
    registered_word,
)
from koalapy.model import settings
from koalapy.model.cluster import DEFAULT_NETWORK
from koalapy.model.pilot import SHORTEST_WALLTIME
from koalapy.model.request import DEFAULT_PRIORITY, LOWEST_PRIORITY, PILOT_IDLE, Fill, Isolate, KeepOutput
from koalapy.model.settings import PreemptBy
from koalapy.model.textfile.fields import (
    Between,
    Count,
    Flag,
    Number,
    Positive,
    ProcessorHours,
    Section,
    Size,
    Span,
    Version,
    Word,
    as_entries,
    as_list,
    as_mapping,
    lasting,
    one_of,
    wrong,
)
from koalapy.model.textfile.notify import NotifyEntries
from koalapy.model.textfile.words import nearest
from koalapy.model.units import HOUR, MILLISECOND, MINUTE, SECOND, Duration

VACATING, CANDIDATES = "vacating", "candidates"  # the groups of their policies' entry points
_Priority = Annotated[Number, Between(0, LOWEST_PRIORITY)]
# A poll may be delayed by its own cost (100 × its CPU time), and one may fail: six polls allow for both.
MAX_AGE_IN_POLLS = 6
_LEAST_DEFAULT_AGE = Duration(30 * SECOND)
_POLL = Duration(10 * SECOND)
_SHORTEST_POLL = Duration(100 * MILLISECOND)
KEPT_BYTES = 16 << 20
_MOST_PILOTS = 100
_PILOT_WALLTIME, _PILOT_WAITING = Duration(4 * HOUR), Duration(5 * MINUTE)
_MOST_FAILURES = 40  # limits the attempts of a job to the numbers that a tag can hold
_LACKED = {
    "slots": ("slurm", "sge", "pbs", "torque", "allocation"),
    "power_up": ("sge", "pbs", "torque", "local", "allocation"),
    "parallel_environment": ("slurm", "pbs", "torque", "local", "allocation"),
}
Failures = Annotated[Number, Between(0, _MOST_FAILURES)]


class Preempt(Section):
    """Which waiting jobs may take the processors of running jobs, and how."""

    model_config = ConfigDict(serialize_by_alias=True)

    how: Annotated[PreemptBy, one_of(PreemptBy)] = Field(
        default=PreemptBy.OFF,
        description="off; vacate: running jobs go back into the queue; suspend: they pause where that makes room",
    )
    highest: _Priority = Field(default=0, alias="for", description="jobs of priority 0 up to this one may preempt")
    lowest: _Priority = Field(
        default=DEFAULT_PRIORITY, alias="from", description="jobs of this priority up to 20 may be preempted"
    )
    policy: Annotated[str, registered_word(VACATING, "vacating policy"), WithJsonSchema({"type": "string"})] = Field(
        default=settings.DEFAULT_VACATING, description="which of them goes first"
    )
    users: Annotated[tuple[Word, ...], Field(strict=False), BeforeValidator(as_list)] | None = Field(
        default=None, description="whose jobs may preempt; everybody's"
    )

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.lowest <= self.highest:
            what = f"is {self.lowest}, so jobs could preempt each other in turn"
            raise wrong(what, f"Write a number above `for`, which is {self.highest}.", at=("from",))
        return self


class Isolation(Section):
    """The isolation of programs on the pilots of a cluster."""

    method: Annotated[Isolate, one_of(Isolate)] = Field(
        default=Isolate.NONE, description="none, auto, bwrap or unshare"
    )
    visible: Annotated[tuple[VisibleDirectory, ...], Field(strict=False), BeforeValidator(as_list)] = Field(
        default=(), description="directories that they see read-only, beside those of the system"
    )


class Cluster(Section):
    """One cluster of the grid: its head nodes, its batch system, and the resources that jobs use there."""

    batch: BatchSystem = Field(
        description="its batch system: slurm, sge, pbs, torque, local, allocation, or one that was installed"
    )
    connect: Connect = Field(description="how its head node is reached; several, if they stand in for each other")
    queue: Word | None = Field(default=None, description="queue or partition; by default the batch system's")
    account: Word | None = Field(default=None, description="account or project that pays")
    qos: Word | None = Field(default=None, description="quality of service")
    reservation: Word | None = Field(default=None, description="reservation to run in")
    constraint: Word | None = Field(default=None, description="features that the nodes must have")
    parallel_environment: Word | None = Field(default=None, description="Grid Engine's parallel environment")
    processors_per_node: Positive | None = Field(default=None, description="processors to take of each node")
    exclusive: Flag = Field(default=False, description="whole nodes only")
    power_up: Flag | None = Field(default=None, description="nodes that are powered down count as idle; true")
    setup: Lines = Field(default=(), description="lines for a shell on each node, once, before the program")
    native: Lines = Field(default=(), description="further options of the batch system's submit command")
    relay: RelayKind = Field(default=Relay.TCP, description="how compute nodes reach their head node")
    relay_network: Networks | None = Field(
        default=None, description="networks whose wrappers the relay answers, in CIDR notation; private and own ones"
    )
    only_named: Flag = Field(default=False, description="no component is placed there that does not name the cluster")
    race: Flag = Field(default=True, description="no: components that wait elsewhere do not enter its queue too")
    network: GridName = Field(default=DEFAULT_NETWORK, description="components co-allocate within one network")
    poll: Annotated[Span, lasting(_SHORTEST_POLL)] = Field(
        default=_POLL, description="shortest time between two looks at the batch system"
    )
    max_age: Span | None = Field(
        default=None, description="older than this, a measurement means nothing idle; 6 × poll, 30s at least"
    )
    backlog: Count | None = Field(default=None, description="processors of ours that may wait in its queue; its size")
    drmaa: Drmaa = Field(default="off", description="off, auto, or the path of a libdrmaa")
    identity: File | None = Field(default=None, description="private key for ssh://")
    known_hosts: File | None = Field(default=None, description="host keys for ssh://")
    ssh_config: ConfigFile | None = Field(default=None, description="configuration for ssh://; the person's own")
    slots: Positive | None = Field(default=None, description="processors of batch: local; as many as the machine has")
    shared: Directory | None = Field(default=None, description="directory that head and nodes share; ~/.koala")
    python: Python = Field(default="python3", description="Python of head and nodes, 3.6 or later")
    scavenge: Scavenge = Scavenge()
    isolation: Isolation = Isolation()
    attributes: Attributes = Field(
        default={}, description="what else requirements and ranks may read of it: names and values"
    )

    @property
    def connections(self) -> tuple[Connection, ...]:
        """The parsed `connect`: one connection, or several of kind ssh."""
        return connections_of(self.connect)

    @property
    def connection(self) -> Connection:
        """The first connection."""
        return self.connections[0]

    @property
    def oldest(self) -> Duration:
        """`max_age` or its default, which is long enough for a measurement that a busy machine delays."""
        return self.max_age or Duration(max(MAX_AGE_IN_POLLS * self.poll, _LEAST_DEFAULT_AGE))

    @model_validator(mode="after")
    def _check_age(self) -> Self:
        if self.max_age is not None and self.max_age <= self.poll:
            raise wrong(
                "is no longer than poll, so nothing would ever be idle", "Write a few times poll.", at=("max_age",)
            )
        return self

    @model_validator(mode="after")
    def _check_of_use(self) -> Self:
        """Refuse a key that has no effect, since its author would not notice the mistake."""
        for key, systems in _LACKED.items():
            if getattr(self, key) is not None and self.batch in systems:
                raise wrong(f"does not apply to batch: {self.batch}", "Remove it.", at=(key,))
        if self.scavenge.parallel_environment is not None and self.batch in _LACKED["parallel_environment"]:
            raise wrong(f"does not apply to batch: {self.batch}", "Remove it.", at=("scavenge", "parallel_environment"))
        if self.relay_network is not None and self.relay is not Relay.TCP:
            raise wrong("is for relay: tcp only", "Remove it.", at=("relay_network",))
        for key in ("identity", "known_hosts", "ssh_config"):
            if getattr(self, key) is not None and not isinstance(self.connection, Ssh):
                advice = "Give ssh its options there." if isinstance(self.connection, Command) else "Remove it."
                raise wrong(f"is for ssh:// only, not for {self.connection.kind}:", advice, at=(key,))
        return self


class Race(Section):
    """In how many batch queues a waiting component has a place at once."""

    most: Annotated[Number, Between(1, settings.MOST_QUEUES)] = Field(
        default=settings.DEFAULT_QUEUES,
        description="queues of each component, of jobs with when_busy: queue; 1: no race",
    )
    of: Annotated[tuple[GridName, ...], Field(strict=False), BeforeValidator(as_list)] | None = Field(
        default=None, description="clusters whose queues are entered beside the first; all"
    )
    processors: Positive | None = Field(
        default=None, description="for which the candidates of all jobs may ask on one cluster; a fourth of it"
    )
    policy: Annotated[str, registered_word(CANDIDATES, "candidates policy"), WithJsonSchema({"type": "string"})] = (
        Field(default=settings.DEFAULT_CANDIDATES, description="which queues are entered")
    )


class Scheduling(Section):
    """The order of the wait queue, and the placement of jobs."""

    queue: Queueing = Field(default=settings.DEFAULT_QUEUE, description="queueing policy")
    placement: Placement = Field(default=settings.DEFAULT_PLACEMENT, description="placement policy")
    max_overtakes: Count = Field(
        default=settings.DEFAULT_MAX_OVERTAKES, description="how often the first waiting job may be overtaken"
    )
    preempt: Preempt = Preempt()
    race: Race = Race()


class Claim(Section):
    """Getting the processors of all components."""

    timeout: Annotated[Span, lasting(SECOND)] = Field(
        default=settings.CLAIM_TIMEOUT, description="from the claim until its last batch job has started"
    )


class Barrier(Section):
    """Starting all components together."""

    timeout: Annotated[Span, lasting(SECOND)] = Field(
        default=settings.BARRIER_TIMEOUT, description="from the first component at its barrier until release"
    )
    wait: Span = Field(
        default=settings.BARRIER_WAIT,
        description="how long components that came through queues wait there for those in queues; 0s: as `timeout`",
    )
    processor_hours: ProcessorHours | None = Field(
        default=None, description="how much processor time those of one job may wait there in all; by default any"
    )
    fill: Annotated[Fill, one_of(Fill)] = Field(
        default=Fill.SWEEPS,
        description="sweeps of the job's user have their processors meanwhile; none: nobody has",
    )


class Retries(Section):
    """How many failures are mended by trying again."""

    submission: Failures = Field(
        default=settings.DEFAULT_MAX_FAILURES, description="submission failures, after which a job is removed"
    )
    completion: Failures = Field(
        default=settings.DEFAULT_MAX_FAILURES, description="completion failures that are tried again"
    )
    revoked: Failures = Field(
        default=settings.DEFAULT_MAX_REVOCATIONS,
        description="how often a lease is taken back from under a job before that counts as a completion failure",
    )


class PilotsWhen(Section):
    """When a further pilot is opened."""

    waiting: Span = Field(default=_PILOT_WAITING, description="a job that it could run has waited for so long")


class KeptPilots(Section):
    """The pilots that koalapy keeps on one cluster by itself."""

    size: Positive = Field(description="processors of each")
    nodes: Positive | None = Field(default=None, description="nodes of each; as the batch system divides them")
    least: Annotated[Number, Between(0, _MOST_PILOTS)] = Field(default=0, description="how many there always are")
    most: Annotated[Number, Between(1, _MOST_PILOTS)] = Field(default=1, description="how many there may be")
    walltime: Annotated[Span, lasting(SHORTEST_WALLTIME)] = Field(
        default=_PILOT_WALLTIME, description="how long each lasts"
    )
    idle: Span = Field(default=PILOT_IDLE, description="it ends after so long without a job")
    when: PilotsWhen = PilotsWhen()

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.least > self.most:
            raise wrong("is more than `most`", "Write a smaller number.", at=("least",))
        if self.nodes is not None and self.size % self.nodes:
            raise wrong(f"does not divide {self.size} processors equally", "Write a divisor of `size`.", at=("nodes",))
        return self


class Disk(Section):
    """The disk space that koalapy may use, on clusters and on koalad's host."""

    warn: Size | None = Field(default=None, description="`koala status` warns of a place where koalapy has more")
    output: Size = Field(
        default=KEPT_BYTES, description="most of one component's standard output, and of its error, that comes home"
    )


class Metrics(Section):
    """Metrics for a Prometheus on this host, on a TCP port of its own."""

    port: Annotated[Number, Between(1, 65535)] = Field(description="of 127.0.0.1, on which they are served")
    token: Token = Field(description="which the Prometheus sends; then only you may read this file", repr=False)


def check_clusters(clusters: Mapping[str, Cluster]) -> Mapping[str, Cluster]:
    """Return the clusters of one grid.

    Raises an error of the file if two have names or shared directories that are too alike.
    """
    check_names_differ(clusters)
    _check_directories_differ(clusters)
    return clusters


def _check_directories_differ(clusters: Mapping[str, Cluster]) -> None:
    """Raises an error of the file if two clusters have the same connection and shared directory."""
    seen: dict[tuple[str, str | None], str] = {}
    for name, cluster in clusters.items():
        others = {seen.setdefault((each, cluster.shared), name) for each in cluster.connect} - {name}
        for other in sorted(others):
            what = f"lies where {other} has its shared directory already"
            raise wrong(what, f"Give each a `shared` of its own, such as ~/.koala/{name}.", at=(name,))


class GridFile(Section):
    """A person's grid."""

    koala: Version = Field(default=1, description="version of this file's format")
    grid: GridName = Field(description="the grid's name")
    clusters: Annotated[dict[GridName, Cluster], BeforeValidator(as_mapping), AfterValidator(check_clusters)] = Field(
        description="the clusters, by name", json_schema_extra={"additionalProperties": False}
    )
    scheduling: Scheduling = Scheduling()
    claim: Claim = Claim()
    barrier: Barrier = Barrier()
    retries: Retries = Retries()
    queue_after: Span = Field(
        default=settings.QUEUE_AFTER,
        description="how long a job of one component waits before it goes into a batch queue",
    )
    orphan_timeout: Annotated[Span, lasting(SECOND)] = Field(
        default=settings.ORPHAN_TIMEOUT, description="after which a wrapper that reaches nobody ends its program"
    )
    stream_timeout: Annotated[Span, lasting(SECOND)] = Field(
        default=settings.STREAM_TIMEOUT, description="after which a forwarded connection that was cut off is reset"
    )
    scavenging: Scavenging = Scavenging()
    pilots: Annotated[dict[GridName, KeptPilots], BeforeValidator(as_mapping)] = Field(
        default_factory=dict, description="pilots that koalapy opens by itself, by cluster",
        json_schema_extra={"additionalProperties": False},
    )  # fmt: skip
    keep_output: Annotated[KeepOutput, one_of(KeepOutput)] = Field(
        default=KeepOutput.CLUSTER, description="home: bring jobs' standard output and error home at their end"
    )
    notify: NotifyEntries = Field(default=(), description="who is notified of jobs' ends, of jobs without `notify`")
    disk: Disk = Disk()
    store: StoreUrl = Field(default="sqlite", description="sqlite, or a database's URL")
    maintenance: Annotated[
        tuple[Maintenance, ...], Field(strict=False), BeforeValidator(as_entries), AfterValidator(names_differ)
    ] = Field(default=(), description="what is done regularly, and when")
    metrics: Metrics | None = Field(default=None, description="on a TCP port; without it on koalad's socket only")
    site: Site | None = Field(default=None, description="links with other people's koalads; without it there are none")

    @model_validator(mode="after")
    def _check_any(self) -> Self:
        if not self.clusters and self.site is None:
            advice = "Describe at least one: `NAME: {batch: …, connect: …}`. Only a site may have none."
            raise wrong("names no cluster", advice, at=("clusters",))
        return self

    @model_validator(mode="after")
    def _check_lent(self) -> Self:
        lend = self.site.lend if self.site is not None else None
        for name in lend.clusters if lend is not None else ():
            if name not in self.clusters:
                what = f"names {name}, which is not a cluster of this file"
                raise wrong(what, "Name one of it.", at=("site", "lend", "clusters"))
        return self

    @model_validator(mode="after")
    def _check_raced(self) -> Self:
        for place, name in enumerate(self.scheduling.race.of or ()):
            if name not in self.clusters:
                what, meant = f"is {name}, which is not a cluster of this file", nearest(name, self.clusters)
                advice = f"Did you mean {meant}?" if meant else "Name one of it."
                raise wrong(what, advice, at=("scheduling", "race", "of", place))
        return self

    @model_validator(mode="after")
    def _check_networks(self) -> Self:
        borrow = self.site.borrow if self.site is not None else None
        for neighbour, network in borrow.networks.items() if borrow is not None else ():
            if all(network != each.network for each in self.clusters.values()):
                what = f"is {network}, a network that no cluster of this file is in"
                advice = "Name the `network` of those clusters whose nodes its nodes reach."
                raise wrong(what, advice, at=("site", "borrow", "networks", neighbour))
        return self

    @model_validator(mode="after")
    def _check_pilots(self) -> Self:
        for name in self.pilots:
            if name not in self.clusters:
                raise wrong("is not a cluster of this file", "Name one, or remove it.", at=("pilots", name))
        return self
