"""Processors of suspended jobs on a cluster that other jobs have, computed from all live attempts."""

from collections.abc import Collection

from koalapy.chaos.promises.knowledge import KnownCluster
from koalapy.chaos.promises.processors import Processors
from koalapy.engine import Engine
from koalapy.model.attempt import Attempt
from koalapy.model.identity import JobId, tag_of


def shared(seen: KnownCluster, engine: Engine, processors: Processors, later: Collection[JobId] = ()) -> int:
    """Return the processors that a sum over all attempts which the batch system does not show has twice.

    `later`: jobs that are claimed after this, and for which others were suspended only then.
    """
    assert seen.state is not None
    name, records, shown = seen.settings.name, engine.records, frozenset(seen.state.allocated)

    def taken(attempts: Collection[Attempt], coming: bool = False) -> int:
        counted = [each for each in attempts if not coming or tag_of(records.instance, each.id) not in shown]
        return sum(processors.taken(name, each.request) for each in counted)

    there = [each for each in records.live(name) if each.id.job in records.jobs]
    found = 0
    for other in {records.jobs[each.id.job].suspended_for for each in there} - {None, *later}:
        suspended = [each for each in there if records.jobs[each.id.job].suspended_for == other]
        its = [each for each in there if each.id.job == other]
        found += min(taken(suspended), taken(its), taken([*suspended, *its], coming=True))
    return found
