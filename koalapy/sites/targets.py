"""The neighbour that a request goes to, of those that may be asked (SC'07, section 4.4)."""

from collections.abc import Callable, Collection, Mapping
from functools import partial

from koalapy.core.core import Core
from koalapy.model.neighbour import Relation
from koalapy.policies import call_policy
from koalapy.policies.delegation import Target, TargetPolicy, nearest

_DISTANCE = {Relation.CHILD: 0, Relation.SIBLING: 1, Relation.PARENT: 2}


def first_target(
    policy: TargetPolicy,
    processors: int,
    neighbours: Mapping[str, Relation],
    free: Callable[[str], int | None],
    without: Collection[str | None],
    asked: int,
) -> str | None:
    """Return the neighbour to ask for so many processors; None if there is none.

    Neighbours that are known to have too few (`free`; None is unknown) are left out: asking them would only cost time.
    `without`: those that may not be asked. `asked`: the requests of this site so far.
    """
    targets = [
        Target(name, _DISTANCE[relation], there)
        for name, relation in neighbours.items()
        if ((there := free(name)) is None or there >= processors) and name not in without
    ]
    ordered = policy(processors, targets, asked) if targets else ()
    return ordered[0].site if ordered else None


def next_target(core: Core, processors: int, without: Collection[str | None]) -> tuple[str | None, str]:
    """Return the neighbour that a live site asks next, None if there is none; and the error of its policy, if any."""
    neighbours = core.neighbours
    relations = {name: neighbours.records[name].relation for name in neighbours.connected}

    def ask(policy: TargetPolicy) -> str | None:
        return first_target(policy, processors, relations, partial(free_there, core), without, neighbours.asked)

    def wrong(found: str | None) -> str:
        may = found is None or (found in relations and found not in without)
        return "" if may else f"it chose {found}, which may not be asked"

    return call_policy(lambda: ask(neighbours.policies.targets), wrong, ask(nearest))


def free_there(core: Core, neighbour: str) -> int | None:
    """Return the processors that a neighbour reported, less those that it was asked for; None before a report."""
    record = core.neighbours.records[neighbour]
    asked = sum(each.processors for each in core.leases.borrowed_of(neighbour) if each.state.asked)
    return None if record.free is None else record.free - asked


def borrowed_processors(core: Core) -> int:
    """Return the processors that this site has borrowed or asked for, for itself or for others."""
    return sum(each.processors for each in core.leases.borrowed.values())
