"""The request to submit a job once more, or to submit a sweep once more for some of its parameters."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace

from koalapy_adapters.launcher.space import Compiled

from koalapy.languages.jobfile import MOST_BYTES
from koalapy.model.errors import RequestError
from koalapy.model.intervals import Intervals
from koalapy.model.job import Job
from koalapy.model.parameters import Axis, Source, Space
from koalapy.model.request import FlowJob, Request
from koalapy.model.states import JobState
from koalapy.model.sweep import Sweep
from koalapy.model.work import Flow, Work
from koalapy.runtime.parameters import line_reader


def request_again(work: Work) -> Request:
    """Return the request as it was submitted, with all processors that it wanted. Its files are looked up anew.

    It begins at no instant that was set for the first time.
    """
    written = (work.written if isinstance(work, Job) else None) or work.request
    components = tuple([replace(each, processors=each.most or each.processors) for each in written.components])
    begin = None if written.begin is None or written.begin.instant is not None else written.begin
    claim_before = None if begin is None else written.claim_before
    return replace(written, files="", components=components, begin=begin, claim_before=claim_before)


def request_of_flow(flow: Flow, jobs: Sequence[Work], failed: bool = False) -> Request:
    """Return the request of a flow again. `jobs`: all its jobs. `failed`: only those that are not done.

    Raises RequestError if some are pruned, and with `failed`, if the flow is not final, or all its jobs are done.
    """
    if len(jobs) < flow.count:
        message = f"{flow.count - len(jobs):,} of the {flow.count:,} jobs of flow {flow.id} were pruned."
        raise RequestError("pruned", message, "Submit its file again.")
    if failed and not flow.state.final:
        advice = f"Wait with `koala wait {flow.id}`, or cancel it."
        raise RequestError("wrong_state", f"Flow {flow.id} is {flow.state}: some of its jobs may go on.", advice)
    again = [job for job in jobs if not failed or job.state is not JobState.DONE]
    if not again:
        raise RequestError("none_failed", f"All jobs of flow {flow.id} are done.", "There is nothing to do.")
    places = {job.id: place for place, job in enumerate(again)}
    parts = [
        FlowJob(
            request=replace(job.request, files="", after=()),
            after=tuple([places[each] for each in job.request.after if each in places]),
        )
        for job in again
    ]
    return replace(flow.request, jobs=tuple(parts), after=() if failed else flow.request.after)


def request_of_failed(sweep: Work) -> Request:
    """Return the request of a sweep for the parameters that did not end with exit status 0, numbered from 1.

    Raises RequestError if the job is no sweep, is not final, or has no such parameters. Raises it too if their values
    are not known any more, or too large.
    """
    space = sweep.request.parameters
    if not isinstance(sweep, Sweep) or space is None:
        advice = f"`koala resubmit {sweep.id}` submits it again."
        raise RequestError("no_sweep", f"Job {sweep.id} is not a sweep.", advice)
    if not sweep.state.final:
        advice = f"Wait with `koala wait {sweep.id}`, or cancel it."
        raise RequestError("wrong_state", f"Job {sweep.id} is {sweep.state}: some of its parameters may go on.", advice)
    again = Intervals.of([(1, sweep.count)]) - (sweep.done - sweep.failed)
    if not again:
        message = f"All parameters of sweep {sweep.id} ended with 0."
        raise RequestError("none_failed", message, "There is nothing to do.")
    found = _only(space, again, sweep) if len(again) < MOST_BYTES else space
    if len(again) >= MOST_BYTES or len(json.dumps(asdict(found))) > MOST_BYTES:
        message = f"The values of {len(again):,} parameters of sweep {sweep.id} have more than {MOST_BYTES:,} bytes."
        raise RequestError("too_large", message, f"Write them into a file with `koala results {sweep.id} --failed`.")
    return replace(sweep.request, files="", parameters=found)


def _only(space: Space, numbers: Intervals, sweep: Sweep) -> Space:
    """Return a parameter space that lists the values of these numbers.

    Raises RequestError if they are not known any more.
    """
    names = [name for axis in space.axes for source in axis.sources for name in source.names]
    try:
        compiled = Compiled(asdict(space), [f"{{{name}}}" for name in names], line_reader(sweep.request))
        rows = [[value.decode() for value in compiled.of(number)] for number in numbers]
    except ValueError as error:
        message = f"The values of the parameters of sweep {sweep.id} are not known any more: {error}."
        raise RequestError("no_value", message, "Put back the file that holds them.") from error
    columns = zip(*rows, strict=True)
    sources = [Source(names=(name,), values=tuple(column)) for name, column in zip(names, columns, strict=True)]
    return Space(axes=(Axis(sources=tuple(sources), count=len(rows)),))
