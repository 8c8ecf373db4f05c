"""A sent job: one of this site's, or a subtree of a flow, that a neighbour runs as its own, within its limits."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from koalapy.model.counts import counted_as
from koalapy.model.errors import Reason
from koalapy.model.fast_frozen import caster, fast_frozen, row_class
from koalapy.model.header import Header
from koalapy.model.identity import JobId
from koalapy.model.lease import LONGEST_LEASE
from koalapy.model.request import DEFAULT_PRIORITY, ComponentRequest, KeepOutput, Request
from koalapy.model.states import JobState
from koalapy.model.units import Duration, format_duration

MOST_SENT = 100  # jobs and subtrees that are at one neighbour at a time
MOST_RECEIVED = 1_000  # jobs, those of flows each, that are run for neighbours at a time by default
MOST_BYTES = 1 << 18  # of a sent job as JSON, so that it fits into one message
UNKNOWN_ID = JobId(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """The facts that a neighbour has reported of a job that was sent to it.

    `job`: its id there, UNKNOWN_ID before the first report. `done` of `count`: its jobs, 1 for a job that is no flow.
    """

    job: JobId = UNKNOWN_ID
    state: JobState = JobState.WAITING
    done: int = 0
    count: int = 1


@fast_frozen
@dataclass(frozen=True, slots=True, kw_only=True)
class SentJob(Header):
    """A job, or a subtree of a flow, that names a site. It is claiming until that site has answered.

    `sent`: what the site has reported of it; None before it is sent.
    """

    sent: Sent | None = None

    @property
    def site(self) -> str:
        """The neighbour that runs it."""
        return self.request.site or ""


SentJobRow = row_class(SentJob)
sent_job_row, sent_job_value = caster(SentJob, SentJobRow), caster(SentJobRow, SentJob)


class SentChange(StrEnum):
    """A change that the sender of a job requests."""

    CANCEL = "cancel"
    HOLD = "hold"
    RELEASE = "release"


class RunOption(StrEnum):
    """A key of a component that a received job has only if the limits of this site name it.

    By each of them a component may get more of a cluster than its processors, or another account's share.
    """

    ACCOUNT = "account"
    CONSTRAINT = "constraint"
    EXCLUSIVE = "exclusive"
    GPUS = "gpus"
    MEMORY = "memory_per_processor"
    NATIVE = "native"
    QOS = "qos"
    QUEUE = "queue"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLimits:
    """The limits within which this site runs jobs of the neighbours `sites`; it refuses those of others.

    `processors`, `walltime`: the most that a component may ask for. `jobs`: how many are run at a time. `priority`: no
    such job goes before other jobs of this priority. `options`: what else a component may ask for.
    """

    sites: tuple[str, ...]
    processors: int
    walltime: Duration = LONGEST_LEASE
    jobs: int = MOST_RECEIVED
    priority: int = DEFAULT_PRIORITY
    options: tuple[RunOption, ...] = ()


def why_not_sent(request: Request, outermost: bool = True) -> Reason | None:
    """Return why a job cannot be run by another site than that of its user; None if it can.

    `outermost`: whether it is the sent job itself, whose own site and notifications stay here.
    """
    if request.parameters is not None:
        return _unfit("is a sweep, which no other site runs", "Submit the sweep there by hand.")
    if request.stage_in:
        what = "stages files in, which are not brought to another site"
        return _unfit(what, "Let the program be there already, or let a lease serve the job.")
    if request.stage_out or request.keep_output is KeepOutput.HOME:
        what = "brings files home, which stay where another site runs it"
        return _unfit(what, "Let the program itself keep what it writes, or let a lease serve the job.")
    if request.interactive is not None:
        return _unfit("is interactive, which a job at another site cannot be", "Run it here.")
    if request.begin is not None:
        return _unfit("has a `begin`, which is not sent to another site", "Submit it there, or later.")
    if not outermost and request.site is not None:
        return _unfit("names a site inside of a job that is sent to one", "Name one site, at the outer job.")
    if not outermost and request.notify:
        return _unfit("has notify inside of a job that is sent to a site", "Write it at the outer job.")
    inner = (why_not_sent(each.request, outermost=False) for each in request.jobs)
    return next((each for each in inner if each is not None), None)


def _unfit(what: str, advice: str) -> Reason:
    return Reason("not_sent", "request", what, advice)


def why_not_run(limits: RunLimits | None, site: str, request: Request, running: int) -> Reason | None:
    """Return why this site does not run a neighbour's job; None if it does. `running`: how many it runs already."""
    if limits is None or site not in limits.sites:
        return Reason("not_run", "request", "It runs no jobs of this site.", "Ask its people.")
    if running + max(1, len(request.jobs)) > limits.jobs:
        message = f"It runs {counted_as(limits.jobs, 'job')} of its neighbours at a time, and has {running} of them."
        return Reason("too_many", "request", message, "Send it later.")
    for each in components_of(request):
        most = max(each.processors, each.most or 0)
        if most > limits.processors:
            message = f"It runs components of {counted_as(limits.processors, 'processor')} at most, and one has {most}."
            return Reason("too_large", "request", message, "Ask for fewer processors.")
        if each.walltime > limits.walltime or each.until_end:
            longest = format_duration(limits.walltime)
            asked = "what is left of a pilot" if each.until_end else format_duration(each.walltime)
            message = f"It runs programs for {longest} at most, and one asks for {asked}."
            return Reason("too_long", "request", message, "Give the job a shorter walltime.")
        for option in RunOption:
            if getattr(each, option) and option not in limits.options:
                message = f"It takes no `{option}` from other sites."
                return Reason("option", "request", message, "Leave it out, or ask its people to add it to `options`.")
    return None


def components_of(request: Request) -> Iterator[ComponentRequest]:
    """Yield the components of a job, or of all jobs of a flow."""
    yield from request.components
    for each in request.jobs:
        yield from components_of(each.request)
