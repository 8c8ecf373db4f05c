"""The set of policies for sweeps."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from koalapy.policies.admission import AdmissionPolicy, by_hand
from koalapy.policies.fairshare import EQUIPARTITION_PERSITE
from koalapy.policies.idleness import IdlenessPolicy, cluster_rules
from koalapy.policies.reclaim import ReclaimPolicy, newest_first
from koalapy.policies.shares import FairShare
from koalapy.policies.sweep_order import IN_ORDER, SHIPPED, SweepOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class ScavengingPolicies:
    """The policies of sweeps that the grid file names.

    `orders`: all registered orders, since a sweep may name its own.
    """

    fairshare: FairShare = EQUIPARTITION_PERSITE
    idleness: IdlenessPolicy = cluster_rules
    admission: AdmissionPolicy = by_hand
    reclaim: ReclaimPolicy = newest_first
    order: SweepOrder = IN_ORDER
    orders: Mapping[str, SweepOrder] = field(default_factory=lambda: SHIPPED)

    def order_of(self, name: str) -> SweepOrder:
        """Return the order with this name.

        If the sweep names none, or one that is no longer registered, return the order in the grid file.
        """
        return self.orders.get(name, self.order)
