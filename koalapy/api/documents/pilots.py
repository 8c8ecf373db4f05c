"""Pilots, as JSON."""

from koalapy import answers
from koalapy.model.units import SECOND, Instant, format_instant
from koalapy.views.pilots import PilotView


def pilot(view: PilotView) -> answers.Pilot:
    """Describe a pilot."""
    component, attempt = view.job.request.components[0], view.attempt
    per_node = component.processors_per_node
    return {
        "name": view.name,
        "job": view.job.id,
        "state": "draining" if view.draining and view.state == "bound" else view.state.value,
        "on": component.cluster or "",
        "processors": component.processors,
        "nodes": None if per_node is None else component.processors // per_node,
        "hosts": [] if attempt is None else [node.name for node in attempt.nodes],
        "walltime_s": component.walltime / SECOND,
        "idle_s": view.terms.idle / SECOND,
        "shared": view.terms.shared,
        "isolate": view.terms.isolate.value,
        "opened_at": format_instant(view.job.submitted_at),
        "ends_at": _instant(view.ends_at),
        "ended_at": _instant(view.job.finished_at),
        "jobs": [*view.left.living, *view.left.naming],
        "reason": None if (reason := view.job.reason or view.trouble) is None else str(reason),
    }


def _instant(instant: Instant | None) -> str | None:
    return None if instant is None else format_instant(instant)
