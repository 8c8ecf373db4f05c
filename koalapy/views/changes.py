"""What can be done with a job in which of its states, and what came of it where it was asked of several."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from koalapy.model.errors import RequestError
from koalapy.model.identity import JobId
from koalapy.model.job import Job, Outcome
from koalapy.model.states import JobState
from koalapy.model.unreadable import Unreadable

_LAST_ID = (1 << 63) - 1  # that a store can hold


@dataclass(frozen=True, slots=True)
class Changed:
    """Several jobs after what was asked of all of them: as they are now, and those that could not be changed."""

    jobs: list[Job]
    refused: Mapping[JobId, RequestError]

    def only(self) -> Job:
        """Of the one job that was asked for. Raises RequestError if it could not be changed."""
        for refusal in self.refused.values():
            raise refusal
        return self.jobs[0]


@dataclass(frozen=True, slots=True)
class Changeable:
    """The states in which something can be done with a job, or with a sweep, and what is said of the others.

    `stopping`: it can be while the job stops, if this is to become of it.

    With a Launcher nothing can be done but through its sweep.
    """

    states: Collection[JobState]
    problem: str
    advice: str
    of_sweeps: Collection[JobState] = ()  # besides
    stopping: Collection[Outcome] = ()

    def refusal(self, job: JobId, found: Job | None, unreadable: Iterable[Unreadable] = ()) -> RequestError | None:
        if found is None or found.pilot is not None:
            return no_such(job, unreadable)
        of_sweeps = self.of_sweeps if found.runner and not found.collecting else ()
        stopping = found.state is JobState.STOPPING and found.outcome in self.stopping
        if found.state not in self.states and found.state not in of_sweeps and not stopping:
            return RequestError("wrong_state", f"Job {job} {self.problem}.", self.advice)
        return None


CANCEL = Changeable([state for state in JobState if not state.final], "is over already", "Nothing is left to cancel.")
HOLD = Changeable(
    (JobState.WAITING, JobState.CLAIMING, JobState.HELD),
    "cannot be held",
    "Only jobs that have not started, and sweeps that have not finished, can be held.",
    of_sweeps=(JobState.RUNNING,),
    stopping=(Outcome.HOLD, Outcome.GIVE_BACK),
)
RELEASE = Changeable((JobState.HELD,), "is not held", "Hold it first with `koala hold`.", stopping=(Outcome.HOLD,))


def held(record: Unreadable) -> str:
    """What is done with it, and what to do."""
    what = (
        "Nothing is done with the job and its batch jobs until it is repaired" if record.kind == "job" else "Repair it"
    )
    return f"{what}: `koala down`, then `koala repair {record.name}`; see docs/store.md."


def is_possible(job: JobId) -> bool:
    """Whether a store can hold it at all."""
    return 0 < job <= _LAST_ID


def no_such(job: JobId, unreadable: Iterable[Unreadable] = ()) -> RequestError:
    """Why the store gave no such job: there is none, or its record cannot be read."""
    for each in unreadable:
        if (each.kind, each.job) == ("job", job):
            return RequestError("job_unreadable", f"The record of job {job} cannot be read ({each.why}).", held(each))
    return RequestError("no_such_job", f"There is no job {job}.", "`koala jobs` lists those there are.")
