"""The policies that sweeps are scheduled by, together, and how one is asked so that a mistake of its is no crash."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from koalapy.model.errors import Reason
from koalapy.policies.admission import AdmissionPolicy, by_hand
from koalapy.policies.fairshare import EQUIPARTITION_PERSITE
from koalapy.policies.idleness import IdlenessPolicy, site_rules
from koalapy.policies.preemption import PreemptionPolicy, newest_first
from koalapy.policies.shares import FairShare
from koalapy.policies.sweep_order import BACK_HOME, IN_ORDER, SweepOrder

Answer = TypeVar("Answer")

SHIPPED_ORDERS: Mapping[str, SweepOrder] = {"in-order": IN_ORDER, "back-home": BACK_HOME}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScavengingPolicies:
    """Those that the grid file chose. `orders`: all that are registered, for a sweep that names its own."""

    fairshare: FairShare = EQUIPARTITION_PERSITE
    idleness: IdlenessPolicy = site_rules
    admission: AdmissionPolicy = by_hand
    preemption: PreemptionPolicy = newest_first
    order: SweepOrder = IN_ORDER
    orders: Mapping[str, SweepOrder] = field(default_factory=lambda: dict(SHIPPED_ORDERS))


def ask(kind: str, policy: Callable[[], Answer], wrong: Callable[[Answer], str]) -> Answer | Reason:
    """A policy's answer; the reason where it raised, or where `wrong` finds something in the answer.

    `kind` is the policy's kind as the grid file's key names it, such as `scavenging.policy`.
    """
    try:
        answer = policy()
        problem = wrong(answer)
    except Exception as error:
        return _failed(kind, f"it raised {type(error).__name__}: {error}")
    return _failed(kind, problem) if problem else answer


def _failed(kind: str, problem: str) -> Reason:
    message = f"The policy of {kind} failed: {problem}."
    return Reason("policy_failed", "ours", message, f"Choose another `{kind}` in the grid file.")
