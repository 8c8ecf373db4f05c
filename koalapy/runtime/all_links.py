"""The links to clusters and to neighbouring sites together, as the driver uses them."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from koalapy.model.change import OutboxEntry
from koalapy.model.commands import GridHint, Hint, LeaseHint, NeighbourCommand
from koalapy.model.errors import Reason
from koalapy.model.identity import is_site, site_of
from koalapy.runtime.links import ClusterLinks

if TYPE_CHECKING:
    from koalapy.runtime.sites.links import SiteLinks


class AllLinks:
    """Passes each call to the links of its destination. See Links of the driver."""

    def __init__(
        self,
        clusters: ClusterLinks,
        sites: "SiteLinks | None",
        change_grid: Callable[[GridHint], None],
        examine: Callable[[LeaseHint], None],
    ) -> None:
        """`change_grid`, `examine`: see GridChanges.carry_out and Leases.carry_out."""
        self._clusters, self._sites, self._change_grid, self._examine = clusters, sites, change_grid, examine

    def send(self, entry: OutboxEntry, doubt: bool) -> None:
        if not isinstance(entry.command, NeighbourCommand):
            self._clusters.send(entry, doubt)
        elif self._sites is not None:
            self._sites.send(entry)

    def hint(self, hint: Hint) -> None:
        if isinstance(hint, GridHint):
            self._change_grid(hint)
        elif isinstance(hint, LeaseHint):
            self._examine(hint)
        else:
            self._clusters.hint(hint)

    def acknowledge(self, origin: str, epoch: int, number: int) -> None:
        if not is_site(origin):
            self._clusters.acknowledge(origin, epoch, number)
        elif self._sites is not None:
            self._sites.acknowledge(site_of(origin), epoch, number)

    def end_sessions(self, reason: Reason) -> dict[str, int]:
        of_sites = {} if self._sites is None else self._sites.end_sessions(reason)
        return {**self._clusters.end_sessions(reason), **of_sites}

    def quarantine(self, origin: str, reason: Reason, error: Exception) -> None:
        """End the session with a cluster or neighbour whose events made koalad fail. It begins anew after a while."""
        if not is_site(origin):
            self._clusters.quarantine(origin, reason, error)
        elif self._sites is not None:
            self._sites.quarantine(site_of(origin), reason, error)
