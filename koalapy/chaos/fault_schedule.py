"""The schedule of a run: user actions and faults by name, the weight of each, and how an action is carried out."""

from collections.abc import Sequence
from operator import attrgetter
from random import Random

from koalapy.chaos import byzantine, cluster_actions, faults, user_actions
from koalapy.chaos.pilot_actions import PILOTS
from koalapy.chaos.plan import Action, plan
from koalapy.chaos.sweep_actions import SWEEPS
from koalapy.world.world import World

JOB_ACTIONS, FAULTS = ({name: weight for name, (_, weight) in acts.items()} for acts in (user_actions.ALL, faults.ALL))
OCCASIONAL = (
    SWEEPS, cluster_actions.PRUNING, cluster_actions.CLUSTERS, user_actions.FLOWS, PILOTS, user_actions.STREAMS,
)  # fmt: skip
SWEEP_ACTIONS, PRUNING, CLUSTER_ACTIONS, FLOW_ACTIONS, PILOT_ACTIONS, STREAMS = (each.weights for each in OCCASIONAL)
BYZANTINE, USER_ACTIONS = byzantine.BYZANTINE.weights, JOB_ACTIONS | SWEEP_ACTIONS
_TABLES = (user_actions.ALL, faults.ALL, byzantine.BYZANTINE.acts, *(each.acts for each in OCCASIONAL))
_ACTS = {name: act for acts in _TABLES for name, (act, _) in acts.items()}


def schedule_of(seed: int, events: int, faults: Sequence[str] = ()) -> list[Action]:
    """Return the actions of a run, the same for the same seed; a longer run begins with those of a shorter one.

    `faults`: only these, with their usual weights; empty: the seed's own mixture of all.
    """
    if faults:
        chosen = {name: weight for name, weight in (FAULTS | BYZANTINE).items() if name in faults}
        actions = plan(seed, events, JOB_ACTIONS, chosen, mixed=False)
    else:
        actions = [*plan(seed, events, JOB_ACTIONS, FAULTS), *byzantine.BYZANTINE.schedule(seed, events)]
    for each in OCCASIONAL:
        actions += each.schedule(seed, events)
    return sorted(actions, key=attrgetter("at"))


def perform(world: World, action: Action) -> None:
    """Perform an action. Nothing happens if it has no target."""
    _ACTS[action.kind](world, Random(action.seed))
