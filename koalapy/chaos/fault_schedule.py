"""The schedule of a run: user actions and faults by name, the weight of each, and how an action is carried out."""

from collections.abc import Sequence
from operator import attrgetter
from random import Random

from koalapy.chaos import (
    cluster_actions,
    faults,
    flow_actions,
    lies,
    pilot_actions,
    pruning,
    stream_actions,
    sweep_actions,
    user_actions,
)
from koalapy.chaos.plan import Action, plan
from koalapy.world.world import World

_ALL = (
    user_actions.ALL, sweep_actions.ALL, faults.ALL, lies.ALL, pruning.ALL, cluster_actions.ALL, flow_actions.ALL,
    pilot_actions.ALL, stream_actions.ALL,
)  # fmt: skip
JOB_ACTIONS, SWEEP_ACTIONS, FAULTS, LIES, PRUNING, CLUSTER_ACTIONS, FLOW_ACTIONS, PILOT_ACTIONS, STREAMS = (
    {name: weight for name, (_, weight) in actions.items()} for actions in _ALL
)
USER_ACTIONS = JOB_ACTIONS | SWEEP_ACTIONS
_ACTS = {name: act for actions in _ALL for name, (act, _) in actions.items()}


def schedule_of(seed: int, events: int, faults: Sequence[str] = ()) -> list[Action]:
    """Return the actions of a run, the same for the same seed; a longer run begins with those of a shorter one.

    `faults`: only these, with their usual weights; empty: the seed's own mixture of all.
    """
    if faults:
        chosen = {name: weight for name, weight in (FAULTS | LIES).items() if name in faults}
        actions = plan(seed, events, JOB_ACTIONS, chosen, mixed=False)
    else:
        actions = [*plan(seed, events, JOB_ACTIONS, FAULTS), *lies.schedule_lies(seed, events)]
    actions += [*sweep_actions.schedule_sweep_actions(seed, events), *pruning.schedule_pruning(seed, events)]
    actions += cluster_actions.schedule_cluster_actions(seed, events)
    actions += flow_actions.schedule_flows(seed, events)
    actions += pilot_actions.schedule_pilot_actions(seed, events)
    actions += stream_actions.schedule_streams(seed, events)
    return sorted(actions, key=attrgetter("at"))


def perform(world: World, action: Action) -> None:
    """Perform an action. Nothing happens if it has no target."""
    _ACTS[action.kind](world, Random(action.seed))
