"""A pilot as `koala show` and `koala logs` show it: like a job of one component, with the pilot's number."""

from koalapy.model.attempt import Attempt
from koalapy.model.identity import JobId
from koalapy.model.job import Job
from koalapy.model.request import Request
from koalapy.model.states import Ending, JobState

_STATES = {Ending.DONE: JobState.DONE, Ending.FAILED: JobState.FAILED, Ending.CANCELLED: JobState.CANCELLED}


def as_job(pilot: Attempt, owner: str, name: str) -> Job:
    """Return the pilot as a job. `owner`: its user. `name`: that of the sweep that owns the pilot."""
    fields = pilot.pilot
    assert fields is not None
    if pilot.let_go and pilot.ending is not None:
        state = JobState.FAILED if fields.failure is not None else _STATES[pilot.ending]
    elif pilot.cancelling:
        state = JobState.STOPPING
    else:
        state = JobState.RUNNING if pilot.state.released else JobState.CLAIMING
    return Job(
        id=JobId(pilot.id.job),
        owner=owner,
        request=Request(name=name, components=(pilot.request,)),
        state=state,
        position=0,
        submitted_at=fields.claimed_at,
        claimed_at=fields.claimed_at,
        attempts=(pilot,),
        numbers=(pilot.id.number,),
        started_at=pilot.started_at,
        finished_at=pilot.ended_at if state.final else None,
        reason=fields.failure or pilot.reason,
        forced=fields.forced,
    )
