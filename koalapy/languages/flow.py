"""A job file with `jobs`: a flow of jobs that wait for each other by name (docs/flows.md)."""

import json
from collections.abc import Collection, Iterable, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from koalapy.languages.jobfile import (
    Communication,
    ComponentFile,
    JobIds,
    JobKeys,
    JobLabels,
    Name,
    check_components,
)
from koalapy.languages.mapping import job_mapping
from koalapy.languages.spaces import with_parameters
from koalapy.languages.tables import OpenFile
from koalapy.model.identity import MAX_COMPONENTS
from koalapy.model.request import FlowJob, OnFailure, Request, WhenBusy
from koalapy.model.sent import MOST_BYTES, why_not_sent
from koalapy.model.textfile.document import Document, Path
from koalapy.model.textfile.fields import Line, Section, Version, as_entries, as_list, one_of, wrong
from koalapy.model.textfile.notify import NotifyEntries, notify_of
from koalapy.model.textfile.validation import json_schema_of, refusal, validate
from koalapy.model.textfile.words import shown, use_known

MOST_JOBS = 10_000
MOST_WAITS = 1_000_000  # of all jobs together
_MOST_NAMED = 6  # jobs of a circle in an error


Names = Annotated[tuple[Line, ...], Field(strict=False), BeforeValidator(as_list)]
Stages = Annotated[tuple[Names, ...], Field(strict=False), BeforeValidator(as_list)]


def _jobs(jobs: list[Any]) -> list[Any]:
    if not jobs:
        raise wrong("is empty", "Write at least one job, such as `- {name: a, components: [...]}`.")
    if len(jobs) > MOST_JOBS:
        raise wrong(f"lists {len(jobs):,} jobs, more than {MOST_JOBS:,}", "Divide the flow.", "too_many")
    return jobs


class FlowJobFile(JobKeys):
    """A job of a flow, or a flow of its own that another site runs: then it has `jobs`, and no components."""

    components: Annotated[
        tuple[ComponentFile, ...],
        Field(strict=False, json_schema_extra={"minItems": 1, "maxItems": MAX_COMPONENTS}),
        BeforeValidator(lambda value: check_components(as_entries(value))),
    ] = Field(default=(), description="what runs, in order of rank")
    name: Name = Field(description="its name in the flow")
    after: Names = Field(
        default=(), description="names of jobs of the flow that must be done before this one may begin"
    )
    jobs: Annotated[
        tuple["FlowJobFile", ...],
        Field(strict=False, json_schema_extra={"minItems": 1, "maxItems": MOST_JOBS}),
        BeforeValidator(lambda value: _jobs(as_entries(value))),
    ] = Field(default=(), description="jobs that the site runs as a flow of its own, in place of components")
    stages: Stages = Field(default=(), description="as in the whole file, of these jobs")
    on_failure: Annotated[OnFailure, one_of(OnFailure)] = Field(
        default=OnFailure.CONTINUE, description="as in the whole file, of these jobs"
    )

    @model_validator(mode="after")
    def _check_jobs(self) -> Self:
        """A job has components, or jobs that a site runs."""
        if not self.jobs and not self.components:
            raise wrong("is missing", "Add `components: …` there.", "missing_key", ("components",))
        if not self.jobs:
            for key in ("stages", "on_failure"):
                if key in self.model_fields_set:
                    raise wrong("belongs to a job with `jobs`", "Remove it.", at=(key,))
            return self
        if self.site is None:
            advice = "Name the site that runs them, or write them beside the other jobs, with `after`."
            raise wrong("stand inside of a job that names no site", advice, at=("jobs",))
        own = {"name", "after", "site", "jobs", "stages", "on_failure", "labels", "notify"}
        for key in sorted(self.model_fields_set - own):
            raise wrong("is of a job with components, and this one has jobs", "Write it in each of them.", at=(key,))
        return self


