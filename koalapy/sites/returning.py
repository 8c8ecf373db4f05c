"""The return of a borrowed lease, or of the request for it, by whichever site gives it back."""

from dataclasses import replace

from koalapy.coallocation import clusters
from koalapy.core.core import Core
from koalapy.model.commands import CancelRequest, ReturnLease
from koalapy.model.events import ClusterChanged
from koalapy.model.lease import BorrowedLease
from koalapy.model.states import LeaseState
from koalapy.model.units import Instant


def give_back(core: Core, now: Instant, lease: BorrowedLease) -> None:
    """Return a lease, or cancel its request. Nothing is placed on it any more."""
    if not lease.state.wanted:
        return
    kind = CancelRequest if lease.state.asked else ReturnLease
    core.records.command(kind(neighbour=lease.neighbour, lease=lease.number))
    core.leases.change(lease, state=LeaseState.CLOSING)
    place_nothing(core, now, lease)


def place_nothing(core: Core, now: Instant, lease: BorrowedLease) -> None:
    """Place nothing on the cluster of a lease any more, if it is one here."""
    cluster = core.information.clusters.get(lease.cluster)
    if cluster is not None and not cluster.settings.draining:
        clusters.on_changed(core, now, ClusterChanged(settings=replace(cluster.settings, draining=True)))
