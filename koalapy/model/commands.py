"""What the engine wants done, each in the imperative. Every command is idempotent and known by attempt or job.

A command is committed to the outbox before it is sent, and stays there until its cluster has confirmed it. A word is
only said, after the commit of what it follows from.
"""

from dataclasses import dataclass
from enum import StrEnum

from koalapy.model.fast_frozen import fast_frozen
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.intervals import Intervals
from koalapy.model.request import ComponentRequest
from koalapy.model.sweep import Space
from koalapy.model.units import Duration


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherWork:
    """What a Launcher runs: its component's program, once for each parameter of the sweep that it pulls.

    `slots` of them at a time, each for no longer than `limit`, with `grace` between SIGTERM and SIGKILL.
    """

    sweep: JobId
    space: Space
    slots: int
    limit: Duration
    grace: Duration


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitAttempt:
    """Stage the files in, then put the attempt into the batch system.

    Answered by AttemptSubmitted or SubmissionFailed. `walltime` is the batch job's (program, barrier and margin).
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
    avoid: tuple[str, ...] = ()  # hosts of the cluster that it must not run on
    launcher: LauncherWork | None = None


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseAttempt:
    """Let it out of its barrier. `hosts`: (component, address, processes) of the whole job, in order of ranks."""

    cluster: str
    attempt: AttemptId
    first_rank: int
    hosts: tuple[tuple[int, str, int], ...]


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class CancelAttempt:
    """Revoke and end it. Confirmed by AttemptCleanedUp, by nothing before. Supersedes what was to be sent before it."""

    cluster: str
    attempt: AttemptId
    batch_id: str
    force: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetAttempt:
    """Its end is recorded; its directory may go."""

    cluster: str
    attempt: AttemptId


class Of(StrEnum):
    """Whose output: the job's components', or that of a sweep's parameters which ended well, or which ended at all.

    `written`: no files, but standard output and error of the components' processes.
    """

    COMPONENTS = "components"
    WRITTEN = "written"
    WELL = "well"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectOutput:
    """Bring these files from the components' working directories, first component that has one wins.

    `sources`: (cluster, attempt) in order; `to`: see Request.stage_out_to. Answered by OutputCollected.
    `of` parameters: `paths` and `to` are templates for each of them, and its result says where it ran; no sources.
    `of` what was written: there are no paths, the job is over, and the answer is OutputKept.
    """

    job: JobId
    sources: tuple[tuple[str, AttemptId], ...]
    paths: tuple[str, ...]
    directory: str
    to: tuple[tuple[str, str], ...] = ()
    of: Of = Of.COMPONENTS


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchCluster:
    """Whether something waits on this cluster's numbers. Said again on every change."""

    cluster: str
    urgent: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedSweep:
    """Parameters for a sweep's Launchers on the cluster. After every connect it is said `anew`.

    `anew`: these are all that are out there, in whosever hands, and `launchers` are those that may hold some of them or
    have left a journal; what none of them holds or has done is for the KCM to give. A KCM heeds no other feed before.
    """

    cluster: str
    sweep: JobId
    numbers: Intervals
    anew: bool = False
    launchers: tuple[AttemptId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallParameters:
    """Give back what no Launcher has begun, this many at most. Answered by ParametersReturned."""

    cluster: str
    sweep: JobId
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustLauncher:
    """A Launcher whose first parameters all failed is no black hole: the program is to blame."""

    cluster: str
    attempt: AttemptId


# Committed to the outbox before they are sent, and kept there until they are confirmed.
Command = SubmitAttempt | ReleaseAttempt | CancelAttempt | ForgetAttempt | CollectOutput

# Only said: what is lost with a connection is said again, in other words, after the next one.
Hint = WatchCluster | FeedSweep | RecallParameters | TrustLauncher