class FlowFile(Section):
    """Jobs that are submitted together, some of which wait for others."""

    koala: Version = Field(default=1, description="version of this file's format")
    name: Name | None = Field(default=None, description="the flow's name; by default the file's")
    jobs: Annotated[
        tuple[FlowJobFile, ...],
        Field(strict=False, json_schema_extra={"minItems": 1, "maxItems": MOST_JOBS}),
        BeforeValidator(lambda value: _jobs(as_entries(value))),
    ] = Field(description="its jobs, each with a name of its own")
    stages: Stages = Field(
        default=(), description="lists of names: the jobs of each stage wait for all jobs of the stage before"
    )
    after: JobIds = Field(default=(), description="ids of jobs that must be done before any job of the flow may begin")
    on_failure: Annotated[OnFailure, one_of(OnFailure)] = Field(
        default=OnFailure.CONTINUE, description="stop: the first failure cancels the rest of the flow"
    )
    labels: JobLabels = Field(default={}, description="texts by which `koala jobs --label` finds the flow")
    notify: NotifyEntries | None = Field(default=None, description="who is notified of the flow's end; the grid file's")


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a flow's file. It lacks the rules that only koalapy can check."""
    return json_schema_of(FlowFile)


def flow_request(
    document: Document, directory: str, clusters: Collection[str] | None, name: str, open_file: OpenFile | None
) -> Request:
    """Return the request of a flow. `name`: for a flow without one. Raises RequestError, also for circles.

    `open_file` opens the files of the parameters of sweeps in it.
    """
    flow = validate(FlowFile, document, {"clusters": clusters})
    return Request(
        name=flow.name or name,
        components=(),
        directory=directory,
        labels=tuple(flow.labels.items()),
        notify=None if flow.notify is None else notify_of(flow.notify),
        after=unique(flow.after),
        on_failure=flow.on_failure,
        jobs=_parts(flow, document, directory, open_file),
    )


def _parts(
    flow: FlowFile | FlowJobFile, document: Document, directory: str, open_file: OpenFile | None, at: Path = ()
) -> tuple[FlowJob, ...]:
    """Return the jobs of a flow. `at`: its path in the document. Raises RequestError."""
    after = _prerequisites(flow, document, at)
    _refuse_circles(flow, after, document, at)
    found = []
    for place, (job, waits) in enumerate(zip(flow.jobs, after, strict=True)):
        here: Path = (*at, "jobs", place)
        if job.jobs:
            request = _subtree(job, document, directory, open_file, here)
        else:
            request = job_request(job, job.name, directory)
            request = with_parameters(request, job, document.inside(here), open_file)
        refuse_unsendable(request, document, here)
        found.append(FlowJob(request=request, after=waits))
    return tuple(found)


def _subtree(job: FlowJobFile, document: Document, directory: str, open_file: OpenFile | None, at: Path) -> Request:
    """Return the request of a job that is a flow of its own at another site. Raises RequestError."""
    return Request(
        name=job.name, components=(), directory=directory, labels=tuple(job.labels.items()),
        notify=None if job.notify is None else notify_of(job.notify), on_failure=job.on_failure,
        jobs=_parts(job, document, directory, open_file, at), site=job.site,
    )  # fmt: skip


def refuse_unsendable(request: Request, document: Document, at: Path = ()) -> None:
    """Raises RequestError if the job names a site that cannot run it. `at`: its path in the document."""
    if request.site is None:
        return
    if (why := why_not_sent(request)) is not None:
        raise refusal(document, at, why.code, why.message, why.advice)
    if (size := len(json.dumps(job_mapping(request)))) > MOST_BYTES:
        what = f"has {size:,} bytes, more than the {MOST_BYTES:,} that are sent to a site"
        raise refusal(document, at, "too_large", what, "Divide it.")


