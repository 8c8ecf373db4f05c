"""Borrowed leases join the grid as clusters while they are bound, and leave it once they are over."""

from collections.abc import Iterable, Mapping

from koalapy.core.core import Core
from koalapy.model.attempt import Attempt
from koalapy.model.commands import GridHint, JoinCluster, LeaveCluster
from koalapy.model.lease import Borrow, BorrowedLease, Lease, LeasedCluster, lease_network, lease_of_cluster
from koalapy.model.units import Instant


def step(core: Core, now: Instant) -> bool:
    """Let leases join and leave the grid. A hint is given once: it is tried again until it is carried out.

    It is due in each batch while a lease is borrowed, is in the grid, or is to leave it.
    """
    before, there = core.leases.hinted, core.information.clusters
    joined = [name for name in core.information.temporary if lease_of_cluster(name) is not None]
    wanted = _clusters(core.leases.borrowed.values(), core.settings.borrow)
    due: dict[str, GridHint] = {name: JoinCluster(each) for name, each in wanted.items() if name not in there}
    begun = [name for name, hint in before.items() if isinstance(hint, JoinCluster)]
    due |= {name: LeaveCluster(name) for name in (*joined, *begun) if name not in wanted}
    for name, hint in due.items():
        if before.get(name) != hint:
            core.records.hint(hint)
    core.leases.hinted = due
    return bool(core.leases.borrowed or joined or due)


def leases_at_start(leases: Iterable[Lease], attempts: Iterable[Attempt], borrow: Borrow | None) -> list[LeasedCluster]:
    """Return the leases of a store that must be clusters from koalad's start on.

    They are bound, or attempts on them are known. `attempts`: all that are not cleaned up. `borrow`: as the grid file
    has it.
    """
    here = dict(_clusters(leases, borrow))
    for each in attempts:
        if each.cluster not in here and (found := lease_of_cluster(each.cluster)) is not None:
            here[each.cluster] = LeasedCluster(*found, lease_network(None, *found, 0))
    return [here[name] for name in sorted(here)]


def _clusters(leases: Iterable[Lease], borrow: Borrow | None) -> Mapping[str, LeasedCluster]:
    """Return the leases that are to be clusters, by name."""
    return {
        each.cluster: LeasedCluster(
            each.neighbour,
            each.number,
            lease_network(borrow, each.neighbour, each.number, each.length),
            each.sweeps,
            each.isolation,
        )
        for each in leases
        if isinstance(each, BorrowedLease) and each.is_cluster
    }
