"""The fit of components on clusters, and the reasons of misfits."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from koalapy.broker.suitability import EVERY_CLUSTER, Suitability
from koalapy.information.commitments import processors_taken
from koalapy.information.kis import ClusterSummary
from koalapy.model.counts import counted_as
from koalapy.model.errors import Reason
from koalapy.model.isolated import beyond_isolation, why_not_isolated
from koalapy.model.lease import beyond_pilots, is_temporary, lease_of_cluster
from koalapy.model.request import ComponentRequest
from koalapy.model.units import format_duration

WALLTIME_LIMIT = "walltime_limit"


@dataclass(frozen=True, slots=True)
class Misfit:
    """The reason why a component does not fit on a cluster."""

    cluster: str
    component: int
    reason: Reason


def demand(component: ComponentRequest, summaries: Iterable[ClusterSummary]) -> dict[str, int]:
    """Return the processors that the component, which names no cluster, takes on each usable one that may have it."""
    taken = {
        summary.name: (processors_taken(component, summary.settings), summary.largest)
        for summary in summaries
        if not summary.settings.only_named
        and not (is_temporary(summary.name) and _temporary_misfit(component, summary) is not None)
    }
    return {name: needed for name, (needed, largest) in taken.items() if needed <= largest}


def misfit(component: ComponentRequest, summary: ClusterSummary, *, now: bool = True) -> Reason | None:
    """Return the reason why the component does not fit on the cluster; None if it fits.

    `now`: whether enough processors must be idle now.
    """
    if component.cluster not in (None, summary.name):
        return Reason("elsewhere", "request", f"its component names {component.cluster}.")
    if component.cluster is None and summary.settings.only_named:
        return Reason("only_named", "request", "takes only components that name it.", "Name it with `cluster:`.")
    if summary.trouble:
        return summary.trouble
    if (reason := refusal(component, summary)) is not None:
        return reason
    needed = processors_taken(component, summary.settings)
    if needed > summary.largest:
        return _too_large(summary, needed)
    if now and needed > summary.idle:
        return Reason("busy", "transient", _busy(summary, needed), "It waits until they are idle.")
    return _shape(component, summary, needed) if now else None


def refusal(component: ComponentRequest, summary: ClusterSummary) -> Reason | None:
    """Return the reason why the cluster takes no component like this one, whatever its size; None if it does."""
    if is_temporary(summary.name) and (reason := _temporary_misfit(component, summary)) is not None:
        return reason
    return too_long(component, summary)


def _temporary_misfit(component: ComponentRequest, summary: ClusterSummary) -> Reason | None:
    """Return the reason why the component cannot run on this pilot or lease; None if it can."""
    if summary.settings.sweeps_only:
        message = "has the processors of a component that waits at its barrier, and serves sweeps only."
        return Reason("sweeps_only", "request", message, "Name another cluster, or none.")
    beyond = beyond_pilots(component)
    if not beyond and component.native and lease_of_cluster(summary.name) is not None:
        beyond = "options of a batch system"
    if beyond:
        message = f"is a pilot or lease, and has no {beyond}."
        return Reason("pilot_lacks", "request", message, "Name another cluster, or none.")
    visible = summary.settings.isolation
    return None if visible is None else why_not_isolated(beyond_isolation(component), visible)


def too_long(component: ComponentRequest, summary: ClusterSummary) -> Reason | None:
    """Return the reason why the cluster's own queue does not take the component's walltime; None if it does."""
    limit = summary.walltime_limit
    if limit is None or (asked := component.queue_walltime) is None or asked <= limit:
        return None
    message = f"its queue takes a walltime of {format_duration(limit)} at most, not {format_duration(asked)}."
    return Reason(WALLTIME_LIMIT, "request", message, "Lower `walltime`, or name another `queue`.")


def _too_large(summary: ClusterSummary, needed: int) -> Reason:
    total, largest = summary.whole or summary.size
    if needed <= largest:
        message = f"has only {summary.total} of its {_of(total)} now, but {_needed(needed)}."
        if total == summary.total:
            message = (
                f"gives one component at most {_of(summary.largest)} now, and not {largest}, but {_needed(needed)}."
            )
        return Reason(
            "smaller", "transient", message, "Ask the administrators which nodes are down, or ask for fewer processors."
        )
    if not total and not summary.size_known:
        message = f"shows no processors at all, but {_needed(needed)}."
        return Reason("smaller", "transient", message, "Ask the administrators whether its nodes are up.")
    if needed > total:
        message = f"has {_of(total)} in all, but {_needed(needed)}."
        return Reason("too_large", "request", message, "Ask for fewer.")
    message = f"gives one component at most {largest} of its {_of(total)}, but {_needed(needed)}."
    return Reason("too_large", "request", message, "Ask for fewer, in more components.")


def _busy(summary: ClusterSummary, needed: int) -> str:
    committed = (
        f" ({summary.committed} more {_are(summary.committed)} committed to other jobs)" if summary.committed else ""
    )
    are = "is" if 1 in (summary.idle, summary.total) else "are"
    return f"{summary.idle} of {_of(summary.total)} {are} idle{committed}, but {_needed(needed)}."


def _of(processors: int) -> str:
    return counted_as(processors, "processor")


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _needed(processors: int) -> str:
    return f"{processors} {_are(processors)} needed"


def _shape(component: ComponentRequest, summary: ClusterSummary, needed: int) -> Reason | None:
    """Return a `busy` reason if too few nodes have `processors_per_node` processors free; else None."""
    most = summary.state.largest_idle if summary.state is not None else None
    if most is not None and needed > most:
        return Reason("busy", "transient", f"{_of(most)} {_are(most)} idle for one component, but {_needed(needed)}.")
    per_node = component.processors_per_node
    if per_node is None or summary.state is None or not summary.state.free_nodes:
        return None
    nodes = sum(count for free, count in summary.state.free_nodes if free >= per_node)
    wanted = -(-component.processors // per_node)
    if nodes >= wanted:
        return None
    free = f"{counted_as(nodes, 'node has', 'nodes have')} {counted_as(per_node, 'free processor')}"
    return Reason("busy", "transient", f"{free}, but {counted_as(wanted, 'such node is', 'such nodes are')} needed.")


def _spread_misfit(component: ComponentRequest, summary: ClusterSummary) -> Reason | None:
    """Return why a cluster alone is not enough for a component that may be spread; None if it is."""
    if summary.trouble is not None:
        return summary.trouble
    if (reason := refusal(component, summary)) is not None or summary.idle >= component.processors:
        return reason
    message = f"could give {_of(summary.idle)} of {component.processors}."
    return Reason("busy", "transient", message, "It waits until a group of clusters has enough.")


def misfits(
    components: Mapping[int, ComponentRequest],
    summaries: Sequence[ClusterSummary],
    suitability: Suitability = EVERY_CLUSTER,
) -> list[Misfit]:
    """Return, for `koala explain`, the misfit of each component on each cluster that it may use.

    A component with a range is there with the least processors that it takes.
    """
    found = []
    for index, wanted in components.items():
        component = wanted.smallest()
        for summary in summaries:
            reason = _spread_misfit(component, summary) if component.spread else misfit(component, summary)
            if reason is None or reason.code in ("busy", "too_large", "smaller"):
                reason = suitability.why_not(component, summary.name) or reason
            if reason is not None and reason.code != "elsewhere":
                found.append(Misfit(summary.name, index, reason))
    return found
