"""The policies for requests between sites that a grid file names."""

from dataclasses import dataclass

from koalapy.policies import dispatching
from koalapy.policies.delegation import DelegationPolicy, TargetPolicy, fcfs, nearest
from koalapy.policies.dispatching import DispatchingPolicy


@dataclass(frozen=True, slots=True)
class SitePolicies:
    """The order of delegation, the order of the neighbours that are asked, and the order in which theirs are served."""

    delegation: DelegationPolicy = fcfs
    targets: TargetPolicy = nearest
    dispatching: DispatchingPolicy = dispatching.fcfs
