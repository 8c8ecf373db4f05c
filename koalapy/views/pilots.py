"""The pilots of a grid, as `koala pilots` shows them."""

from dataclasses import dataclass, field, replace

from koalapy.answers import pilots as answers
from koalapy.core.remaining import Remaining, remaining_on
from koalapy.engine import Engine
from koalapy.model.attempt import Attempt
from koalapy.model.errors import Reason
from koalapy.model.job import Job, job_value
from koalapy.model.pilot import Pilot, pilot_cluster
from koalapy.model.request import PilotOptions
from koalapy.model.states import AttemptState, JobState, PilotState
from koalapy.model.units import SECOND, Instant, format_instant
from koalapy.views.fields import optional_instant


@dataclass(frozen=True, slots=True)
class PilotView:
    """One pilot. `pilot`: its record; None when it has ended. `remaining`: what koalapy has on it, or waits for there.

    `trouble`: why no job can be placed there now; for one that is no cluster yet, why not.
    """

    job: Job
    pilot: Pilot | None = None
    remaining: Remaining = field(default_factory=Remaining)
    trouble: Reason | None = None

    @property
    def name(self) -> str:
        return pilot_cluster(self.job.id)

    @property
    def state(self) -> PilotState:
        """The state of its record; of one that has ended, how its job ended."""
        if self.pilot is not None:
            return self.pilot.state
        return PilotState.FAILED if self.job.state is JobState.FAILED else PilotState.ENDED

    @property
    def options(self) -> PilotOptions:
        assert self.job.request.pilot is not None
        return self.job.request.pilot

    @property
    def attempt(self) -> Attempt | None:
        """The attempt that holds the processors; None before the claim."""
        return next(iter(self.job.present), None)

    @property
    def ends_at(self) -> Instant | None:
        """The instant at which its walltime ends; None before its program runs."""
        attempt = self.attempt
        began = None if attempt is None else attempt.started_at or attempt.released_at
        return None if attempt is None or began is None else Instant(began + attempt.request.walltime)


def answer(view: PilotView) -> answers.Pilot:
    """Describe a pilot."""
    component, attempt = view.job.request.components[0], view.attempt
    per_node = component.processors_per_node
    return {
        "name": view.name,
        "job": view.job.id,
        "state": view.state.value,  # type: ignore[typeddict-item]
        "on": component.cluster or "",
        "processors": component.processors,
        "nodes": None if per_node is None else component.processors // per_node,
        "hosts": [] if attempt is None else [node.name for node in attempt.nodes],
        "walltime_s": component.walltime / SECOND,
        "idle_s": view.options.idle / SECOND,
        "shared": view.options.shared,
        "isolate": view.options.isolate.value,
        "opened_at": format_instant(view.job.submitted_at),
        "ends_at": optional_instant(view.ends_at),
        "ended_at": optional_instant(view.job.finished_at),
        "jobs": [*view.remaining.living, *view.remaining.naming],
        "reason": None if (reason := view.job.reason or view.trouble) is None else str(reason),
    }


def pilots(engine: Engine) -> list[PilotView]:
    """Return the pilots whose jobs are not final, by job, but those that hold leases of other sites."""
    core, found = engine.core, []
    for pilot in sorted(core.pilots.records.values(), key=lambda each: each.id):
        job, known = core.records.jobs.get(pilot.id), core.information.clusters.get(pilot.name)
        if job is None or pilot.fills is not None:
            continue
        binding = pilot.state is PilotState.BINDING
        trouble = _why_not_bound(engine, job) if binding else None if known is None else known.trouble
        found.append(PilotView(job_value(job), pilot, remaining_on(core, pilot.name), trouble))
    return found


def _why_not_bound(engine: Engine, job: Job) -> Reason:
    """Return why a pilot is no cluster yet: its own cluster is out of reach, or has not started its batch job."""
    on = job.request.components[0].cluster or ""
    known = engine.core.information.clusters.get(on)
    advice = f"`koala explain {job.id}` shows more."
    if known is not None and known.trouble is not None:
        return replace(known.trouble, message=f"{on} cannot be used: {known.trouble.message}")
    attempt = next(iter(job.present), None)
    if job.state is JobState.HELD:
        return Reason("held", "request", "It is held.", f"`koala release {job.id}` releases it.")
    if attempt is None:
        return Reason("not_claimed", "cluster", f"It waits for {on}.", advice)
    if attempt.state in (AttemptState.SUBMITTING, AttemptState.QUEUED):
        why = f" ({attempt.pending_reason})" if attempt.pending_reason else ""
        return Reason("in_queue", "cluster", f"Its batch job waits in the queue of {on}{why}.", advice)
    return Reason("starting", "transient", f"Its batch job has started on {on}, and prepares itself.", advice)
