"""Why a sweep gets no more nodes: of each cluster where its user would have it go."""

from collections.abc import Collection, Iterator, Mapping

from koalapy.core.core import Core
from koalapy.model.counts import counted_as
from koalapy.model.job import Job
from koalapy.model.units import SECOND, Duration, Instant, format_duration
from koalapy.scavenging.ends import MOST_FAILURES
from koalapy.scavenging.hopeless import black_holes, too_small
from koalapy.scavenging.nodes import Nodes


def why_no_more(
    core: Core, now: Instant, sweep: Job, nodes: Mapping[str, Nodes], avoided: Collection[str]
) -> dict[str, str]:
    """By cluster, as the end of a sentence. Where nothing is in its way, none: what is idle there is shared out.

    `avoided`: clusters that the sweep's own order stays away from.
    """
    left_out = {name: until for name, until in sweep.excluded if now < until}

    def reasons(name: str) -> Iterator[str]:
        if too_small(sweep.request.components[0], name, core.node_sizes):
            needed = counted_as(sweep.request.components[0].processors, "processor")
            yield f"one parameter needs {needed} of one node, and its largest node has {core.node_sizes[name]}"
        if name in left_out:
            yield f"{MOST_FAILURES} Launchers failed there in a row; the next comes in {_left(now, left_out[name])}"
        if name in avoided:
            yield "the sweep's order stays away from it"
        if core.pauses.active(now, name):
            yield f"Launchers did not start there in time; the next comes in {_left(now, core.pauses.until[name])}"
        yield nodes[name].why
        if len(nodes[name].idle) <= black_holes(sweep, name):
            yield "what is idle there may be where everything failed at once"

    wished = [each.name for each in core.settings.clusters if sweep.request.components[0].cluster in (None, each.name)]
    found = {name: next(filter(None, reasons(name)), "") for name in wished if name in nodes}
    return {name: why for name, why in found.items() if why}


def _left(now: Instant, until: Instant) -> str:
    """In whole seconds, the begun one counted."""
    return format_duration(Duration(-((now - until) // SECOND) * SECOND))
