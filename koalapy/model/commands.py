"""Commands of the engine, each in the imperative. Each is idempotent, and identified by its attempt or job.

A command is committed to the outbox before it is sent, and stays there until its cluster has confirmed it. A hint is
only sent, after the commit of the step that it belongs to.
"""

from dataclasses import dataclass
from enum import StrEnum

from koalapy.model.errors import Reason
from koalapy.model.fast_frozen import fast_frozen
from koalapy.model.identity import AttemptId, JobId, origin_of_site
from koalapy.model.intervals import Intervals
from koalapy.model.lease import LeasedCluster, Origin
from koalapy.model.matching import Question
from koalapy.model.notification import Notification
from koalapy.model.parameters import Space
from koalapy.model.pilot import Pilot
from koalapy.model.request import ComponentRequest, Interactive, Request
from koalapy.model.sent import Sent, SentChange
from koalapy.model.units import Duration, Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherWork:
    """The work of a Launcher: its component's program, once for each parameter of the sweep that the Launcher pulls.

    `slots`: programs at a time, each for no longer than `limit`, with `grace` between SIGTERM and SIGKILL.
    """

    sweep: JobId
    space: Space
    slots: int
    limit: Duration
    grace: Duration


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitAttempt:
    """Stage the files in, then submit the attempt to the batch system.

    The answer is AttemptSubmitted or SubmissionFailed. `walltime` is the batch job's: that of program, barrier and
    margin. `interactive`: of the attempt with the job's first process, as in Request.
    """

    cluster: str
    attempt: AttemptId
    components: int
    request: ComponentRequest
    walltime: Duration
    barrier_timeout: Duration
    stage_in: tuple[str, ...]
    directory: str
    files: str = ""  # see Request
    lowest: bool = False  # with the lowest priority that a user may set
    avoid: tuple[str, ...] = ()  # hosts of the cluster on which it must not run
    launcher: LauncherWork | None = None
    interactive: Interactive | None = None


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseAttempt:
    """Let the attempt out of its barrier.

    `hosts`: (component, address, processes) of the whole job, in the order of ranks.
    """

    cluster: str
    attempt: AttemptId
    first_rank: int
    hosts: tuple[tuple[int, str, int], ...]


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class CancelAttempt:
    """Make the attempt void and end it. Only AttemptCleanedUp confirms it.

    A cancel supersedes the earlier commands for the attempt, except ForgetAttempt.
    """

    cluster: str
    attempt: AttemptId
    batch_id: str
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetAttempt:
    """Remove the attempt's directory; the end of the attempt is recorded."""

    cluster: str
    attempt: AttemptId