def job_request(job: JobKeys, name: str, directory: str) -> Request:
    """Return the request of a job that is no sweep."""
    may_queue = job.race is not None or (len(job.components) == 1 and not job.components[0].spread)
    busy = WhenBusy.QUEUE if may_queue else WhenBusy.WAIT
    asked_for = job.model_fields_set
    attended = job.interactive is not None  # a person waits for it, and cannot type again what a lost try got
    return Request(
        name=name,
        components=tuple(component.request() for component in job.components),
        priority=0 if attended and "priority" not in asked_for else job.priority,
        when_busy=job.when_busy or busy,
        retry_on=() if attended and "retry_on" not in asked_for else tuple(dict.fromkeys(job.retry_on)),
        communication=job.communication is Communication.ALL,
        stage_in=job.stage_in,
        stage_out=tuple(each.path for each in job.stage_out),
        stage_out_to=tuple((each.path, each.to) for each in job.stage_out if each.to is not None),
        directory=directory,
        order=job.order or "",
        keep_output=job.keep_output,
        labels=tuple(job.labels.items()),
        retrials=job.on_error,
        relax_after=job.relax_after,
        begin=job.begin,
        claim_before=job.claim_before,
        expires=job.expires,
        barrier_wait=None if job.barrier is None else job.barrier.wait,
        held_limit=None if job.barrier is None else job.barrier.processor_hours,
        race=None if job.race is None else job.race.most,
        fill=None if job.barrier is None else job.barrier.fill,
        notify=None if job.notify is None else notify_of(job.notify),
        interactive=job.interactive,
        site=job.site,
        dttl=job.dttl,
    )


def unique(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return the values, each once, in their order."""
    return tuple(dict.fromkeys(values))


def _prerequisites(flow: FlowFile | FlowJobFile, document: Document, at: Path) -> list[tuple[int, ...]]:
    """Return the places of the jobs for which each job waits. Raises RequestError for names that are not known."""
    places: dict[str, int] = {}
    for place, job in enumerate(flow.jobs):
        if job.name in places:
            what = f"is {shown(job.name)}, which jobs.{places[job.name]} is named already"
            raise refusal(document, (*at, "jobs", place, "name"), "duplicate_name", what, "Rename one of them.")
        places[job.name] = place

    def place_of(name: str, path: Path) -> int:
        if name not in places:
            what = f"is {shown(name)}, which no job of the flow is named"
            raise refusal(document, path, "unknown_name", what, use_known(name, list(places)))
        return places[name]

    after = [
        [place_of(name, (*at, "jobs", place, "after", index)) for index, name in enumerate(job.after)]
        for place, job in enumerate(flow.jobs)
    ]
    seen: dict[int, int] = {}
    before: list[int] = []
    for number, stage in enumerate(flow.stages):
        here = [place_of(name, (*at, "stages", number, index)) for index, name in enumerate(stage)]
        for index, place in enumerate(here):
            if place in seen:
                what = f"is {shown(stage[index])}, which stands in stages.{seen[place]} already"
                raise refusal(
                    document, (*at, "stages", number, index), "duplicate_name", what, "Remove one of the two."
                )
            seen[place] = number
            after[place] += before
        before = here
    if (count := sum(map(len, after))) > MOST_WAITS:
        what = f"wait for {count:,} others together, more than {MOST_WAITS:,}"
        raise refusal(
            document, (*at, "jobs"), "too_many", what, "Put a job between two large stages, or divide the flow."
        )
    return [unique(waits) for waits in after]


def _refuse_circles(flow: FlowFile | FlowJobFile, after: Sequence[Sequence[int]], document: Document, at: Path) -> None:
    """Raises RequestError, which names the jobs of a circle, if any job waits for itself."""
    try:
        TopologicalSorter(dict(enumerate(after))).prepare()
    except CycleError as error:
        found = error.args[1][:0:-1]  # each waits for the next
        first = found.index(min(found))
        circle = [*found[first:], *found[:first]]
    else:
        return
    names = [shown(flow.jobs[place].name) for place in circle]
    if len(names) > _MOST_NAMED:
        names = [*names[: _MOST_NAMED - 1], f"and, over {len(names) - _MOST_NAMED} others, {names[-1]}"]
    what = f"closes a circle: {' waits for '.join([*names, names[0]])}"
    path: Path = (*at, "jobs", circle[0], "after")
    raise refusal(document, path, "circle", what, "Take one of these out of another's `after`, or out of `stages`.")
