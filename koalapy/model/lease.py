"""A lease: processors of a lender, held by one pilot there, that are a cluster of the borrower until it ends."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import ClassVar, Literal, NamedTuple

from koalapy.model.errors import Reason
from koalapy.model.hours import Hours
from koalapy.model.identity import JobId
from koalapy.model.isolated import MPI, beyond_isolation, needs_terminal
from koalapy.model.request import ComponentRequest, Isolate, Launch, PilotOptions, Request, WhenBusy
from koalapy.model.states import LeaseState
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration, Instant, format_duration, format_instant

PILOT = "pilot"  # before the tilde of a pilot's cluster, so no site may have that name
LONGEST_LEASE = Duration(12 * HOUR)
BORROW_AFTER = MINUTE
LEASE_IDLE = MINUTE
LOST_AFTER = Duration(3 * MINUTE)
ASK_AGAIN = MINUTE
SHORTEST_LEASE = Duration(MINUTE)
REQUESTS_PER_MINUTE = 600
DTTL = 4
REVOKE_GRACE = Duration(30 * SECOND)
MOST_LINKS = 16  # of a chain
MOST_EXECUTABLES = 16  # that a request names
LONGEST_PATH = 255  # characters of a directory or executable that a message between sites names
_MARGIN = Duration(5 * MINUTE)  # for the start of the KCM on the lease, and the margin of its batch jobs
_LAST = Duration(5 * SECOND)  # so that the pilot's program ends before anything ends it


class RevokeFor(StrEnum):
    """The jobs for which a lender takes leases back."""

    NOBODY = "nobody"
    OWN = "own"  # that wait in this site's queue
    LOCAL = "local"  # those, and others' jobs that wait in the queues of its clusters


@dataclass(frozen=True, slots=True, kw_only=True)
class Lend:
    """The processors that this site lends: to the sites `to`, at most `processors` at a time, of these clusters.

    `clusters`: all of the grid file if there are none. `walltime`: the longest lease. `lost_after`: a lease of a
    borrower that is out of reach for so long ends. `pass_on`: requests that cannot be served here go on to other
    neighbours. `strangers`: requests that a neighbour passes on for another site are served too.
    `requests_per_minute`: of one neighbour; more are rejected. `isolate`, `visible`: see PilotOptions. `revoke_for`:
    the jobs for which leases are taken back. `grace`: how long before its end the borrower is given notice; 0 for none.
    `hours`: by the clock of koalad's host, when leases may last; always if there are none. `disk`: bytes that one lease
    may have on its cluster's disk; None for no bound.
    """

    to: tuple[str, ...]
    processors: int
    clusters: tuple[str, ...] = ()
    walltime: Duration = LONGEST_LEASE
    lost_after: Duration = LOST_AFTER
    pass_on: bool = False
    strangers: bool = False
    requests_per_minute: int = REQUESTS_PER_MINUTE
    isolate: Isolate = Isolate.NONE
    visible: tuple[str, ...] = ()
    revoke_for: RevokeFor = RevokeFor.OWN
    grace: Duration = REVOKE_GRACE
    hours: tuple[Hours, ...] = ()
    disk: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Borrow:
    """The conduct of a job that does not fit: once it has waited for `after`, neighbours are asked for it.

    `processors`: the most that are borrowed at a time; None for no bound. `idle`: a lease on which nothing runs for so
    long is returned. `again`: a neighbour that could not serve a job is asked for it again after so long. `networks`:
    (neighbour, network of this grid) for each neighbour whose nodes are reached from that network's. `sweeps`: whether
    neighbours are asked for nodes for sweeps too.
    """

    after: Duration = BORROW_AFTER
    processors: int | None = None
    idle: Duration = LEASE_IDLE
    again: Duration = ASK_AGAIN
    networks: tuple[tuple[str, str], ...] = ()
    sweeps: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Delegation:
    """The rules by which requests go to neighbours, and are served here (SC'07, sections 4.3 and 4.4).

    `policy`, `targets` and `dispatching` name registered policies: whose turn it is to ask, whom it asks first, and
    which request of a neighbour is served first. `dttl`: the most links that a request may pass, of this site or of
    another one. `interval`: requests of neighbours wait for the next full interval; 0 for none.
    """

    policy: str = "fcfs"
    targets: str = "nearest"
    dttl: int = DTTL
    dispatching: str = "fcfs"
    interval: Duration = Duration(0)


class Origin(NamedTuple):
    """A resource request as all sites of a chain know it: its first site, its number there, and its round.

    A new round begins when the first site asks its neighbours once more, so that they take the request again.
    """

    site: str
    number: int
    round: int


class SeenRequest(NamedTuple):
    """A request of a neighbour that this site has considered, and when."""

    origin: Origin
    at: Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The processors that one lease must have to serve a job, and for how long. `memory`: bytes per processor.

    `launchers`: whether it is for a sweep, whose Launchers are not isolated. `unisolated`: whether it is for another
    program that cannot run isolated, wherever it lies. `executables`: absolute paths that programs must see there.
    """

    processors: int
    walltime: Duration
    processors_per_node: int | None = None
    memory: int | None = None
    launchers: bool = False
    unisolated: bool = False
    executables: tuple[str, ...] = ()


class SweepDemand(NamedTuple):
    """The processors that a sweep would borrow now. `want`: of all its waiting parameters. `unit`: of one."""

    sweep: JobId
    want: Wanted
    unit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A neighbour's request, as long as it may be passed on.

    `dttl`: the links that it may still pass. `answer_by`: when the neighbour ceases to wait. `rejected_by`: the
    neighbours of this site that have rejected it.
    """

    origin: Origin
    want: Wanted
    dttl: int
    answer_by: Instant
    rejected_by: tuple[str, ...] = ()


class LeaseId(NamedTuple):
    """The identity of a lease at one side of a link. `number`: the borrower's."""

    neighbour: str
    number: int
    lent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Lease:
    """The part of a lease, or of the resource request for it, that both sides record.

    `job`: at the borrower that for which it was requested, at the lender the pilot that holds it. `ends_at`: once it is
    bound, by the clock of this side.

    A site between two others has two records, without a job: one of what it lends to the one, and one of what it
    borrows of the other. `beyond`: the neighbour and number of the other record. `length`: the links of the chain from
    where the processors are to here. `revoked_until`: its lender takes it back, and ends it then. `user`, `name`: of
    the job for which it was requested, as the site of that job reports them.
    """

    neighbour: str
    number: int
    state: LeaseState
    processors: int
    asked_at: Instant
    job: JobId | None = None
    bound_at: Instant | None = None
    ends_at: Instant | None = None
    beyond: tuple[str, int] | None = None
    length: int = 0
    revoked_until: Instant | None = None
    user: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LentLease(_Lease):
    """A lease, or a neighbour's request for it, at the lender. `why`: why this site ends it."""

    asked: Asked
    why: Reason | None = None
    lent: ClassVar[Literal[True]] = True

    @property
    def id(self) -> LeaseId:
        return LeaseId(self.neighbour, self.number, lent=True)

    @property
    def origin(self) -> Origin:
        return self.asked.origin

    @property
    def is_undecided(self) -> bool:
        """Return whether a neighbour has asked for it, and this site has yet to look for processors."""
        return self.state.asked and self.beyond is None


@dataclass(frozen=True, slots=True, kw_only=True)
class BorrowedLease(_Lease):
    """A lease, or the request for it, at the borrower.

    `origin`: of a request that this site passes on. `round`: see Origin. `components`: those of its job for which it
    was requested; none if they are all. `sweeps`: `job` is a sweep, and sweeps are placed there. `isolation`: as its
    lender has reported it; see ClusterSettings.
    """

    origin: Origin | None = None
    round: int = 0
    components: tuple[int, ...] = ()
    sweeps: bool = False
    isolation: tuple[str, ...] | None = None
    lent: ClassVar[Literal[False]] = False

    @property
    def id(self) -> LeaseId:
        return LeaseId(self.neighbour, self.number, lent=False)

    @property
    def cluster(self) -> str:
        """The name of the cluster that it is here, if it is passed on to nobody."""
        return lease_cluster(self.neighbour, self.number)

    @property
    def is_cluster(self) -> bool:
        """Return whether the lease is to be a cluster of this grid: what runs there may still report."""
        return self.beyond is None and self.bound_at is not None and (self.state.bound or self.state.closing)


Lease = LentLease | BorrowedLease


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a neighbour did not serve a waiting job, and since when that is known. `round`: see Origin.

    `until`: when it may be asked for the job again, if not after `borrow.again`.
    """

    job: JobId
    at: Instant
    reason: Reason
    round: int = 0
    until: Instant | None = None


def lease_cluster(lender: str, number: int) -> str:
    """Return the name of the cluster that a lease is at the borrower."""
    return f"{lender}~{number}"


def lease_of_cluster(cluster: str) -> tuple[str, int] | None:
    """Return the lender and number of the lease that is this cluster; None for a cluster that is none, or a pilot."""
    lender, tilde, number = cluster.rpartition("~")
    if not tilde or lender == PILOT or not (number.isascii() and number.isdecimal()):
        return None
    return lender, int(number)


def is_temporary(cluster: str) -> bool:
    """Return whether the cluster is a pilot or a lease: no cluster of a grid file has a name with a tilde."""
    return "~" in cluster


class LeasedCluster(NamedTuple):
    """A borrowed lease as a cluster. `network`: that of its nodes; see `lease_network`. The rest: see Lease."""

    lender: str
    number: int
    network: str
    sweeps: bool = False
    isolation: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        return lease_cluster(self.lender, self.number)


def lease_network(borrow: Borrow | None, lender: str, number: int, length: int) -> str:
    """Return the network of a lease: that of this grid from which the lender's own nodes are reached, or one apart.

    `length`: the links of its chain. The nodes of sites beyond a neighbour are in networks apart.
    """
    known = {} if borrow is None or length != 1 else dict(borrow.networks)
    return known.get(lender, f"{lender}:{number}")


def wanted(request: Request, barrier_timeout: Duration) -> Wanted | Reason:
    """Return what a lease for the whole job must have, with its least processors; or why no lease can serve it."""
    reason = why_not_at_all(request) or next(filter(None, map(why_kept, request.components)), None)
    return reason or wanted_for(request, request.components, request.smallest().processors, barrier_timeout)


def wanted_for(
    request: Request, components: Sequence[ComponentRequest], processors: int, barrier_timeout: Duration
) -> Wanted:
    """Return what a lease of so many processors must have so that these components of the job can run there."""
    per_node = {each.processors_per_node for each in components}
    memory = [each.memory_per_processor or 0 for each in components]
    longest = max(each.walltime for each in components)
    beyond = dict.fromkeys(filter(None, map(beyond_isolation, components)))
    executables = tuple(each for each in beyond if each != MPI)
    unisolated = MPI in beyond or needs_terminal(request) or not all(map(is_path_to_send, executables))
    unisolated = unisolated or len(executables) > MOST_EXECUTABLES
    return Wanted(
        processors=processors,
        walltime=Duration(longest + barrier_timeout + _MARGIN),
        processors_per_node=per_node.pop() if len(per_node) == 1 else None,
        memory=max(memory) or None,
        unisolated=unisolated,
        executables=() if unisolated else executables,
    )


def is_path_to_send(path: str) -> bool:
    """Return whether a message to a neighbour may name the path: it takes printable names of a bounded length."""
    return len(path) <= LONGEST_PATH and path.isprintable()


def why_not_at_all(request: Request) -> Reason | None:
    """Return why no lease can serve any part of the job; None if one may."""
    if request.dttl == 0:
        return _unfit("It has the DTTL 0.")
    if request.pilot is not None or request.parameters is not None or request.jobs:
        return _unfit("Only a job of components can be placed on borrowed processors.")
    return None


def why_kept(component: ComponentRequest) -> Reason | None:
    """Return why no lease can serve the component, which needs this site's own clusters; None if one can."""
    if component.cluster:
        return _unfit("A component names a cluster.")
    if component.requirements:
        return _unfit("It has requirements.")
    if beyond_pilots(component) or component.native:
        return _unfit("It asks for GPUs, whole nodes, a queue or a constraint, which a lease does not have.")
    return None


def beyond_pilots(component: ComponentRequest) -> str:
    """Return the first thing that the component asks for and no pilot or lease has; "" if there is none."""
    if component.gpus:
        return "GPUs"
    if component.exclusive:
        return "whole nodes to give away"
    if component.queue:
        return "queues"
    return "node features" if component.constraint else ""


def _unfit(what: str) -> Reason:
    return Reason("not_borrowed", "request", what, "")


def lease_request(component: ComponentRequest, lend: Lend) -> Request:
    """Return the request of the pilot that holds a lease with the processors, cluster and walltime of this component.

    Its program only waits.
    """
    seconds = (max(SHORTEST_LEASE, component.walltime) - _LAST) // SECOND
    held = replace(component, executable="sleep", arguments=(str(seconds),), launch=Launch.ONCE)
    options = PilotOptions(lent=True, isolate=lend.isolate, visible=lend.visible)
    return Request(name="lease", components=(held,), when_busy=WhenBusy.WAIT, retry_on=(), pilot=options)


def holds_lease(request: Request) -> bool:
    """Return whether the job holds processors for another site, so that its directory has what the borrower wrote."""
    return request.pilot is not None and request.pilot.lent


def closed(opens_at: Instant | None) -> Reason:
    """Return why no lease is given at this hour. `opens_at`: when one may be given next; None if that is far away."""
    again = "" if opens_at is None else f", and again from {format_instant(opens_at)} on"
    return Reason("closed", "transient", f"It does not lend at this hour{again}.", "It is asked again.")


def closes(at: Instant, walltime: Duration) -> Reason:
    """Return why no lease of this walltime is given before the hours of lending end."""
    message = f"It lends until {format_instant(at)}, and {format_duration(walltime)} are needed."
    return Reason("closes", "transient", message, "Give the job a shorter walltime, or let it wait.")


def too_long(longest: Duration, walltime: Duration) -> Reason:
    """Return why a lease of this walltime is not given."""
    message = f"It lends for {format_duration(longest)} at most, and {format_duration(walltime)} are needed."
    return Reason("too_long", "request", message, "Give the job a shorter walltime.")
