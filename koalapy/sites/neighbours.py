"""The neighbours of a live site: they join and leave, are connected and lost, and report their idle processors.

Sites report free processors to each other (SC'07, section 4.3), so that requests go where they may be served.
"""

from koalapy.core.core import Core
from koalapy.model.commands import ReportFree
from koalapy.model.events import FreeReported, NeighbourConnected, NeighbourJoined, NeighbourLeft, NeighbourLost
from koalapy.model.neighbour import Neighbour
from koalapy.model.units import SECOND, Duration, Instant

REPORT_EVERY = Duration(10 * SECOND)  # at most: a busy grid changes at each poll


def on_joined(core: Core, now: Instant, event: NeighbourJoined) -> None:
    """Keep a record of the neighbour, or change its relation."""
    known = core.neighbours.records.get(event.neighbour)
    if known is None:
        core.neighbours.put(Neighbour(name=event.neighbour, relation=event.relation))
    elif known.relation is not event.relation:
        core.neighbours.change(event.neighbour, relation=event.relation)


def on_left(core: Core, now: Instant, event: NeighbourLeft) -> None:
    core.neighbours.remove(event.neighbour)


def on_connected(core: Core, now: Instant, event: NeighbourConnected) -> None:
    """Note the session. A store that is new at the neighbour has sent nothing yet, and knows nothing of this site."""
    neighbours = core.neighbours
    neighbours.connected[event.neighbour] = None
    if neighbours.records[event.neighbour].instance != event.instance:
        neighbours.change(event.neighbour, instance=event.instance, received=0, free=None, reported_at=None, told=None)
    neighbours.report_at = now


def on_lost(core: Core, now: Instant, event: NeighbourLost) -> None:
    core.neighbours.connected.pop(event.neighbour, None)


def on_free_reported(core: Core, now: Instant, event: FreeReported) -> None:
    core.neighbours.change(event.neighbour, free=event.processors, reported_at=now)


def report_free(core: Core, now: Instant) -> None:
    """Report this site's idle processors to the connected neighbours that were told another number.

    It does so every ten seconds at most, and at once to a neighbour that has just been connected.
    """
    neighbours = core.neighbours
    if not neighbours.connected or (neighbours.report_at is not None and now < neighbours.report_at):
        return
    free = sum(each.idle for each in core.information.summaries(now))
    outdated = [name for name in neighbours.connected if neighbours.records[name].told != free]
    for name in outdated:
        core.records.command(ReportFree(neighbour=name, processors=free))
        neighbours.change(name, told=free)
    neighbours.report_at = Instant(now + REPORT_EVERY) if outdated else None


def wakeup(core: Core) -> Instant | None:
    """Return when `report_free` may report again; None if nothing has been reported lately."""
    return core.neighbours.report_at if core.neighbours.connected else None
