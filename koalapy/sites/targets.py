"""The neighbour that a request goes to, of those that may be asked (SC'07, section 4.4)."""

from collections.abc import Callable, Collection, Mapping

from koalapy.model.neighbour import Relation
from koalapy.policies.delegation import Target, TargetPolicy

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
