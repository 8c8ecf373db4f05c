"""The return of a borrowed lease, or of the request for it, by whichever site gives it back."""

from dataclasses import replace

from koalapy.coallocation import clusters
from koalapy.core.core import Core
from koalapy.model.commands import CancelRequest, ReturnLease
from koalapy.model.events import ClusterChanged
from koalapy.model.lease import Lease, LeaseState, lease_cluster
from koalapy.model.units import Instant


def give_back(core: Core, now: Instant, neighbour: str, lease: Lease) -> None:
    """Return a lease, or cancel its request. Nothing is placed on it any more."""
    if lease.state is LeaseState.ASKED:
        core.records.command(CancelRequest(neighbour=neighbour, lease=lease.number))
    elif lease.state is LeaseState.BOUND:
        core.records.command(ReturnLease(neighbour=neighbour, lease=lease.number))
    else:
        return
    core.neighbours.put_lease(neighbour, replace(lease, state=LeaseState.CLOSING))
    place_nothing(core, now, neighbour, lease)


def place_nothing(core: Core, now: Instant, neighbour: str, lease: Lease) -> None:
    """Place nothing on the cluster of a lease any more, if it is one here."""
    cluster = core.information.clusters.get(lease_cluster(neighbour, lease.number))
    if cluster is not None and not cluster.settings.draining:
        clusters.on_changed(core, now, ClusterChanged(settings=replace(cluster.settings, draining=True)))
