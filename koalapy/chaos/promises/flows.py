"""Promises about flows: no job begins before its prerequisites are done, and none waits for what has failed."""

from collections.abc import Iterator, Mapping

from koalapy.chaos.violation import Promise, promise
from koalapy.model.change import Change
from koalapy.model.identity import JobId, Tag, attempt_of
from koalapy.model.states import JobState
from koalapy.model.work import Flow, Work


class Flows:
    """The checker of jobs that wait for others. `committed` is called after every commit, with all after it."""

    def __init__(self) -> None:
        self._waiting: dict[JobId, None] = {}
        self._flows: dict[JobId, None] = {}

    def committed(self, change: Change, jobs: Mapping[JobId, Work]) -> None:
        for changed in change.work:
            if changed.request.after and not changed.state.final:
                self._waiting[changed.id] = None
        for changed_flow in change.flows:
            if not changed_flow.state.final:
                self._flows[changed_flow.id] = None
        for each in list(self._waiting):
            waiting = jobs.get(each)
            if waiting is None or waiting.state.final:
                del self._waiting[each]
            else:
                _check_waiting(waiting, jobs)
        for each in list(self._flows):
            flow = jobs.get(each)
            if isinstance(flow, Flow):
                _check_counts(flow, jobs)
            if flow is None or flow.state.final:
                del self._flows[each]

    def started(self, tag: Tag, jobs: Mapping[JobId, Work]) -> None:
        """Check that all prerequisites of a job are done when a program of it starts."""
        _, attempt = attempt_of(tag)
        job = jobs.get(attempt.job)
        for each in _prerequisites(job, jobs) if job is not None else ():
            done = each.state is JobState.DONE
            promise(done, Promise.AFTER, "job", attempt.job, "runs while job", each.id, "is", each.state)


def _check_waiting(job: Work, jobs: Mapping[JobId, Work]) -> None:
    found = list(_prerequisites(job, jobs))
    for each in found:
        failed = each.state.final and each.state is not JobState.DONE
        promise(not failed, Promise.AFTER, "job", job.id, job.state, "waits for job", each.id, each.state)
        early = job.state in (JobState.WAITING, JobState.CLAIMING, JobState.RUNNING) and each.state is not JobState.DONE
        promise(not early, Promise.AFTER, "job", job.id, "is", job.state, "while job", each.id, "is", each.state)
    done = all(each.state is JobState.DONE for each in found)
    idle = job.state is JobState.BLOCKED and done and job.request.begin is None
    promise(not idle, Promise.AFTER, "job", job.id, "is blocked, but nothing is left that it waits for")


def _check_counts(flow: Flow, jobs: Mapping[JobId, Work]) -> None:
    """Check that the flow counts its jobs' ends, and that its own end is that of the last of them."""
    if not all(each in jobs for each in flow.jobs):
        return  # some are pruned
    states = [jobs[each].state for each in flow.jobs]
    counts = (flow.done, flow.failed, flow.cancelled)
    found = tuple(states.count(state) for state in (JobState.DONE, JobState.FAILED, JobState.CANCELLED))
    promise(counts == found, Promise.AFTER, "flow", flow.id, "counts", counts, "of", found)
    final = all(state.final for state in states)
    promise(flow.state.final == final, Promise.AFTER, "flow", flow.id, "is", flow.state, "while its jobs are", *states)


def _prerequisites(job: Work, jobs: Mapping[JobId, Work]) -> Iterator[Work]:
    """Yield those prerequisites of the job that are not pruned."""
    for each in job.request.after:
        if each in jobs:
            yield jobs[each]
