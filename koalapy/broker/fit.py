"""Which cluster can take which component, and why not."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from koalapy.information.kis import View
from koalapy.information.promises import processors_taken
from koalapy.model.counts import counted_as
from koalapy.model.errors import Reason
from koalapy.model.request import ComponentRequest


@dataclass(frozen=True, slots=True)
class Lack:
    """What a cluster lacks for a component."""

    cluster: str
    component: int
    reason: Reason


def demand(component: ComponentRequest, views: Iterable[View]) -> dict[str, int]:
    """The processors it takes on each cluster, of those without trouble, that could take it at all."""
    taken = {view.name: (processors_taken(component, view.settings), view.largest) for view in views}
    return {name: needed for name, (needed, largest) in taken.items() if needed <= largest}


def lack(component: ComponentRequest, view: View, *, now: bool = True) -> Reason | None:
    """Why the component does not go there; with `now` False, regardless of how many processors are idle."""
    if component.cluster not in (None, view.name):
        return Reason("elsewhere", "request", f"its component names {component.cluster}.")
    if view.trouble:
        return view.trouble
    needed = processors_taken(component, view.settings)
    if needed > view.largest:
        return _too_large(view, needed)
    if now and needed > view.idle:
        return Reason("busy", "transient", _busy(view, needed), "It waits until they are idle.")
    return _shape(component, view, needed) if now else None


def _too_large(view: View, needed: int) -> Reason:
    total, largest = view.whole or view.size
    if needed <= largest:
        message = f"has only {view.total} of its {_of(total)} now, but {_needed(needed)}."
        if total == view.total:
            message = f"gives one component at most {_of(view.largest)} now, and not {largest}, but {_needed(needed)}."
        return Reason(
            "smaller", "transient", message, "Ask the site which nodes are down, or ask for fewer processors."
        )
    if not total and not view.settled:
        message = f"shows no processors at all, but {_needed(needed)}."
        return Reason("smaller", "transient", message, "Ask the site whether its nodes are up.")
    if needed > total:
        message = f"has {_of(total)} in all, but {_needed(needed)}."
        return Reason("too_large", "request", message, "Ask for fewer.")
    message = f"gives one component at most {largest} of its {_of(total)}, but {_needed(needed)}."
    return Reason("too_large", "request", message, "Ask for fewer, in more components.")


def _busy(view: View, needed: int) -> str:
    promised = f" ({view.promised} more {_are(view.promised)} promised to other jobs)" if view.promised else ""
    are = "is" if 1 in (view.idle, view.total) else "are"
    return f"{view.idle} of {_of(view.total)} {are} idle{promised}, but {_needed(needed)}."


def _of(processors: int) -> str:
    return counted_as(processors, "processor")


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _needed(processors: int) -> str:
    return f"{processors} {_are(processors)} needed"


def _shape(component: ComponentRequest, view: View, needed: int) -> Reason | None:
    """So many processors a node need nodes with so many free."""
    most = view.state.largest_idle if view.state is not None else None
    if most is not None and needed > most:
        return Reason("busy", "transient", f"{_of(most)} {_are(most)} idle for one component, but {_needed(needed)}.")
    per_node = component.processors_per_node
    if per_node is None or view.state is None or not view.state.free_nodes:
        return None
    nodes = sum(count for free, count in view.state.free_nodes if free >= per_node)
    wanted = -(-component.processors // per_node)
    if nodes >= wanted:
        return None
    free = f"{counted_as(nodes, 'node has', 'nodes have')} {counted_as(per_node, 'free processor')}"
    return Reason("busy", "transient", f"{free}, but {counted_as(wanted, 'such node is', 'such nodes are')} needed.")


def lacks(components: Mapping[int, ComponentRequest], views: Sequence[View]) -> list[Lack]:
    """For `koala explain`: of every component, what each cluster that it may go to lacks."""
    found = []
    for index, component in components.items():
        for view in views:
            reason = lack(component, view)
            if reason is not None and reason.code != "elsewhere":
                found.append(Lack(view.name, index, reason))
    return found
