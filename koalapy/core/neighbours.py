"""The neighbours of this site, and which of them are connected."""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from koalapy.core.due import NEIGHBOURS, DueSteps
from koalapy.model.events import MessageReceived, NeighbourEvent, NeighbourJoined
from koalapy.model.identity import JobId
from koalapy.model.lease import Origin, SeenRequest, SweepDemand
from koalapy.model.neighbour import Neighbour
from koalapy.model.units import Instant
from koalapy.policies.delegation import SitePolicies
from koalapy.policies.placement import PlacementPolicy, worst_fit


class Neighbours:
    """The records of the neighbours by name, in the order of their joining.

    `connected`: those with a session now. `report_at`: when this site may report its idle processors again. `changed`:
    the records that have changed in this step, by name. `apart_since`: those with leases and without a session, since
    when. `ask_at`: when neighbours may be asked again for jobs that wait. `look_at`: when leases are looked after next.
    `idle_since`: by cluster the borrowed leases on which nothing runs, since when. `asked`: the requests so far.
    `came_at`: when each neighbour's requests of the past minute came, the oldest first.
    `seen`: the requests of neighbours in the past hour, the oldest first; the store has them too. `match_at`: when
    requests that wait are served. `policies`: those that the grid file names. `placement`: that of the scheduler, by
    which parts of jobs are found. `sweep_demands`: what sweeps would borrow, in their order; `lacking_since`: since
    when they find no idle nodes. `looked_at`: the facts at the last look at what waiting jobs need of leases.
    `exposed_until`: the clusters whose nodes could not isolate programs; until then they lend nothing.

    After a restart of koalad the counts of `came_at` begin anew, and so do the waits of `exposed_until`: at worst a
    neighbour is served a minute's requests once more, and one pilot is claimed in vain.
    """

    def __init__(self, due: DueSteps, neighbours: Iterable[Neighbour], seen: Iterable[SeenRequest] = ()) -> None:
        self._due = due
        self.records = {each.name: each for each in neighbours}
        self.changed: dict[str, Neighbour] = {}
        self.connected: dict[str, None] = {}
        self.report_at: Instant | None = None
        self.apart_since: dict[str, Instant] = {}
        self.ask_at: Instant | None = None
        self.look_at: Instant | None = None
        self.idle_since: dict[str, Instant] = {}
        self.exposed_until: dict[str, Instant] = {}
        self.asked = 0
        self.came_at: dict[str, deque[Instant]] = {}
        self.seen: dict[Origin, Instant] = {each.origin: each.at for each in seen}
        self.match_at: Instant | None = None
        self.policies = SitePolicies()
        self.placement: PlacementPolicy = worst_fit
        self.sweep_demands: tuple[SweepDemand, ...] = ()
        self.lacking_since: dict[JobId, Instant] = {}
        self.looked_at: tuple[object, ...] = ()

    def inherit(self, before: "Neighbours") -> None:
        """Take over the sessions of the engine that this one replaces."""
        self.connected = {name: None for name in before.connected if name in self.records}
        self.report_at, self.apart_since = before.report_at, before.apart_since
        self.idle_since, self.asked = before.idle_since, before.asked
        self.exposed_until, self.came_at = before.exposed_until, before.came_at

    def put(self, neighbour: Neighbour) -> None:
        self.records[neighbour.name] = neighbour
        self.changed[neighbour.name] = neighbour
        self._due.wake(NEIGHBOURS)

    def change(self, name: str, **changes: Any) -> None:
        self.put(replace(self.records[name], **changes))

    def remove(self, name: str) -> None:
        self.changed[name] = replace(self.records.pop(name), gone=True)
        self.connected.pop(name, None)
        self.came_at.pop(name, None)

    def take_changed(self) -> dict[str, Neighbour]:
        """Return the records that have changed since the last call."""
        changed, self.changed = self.changed, {}
        return changed

    def takes(self, event: NeighbourEvent) -> bool:
        """Return whether the event is of a neighbour, and new. A message is counted, and is not new again."""
        if isinstance(event, NeighbourJoined):
            return True
        record = self.records.get(event.neighbour)
        if record is None:
            return False
        if not isinstance(event, MessageReceived):
            return True
        if event.instance == record.instance and event.number <= record.received:
            return False
        self.change(event.neighbour, instance=event.instance, received=event.number)
        return True
