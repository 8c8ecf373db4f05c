"""Read submitted jobs of all registered job languages."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

from koalapy.api.bodies import JobText
from koalapy.common.registry import load, registered
from koalapy.languages import from_mapping, read_job, read_notify
from koalapy.model.errors import RequestError
from koalapy.model.labels import joined
from koalapy.model.request import Request
from koalapy.model.textfile.words import shown, use_known
from koalapy.runtime.current_grid import CurrentGrid
from koalapy.runtime.parameters import open_regular, with_staged


def reader(grid: CurrentGrid) -> Callable[[JobText], Request]:
    """Return a function that reads jobs for the grid's present clusters. Plug-ins are looked up once."""
    readers = {name: load("koalapy.languages", name) for name in registered("koalapy.languages")}
    orders = sorted(registered("koalapy.sweep_order"))

    def read(job: JobText) -> Request:
        """Read a submitted text or mapping. Raises RequestError with file, place and key."""
        _check(job)
        clusters = list(grid.file.clusters)
        if job.job is not None:
            found = from_mapping(job.job, job.source, job.directory, clusters, job.overrides, open_regular)
        else:
            assert job.text is not None
            found = read_job(job.text, job.source, job.directory, clusters, job.overrides, readers, open_regular)
        for each in found.jobs:
            _check_order(each.request.order, orders)
        _check_order(found.order, orders)
        if job.notify is not None:
            found = replace(found, notify=read_notify(job.notify, "--notify"))
        jobs = tuple([replace(each, request=with_staged(each.request)) for each in found.jobs])
        return with_staged(replace(found, labels=joined(found.labels, job.labels.items()), jobs=jobs))

    return read


def _check_order(name: str, known: Sequence[str]) -> None:
    """Load the order of a sweep's parameters. Raises RequestError if it is not registered, or cannot be loaded."""
    if name and name not in known:
        message = f"The order {shown(name)} of a sweep's parameters is not registered."
        raise RequestError("unknown_order", message, use_known(name, known))
    if name:
        load("koalapy.sweep_order", name)


def _check(job: JobText) -> None:
    """Raises RequestError if the body has no job, two jobs, or a relative directory."""
    if job.text is None and job.job is None:
        raise RequestError("no_job", "The request holds no job.", "Give it as `text` or as `job`.")
    if job.text is not None and job.job is not None:
        raise RequestError("two_jobs", "The request holds a job as text and as job.", "Give it as one of the two.")
    if not os.path.isabs(job.directory):
        message = f"The directory {job.directory!r} is not absolute."
        raise RequestError("bad_directory", message, "Name the one that the job's paths are relative to.")