class OutputKind(StrEnum):
    """The kind of output to collect.

    `component_files`: files of the job's components. `standard_streams`: no files, but standard output and error of the
    components' processes. `successful_parameters`: files of the sweep's parameters that are done. `ended_parameters`:
    files of all parameters that have ended, the failed ones too.
    """

    COMPONENT_FILES = "component_files"
    STANDARD_STREAMS = "standard_streams"
    SUCCESSFUL_PARAMETERS = "successful_parameters"
    ENDED_PARAMETERS = "ended_parameters"


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectOutput:
    """Bring these files from the components' working directories; the first component that has a file wins.

    `sources`: (cluster, attempt) in order. `to`: see Request.stage_out_to. The answer is OutputCollected. For
    parameters, `paths` and `to` are templates for each of them, and `sources` is empty: a parameter's result names its
    cluster. For standard streams, `paths` is empty, the job is final, and the answer is OutputKept.
    """

    job: JobId
    sources: tuple[tuple[str, AttemptId], ...]
    paths: tuple[str, ...]
    directory: str
    to: tuple[tuple[str, str], ...] = ()
    kind: OutputKind = OutputKind.COMPONENT_FILES


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnounceNotification:
    """Report when the notification is to be sent, and that its sender is ready. The answer is NotificationDue.

    Nothing is sent yet, so this command may be repeated. `number`: of the try, from 1. `failure`: why the try before
    was not taken.
    """

    notification: Notification
    number: int = 1
    due_at: Instant
    failure: Reason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendNotification:
    """Make this try to send the notification. The answer is NotificationTried.

    It is carried out once: a sender that receives it in doubt sends nothing, since the try may have been made.
    """

    notification: Notification
    number: int = 1


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class WatchCluster:
    """Set whether this cluster is measured urgently, because something waits for its measurements.

    It is sent again on every change.
    """

    cluster: str
    urgent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedSweep:
    """Give parameters to the KCM for a sweep's Launchers on the cluster.

    `anew`: set for the first feed of the sweep after every connect. Then `numbers` are all its parameters that are out
    on the cluster. `launchers` are those that may hold some of them, or have left a journal. The KCM gives out those
    that no Launcher holds or has done. A KCM ignores any feed of the sweep before this one.
    """

    cluster: str
    sweep: JobId
    numbers: Intervals
    anew: bool = False
    launchers: tuple[AttemptId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallParameters:
    """Give back at most `most` parameters that no Launcher has begun. The answer is ParametersReturned."""

    cluster: str
    sweep: JobId
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustLauncher:
    """Trust a Launcher whose first parameters all failed: it is no black hole, since the program is to blame."""

    cluster: str
    attempt: AttemptId


# ---- the messages between sites: commands here, and at the neighbour what its engine reacts to (MessageReceived)


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFree:
    """Report to a neighbour the most processors that it could get here now. A later report supersedes it."""

    neighbour: str
    processors: int


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class DelegateRequest:
    """Ask a neighbour for a lease of this number. The answer is RejectRequest or OfferLease.

    `memory`: bytes per processor. `origin`: the request as all sites know it; its site is '' if it is this one. `dttl`:
    the links that it may pass beyond the neighbour. `within`: how long an answer is waited for. `user`, `name`: of the
    job for which it is. `launchers`, `unisolated`, `executables`: as in Wanted.
    """

    neighbour: str
    lease: int
    processors: int
    walltime: Duration
    origin: Origin
    dttl: int
    within: Duration
    processors_per_node: int | None = None
    memory: int | None = None
    user: str = ""
    name: str = ""
    launchers: bool = False
    unisolated: bool = False
    executables: tuple[str, ...] = ()


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequest:
    """Take a request back, with the lease if there is one by now. The answer is RejectRequest or EndLease."""

    neighbour: str
    lease: int


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class RejectRequest:
    """Answer a neighbour's request: it gets no lease. `processors`: the most that it could get now."""

    neighbour: str
    lease: int
    reason: Reason
    processors: int


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class OfferLease:
    """Answer a neighbour's request: its lease is bound. `lasts`: how long. `length`: the links of its chain.

    `isolation`: of its programs; see ClusterSettings.
    """

    neighbour: str
    lease: int
    lasts: Duration
    length: int = 1
    isolation: tuple[str, ...] | None = None


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class ReturnLease:
    """Return a lease to its lender. The answer is EndLease."""

    neighbour: str
    lease: int


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeLease:
    """Give the borrower notice that its lease ends after `within`, since this site's people need the processors."""

    neighbour: str
    lease: int
    within: Duration


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class EndLease:
    """Report to the borrower that its lease has ended. `charge`: processor-microseconds."""

    neighbour: str
    lease: int
    charge: int
    reason: Reason


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class SendJob:
    """Send a job to the neighbour that is to run it. The answers are its reports, the last one on its end.

    `job`: its id here.
    """

    neighbour: str
    job: JobId
    request: Request


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSentJob:
    """Cancel, hold or release a job that was sent to the neighbour. `job`: its id here."""

    neighbour: str
    job: JobId
    change: SentChange


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class ReportReceivedJob:
    """Report to its sender how a job is that was received. `job`: its id at the sender. `reason`: why it failed."""

    neighbour: str
    job: JobId
    sent: Sent
    reason: Reason | None = None


NeighbourCommand = (
    ReportFree
    | DelegateRequest
    | CancelRequest
    | RejectRequest
    | OfferLease
    | ReturnLease
    | RevokeLease
    | EndLease
    | SendJob
    | ChangeSentJob
    | ReportReceivedJob
)


@dataclass(frozen=True, slots=True)
class CompareAds:
    """Compare the ads of jobs with those of clusters. The answer is AdsCompared; without one nothing more is asked."""

    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSuspended:
    """Suspend the batch job of an attempt, whose processors others then get, or resume it. The newest hint counts."""

    cluster: str
    attempt: AttemptId
    suspended: bool


@dataclass(frozen=True, slots=True)
class JoinCluster:
    """Make the processors of a pilot or lease a cluster of the grid. The answer is ClusterJoined.

    Nothing happens if it is one. Until it is done it is tried again; the newest hint on a cluster counts.
    """

    joining: Pilot | LeasedCluster

    @property
    def name(self) -> str:
        return self.joining.name


@dataclass(frozen=True, slots=True)
class LeaveCluster:
    """Remove the cluster of a pilot or lease that has ended; attempts there are lost. The answer is ClusterLeft.

    Nothing happens if it is none. Until it is done it is tried again; the newest hint on a cluster counts.
    """

    name: str


@dataclass(frozen=True, slots=True)
class ExamineNodes:
    """Examine whether the nodes of a lease that is to be offered isolate programs. The answer is LeaseExamined.

    There is none if the nodes do not answer, or are under examination. The hint is repeated until there is one.
    """

    neighbour: str
    lease: int


@dataclass(frozen=True, slots=True)
class MeasureLease:
    """Measure what a lent lease has written, in bytes. The answer is LeaseExamined if it is more than `most`.

    The hint is repeated for as long as the lease is lent.
    """

    neighbour: str
    lease: int
    most: int


# Commands are committed to the outbox before they are sent, and kept there until they are confirmed.
ClusterCommand = SubmitAttempt | ReleaseAttempt | CancelAttempt | ForgetAttempt
NotificationCommand = AnnounceNotification | SendNotification
Command = ClusterCommand | CollectOutput | NotificationCommand | NeighbourCommand

# Hints are only sent. A hint that is lost with a connection is derived anew after the next connect.
ClusterHint = WatchCluster | FeedSweep | RecallParameters | TrustLauncher | SetSuspended
GridHint = JoinCluster | LeaveCluster
LeaseHint = ExamineNodes | MeasureLease
Hint = ClusterHint | CompareAds | GridHint | LeaseHint


def cluster_of(command: Command) -> str | None:
    """Return the cluster that a command goes to; None for one to a neighbour, or to koalad's own host."""
    return command.cluster if isinstance(command, ClusterCommand) else None


def destination_of(command: Command) -> str | None:
    """Return the cluster or site that a command goes to, as the origin of its answer; None for koalad's own host."""
    return origin_of_site(command.neighbour) if isinstance(command, NeighbourCommand) else cluster_of(command)


def job_of_command(command: Command) -> JobId | None:
    """Return the job, sweep or lease that a command belongs to; None for one to a neighbour."""
    if isinstance(command, NeighbourCommand):
        return None
    if isinstance(command, CollectOutput):
        return command.job
    return command.notification.id.job if isinstance(command, NotificationCommand) else command.attempt.job
