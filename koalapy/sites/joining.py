"""Borrowed leases join the grid as clusters while they are bound, and leave it once they are over."""

from collections.abc import Iterable, Mapping

from koalapy.core.core import Core
from koalapy.model.attempt import Attempt
from koalapy.model.lease import Borrow, BorrowedLease, Lease, LeasedCluster, lease_network, lease_of_cluster
from koalapy.model.units import Instant


def step(core: Core, now: Instant) -> bool:
    """Let leases join and leave the grid. It is due in each batch while one is borrowed, in the grid, or to join it."""
    wanted = _clusters(core.leases.borrowed.values(), core.settings.borrow)
    for name, lease in wanted.items():
        if name not in core.information.clusters:
            core.let_join(lease)
    begun = [name for name in (*core.information.temporary, *core.grid_hints) if lease_of_cluster(name) is not None]
    for name in begun:
        if name not in wanted:
            core.let_leave(name)
    return bool(core.leases.borrowed or begun)


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
