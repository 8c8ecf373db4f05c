"""A Launcher as `koala show` and `koala logs` show it: like a job of one component, with the Launcher's number."""

from koalapy.model.attempt import Attempt
from koalapy.model.identity import JobId
from koalapy.model.job import Job
from koalapy.model.request import Request
from koalapy.model.states import Ending, JobState

_STATES = {Ending.DONE: JobState.DONE, Ending.FAILED: JobState.FAILED, Ending.CANCELLED: JobState.CANCELLED}


def as_job(launcher: Attempt, owner: str, name: str) -> Job:
    """Return the Launcher as a job. `owner`: its user. `name`: that of the sweep that owns the Launcher."""
    fields = launcher.launcher
    assert fields is not None
    if launcher.let_go and launcher.ending is not None:
        state = JobState.FAILED if fields.failure is not None else _STATES[launcher.ending]
    elif launcher.cancelling:
        state = JobState.STOPPING
    else:
        state = JobState.RUNNING if launcher.state.released else JobState.CLAIMING
    return Job(
        id=JobId(launcher.id.job),
        owner=owner,
        request=Request(name=name, components=(launcher.request,)),
        state=state,
        position=0,
        submitted_at=fields.claimed_at,
        claimed_at=fields.claimed_at,
        attempts=(launcher,),
        numbers=(launcher.id.number,),
        started_at=launcher.started_at,
        finished_at=launcher.ended_at if state.final else None,
        reason=fields.failure or launcher.reason,
        forced=fields.forced,
    )
