"""Clusters that are excluded for a sweep, now or for good, and the reasons why it gets no more nodes."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from koalapy.broker.fit import WALLTIME_LIMIT
from koalapy.core.core import Core
from koalapy.model.cluster import ClusterSettings
from koalapy.model.counts import counted_as
from koalapy.model.errors import Reason
from koalapy.model.request import ComponentRequest
from koalapy.model.settings import Settings
from koalapy.model.sweep import Sweep
from koalapy.model.units import SECOND, Duration, Instant, format_duration
from koalapy.scavenging import lease_demand
from koalapy.scavenging.idle_nodes import Nodes
from koalapy.scavenging.launchers import MOST_FAILURES, shortest_walltime, slots_of


def barred(core: Core, now: Instant, sweep: Sweep, idle: Mapping[str, int]) -> list[str]:
    """Return the clusters that are excluded for the sweep now.

    `idle`: the number of idle nodes on each cluster. A cluster with no more idle nodes than black holes of the sweep is
    excluded too.
    """
    holed = dict.fromkeys(cluster for cluster, _ in sweep.black_holes)
    swallowed = [name for name in holed if idle.get(name, 0) <= black_holes(sweep, name)]
    excluded = [name for name, until in sweep.excluded if now < until]
    for_good = never(core, sweep.request.components[0], core.node_sizes)
    return list(dict.fromkeys((*for_good, *excluded, *swallowed, *_of_other_users(core, sweep))))


def _of_other_users(core: Core, sweep: Sweep) -> Iterator[str]:
    """Yield the fillers of jobs that belong to other users."""
    for pilot in core.pilots.records.values():
        job = core.records.jobs.get(pilot.id)
        if pilot.fills is not None and (job is None or job.owner != sweep.owner):
            yield pilot.name


def black_holes(sweep: Sweep, cluster: str) -> int:
    return sum(name == cluster for name, _ in sweep.black_holes)


def never(core: Core, template: ComponentRequest, sizes: Mapping[str, int]) -> list[str]:
    """Return the clusters that are excluded for good.

    These are clusters that the user did not name, or that the grid file closes to sweeps. So are those whose nodes are
    too small, or whose queue takes no Launcher that lasts for one parameter.
    """
    return [
        each.name
        for each in core.settings.clusters
        if each.scavenge.off
        or template.cluster not in (None, each.name)
        or too_small(template, each.name, sizes)
        or too_long(core, template, each)
    ]


def too_long(core: Core, template: ComponentRequest, cluster: ClusterSettings) -> bool:
    """Return whether the cluster's own queue takes no Launcher that lasts for one parameter."""
    limit = core.information.walltime_limit(cluster.name)
    if limit is None or cluster.scavenge.native or template.queue_walltime is None:
        return False
    return shortest_walltime(template, core.settings.scavenging) > limit


def too_small(template: ComponentRequest, cluster: str, sizes: Mapping[str, int]) -> bool:
    """Return whether no node seen so far on the cluster can run one parameter; False if none was seen."""
    size = sizes.get(cluster, 0)
    return bool(size) and not slots_of(template, size)


def why_hopeless(core: Core, sweep: Sweep) -> Reason | None:
    """Return the reason why the sweep can run nowhere; None if it may run on some cluster, or on a lease.

    A cluster whose nodes have not been seen yet counts as one where it may run.
    """
    template, sizes = sweep.request.components[0], core.node_sizes
    barred_for_good = never(core, template, sizes)
    left = [each.name for each in core.settings.clusters if each.name not in barred_for_good]
    refused = {cluster: reason for (of, cluster), reason in core.sessions.refused.items() if of == sweep.id}
    if not left:
        return None if lease_demand.may_borrow(core, sweep.request) else nowhere(core, template, sizes)
    return refused[left[0]] if all(name in refused for name in left) else None


def nowhere(core: Core, template: ComponentRequest, sizes: Mapping[str, int]) -> Reason:
    """Return the reason why a sweep fails for which every cluster is excluded."""
    largest = max((sizes.get(name, 0) for name in _may_name(template, core.settings)), default=0)
    if not largest:
        where = template.cluster or "any cluster"
        message = f"The grid file lets no sweep have nodes of {where}."
        return Reason("nowhere", "request", message, "Take `off` out of `scavenge` there, or name another cluster.")
    if (reason := _longer_than_all(core, template)) is not None:
        return reason
    needed = counted_as(template.processors, "processor")
    message = f"One parameter needs {needed} of one node; the largest node has {largest}."
    return Reason("too_large", "request", message, "Ask for fewer.")


def _longer_than_all(core: Core, template: ComponentRequest) -> Reason | None:
    """Return the reason if every cluster that the sweep may use takes too short a walltime; else None."""
    names = _may_name(template, core.settings)
    clusters = [each for each in core.settings.clusters if each.name in names]
    if not clusters or not all(too_long(core, template, each) for each in clusters):
        return None
    longest = max(limit for each in clusters if (limit := core.information.walltime_limit(each.name)) is not None)
    most = longest - shortest_walltime(replace(template, walltime=Duration(0)), core.settings.scavenging)
    message = (
        f"One parameter has a walltime of {format_duration(template.walltime)}; the longest that fits is "
        f"{format_duration(Duration(max(0, most)))}."
    )
    return Reason(WALLTIME_LIMIT, "request", message, "Lower `walltime`, or name another `queue`.")


def _may_name(template: ComponentRequest, settings: Settings) -> Iterable[str]:
    clusters: Sequence[str] = [each.name for each in settings.clusters if not each.scavenge.off]
    return [name for name in clusters if template.cluster in (None, name)]


def why_no_more(
    core: Core, now: Instant, sweep: Sweep, nodes: Mapping[str, Nodes], avoided: Collection[str]
) -> dict[str, str]:
    """Return for each cluster the reason why the sweep gets no more nodes there, as the end of a sentence.

    Clusters without a reason are left out. `avoided`: clusters that the sweep's own order excludes.
    """
    excluded = {name: until for name, until in sweep.excluded if now < until}

    def reasons(name: str) -> Iterator[str]:
        if too_small(sweep.request.components[0], name, core.node_sizes):
            needed = counted_as(sweep.request.components[0].processors, "processor")
            yield f"one parameter needs {needed} of one node, and its largest node has {core.node_sizes[name]}"
        if too_long(core, sweep.request.components[0], core.information.clusters[name].settings):
            yield "its queue takes no walltime that is long enough for one parameter"
        if name in excluded:
            yield f"{MOST_FAILURES} Launchers failed there in a row; the next comes in {_left(now, excluded[name])}"
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
    """Return the time until the instant, rounded up to whole seconds."""
    return format_duration(Duration(-((now - until) // SECOND) * SECOND))
