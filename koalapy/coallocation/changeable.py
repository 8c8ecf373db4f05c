"""The states in which a job can be cancelled, held or released, and the result of such a request for many jobs."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from koalapy.model.errors import RequestError
from koalapy.model.header import Outcome
from koalapy.model.identity import JobId
from koalapy.model.sent import SentJob
from koalapy.model.states import JobState
from koalapy.model.sweep import Sweep
from koalapy.model.unreadable import Unreadable
from koalapy.model.work import Flow, Work

_LAST_ID = (1 << 63) - 1  # the highest that a store can hold


@dataclass(frozen=True, slots=True)
class Changed:
    """The result of a change of jobs and sweeps: the changed ones as they are now, and the reasons of the others."""

    work: list[Work]
    refused: Mapping[JobId, RequestError]

    def only(self) -> Work:
        """Return the only job or sweep. Raises RequestError if it could not be changed."""
        for refusal in self.refused.values():
            raise refusal
        return self.work[0]


@dataclass(frozen=True, slots=True)
class Changeable:
    """The states in which a job or sweep can be changed in one way, and the error in all others.

    A flow can be changed while it runs: each of its jobs is that can be. So can a job that another site runs.
    `of_sweeps`: further states for sweeps.
    `stopping`: outcomes with which a stopping job can be changed too.
    """

    states: Collection[JobState]
    problem: str
    advice: str
    of_sweeps: Collection[JobState] = ()
    stopping: Collection[Outcome] = ()

    def refusal(self, job: JobId, found: Work | None, unreadable: Iterable[Unreadable] = ()) -> RequestError | None:
        """Return the error of such a change, or None if it is possible. `found`: the job or sweep, if there is one."""
        if found is None:
            return no_such(job, unreadable)
        if isinstance(found, Flow | SentJob) and found.state in (JobState.CLAIMING, JobState.RUNNING):
            return None
        of_sweeps = self.of_sweeps if isinstance(found, Sweep) and not found.collecting else ()
        stopping = found.state is JobState.STOPPING and found.outcome in self.stopping
        if found.state not in self.states and found.state not in of_sweeps and not stopping:
            return RequestError("wrong_state", f"Job {job} {self.problem}.", self.advice)
        return None


CANCEL = Changeable([state for state in JobState if not state.final], "is final already", "Nothing is left to cancel.")
HOLD = Changeable(
    (JobState.BLOCKED, JobState.WAITING, JobState.CLAIMING, JobState.HELD),
    "cannot be held",
    "Only jobs that have not started, and sweeps that have not finished, can be held.",
    of_sweeps=(JobState.RUNNING,),
    stopping=(Outcome.HOLD, Outcome.GIVE_BACK, Outcome.VACATED),
)
RELEASE = Changeable((JobState.HELD,), "is not held", "Hold it first with `koala hold`.", stopping=(Outcome.HOLD,))


def is_possible(job: JobId) -> bool:
    """Return whether a store can hold a job of this id."""
    return 0 < job <= _LAST_ID


def no_such(job: JobId, unreadable: Iterable[Unreadable] = ()) -> RequestError:
    """Build the error for a missing job: there is none, or its record cannot be read."""
    for each in unreadable:
        if each.may_hide_job and each.job == job:
            what = "The record" if each.kind in ("job", "sweep") else "A record"
            return RequestError(
                "job_unreadable", f"{what} of job {job} cannot be read ({each.why}).", each.repair_advice
            )
    return RequestError("no_such_job", f"There is no job {job}.", "`koala jobs` lists those there are.")
