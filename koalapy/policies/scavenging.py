"""The policies that sweeps are scheduled by, together."""

from dataclasses import dataclass

from koalapy.policies.admission import AdmissionPolicy, by_hand
from koalapy.policies.fairshare import EQUIPARTITION_PERSITE
from koalapy.policies.idleness import IdlenessPolicy, site_rules
from koalapy.policies.preemption import PreemptionPolicy, newest_first
from koalapy.policies.shares import FairShare
from koalapy.policies.sweep_order import IN_ORDER, SweepOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class ScavengingPolicies:
    """Those that the grid file chose."""

    fairshare: FairShare = EQUIPARTITION_PERSITE
    idleness: IdlenessPolicy = site_rules
    admission: AdmissionPolicy = by_hand
    preemption: PreemptionPolicy = newest_first
    order: SweepOrder = IN_ORDER
