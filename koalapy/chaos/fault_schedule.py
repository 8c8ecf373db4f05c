"""The moves by their names: users' doings and faults, how often each comes up, and how a move is made."""

from collections.abc import Sequence
from operator import attrgetter
from random import Random

from koalapy.chaos import faults, lies, pruning, sweep_actions, user_actions
from koalapy.chaos.plan import Move, plan
from koalapy.world.world import World

_ALL = (user_actions.ALL, sweep_actions.ALL, faults.ALL, lies.ALL, pruning.ALL)
USUAL, SWEEPING, FAULTS, LYING, PRUNING = ({name: weight for name, (_, weight) in moves.items()} for moves in _ALL)
DOINGS = USUAL | SWEEPING
_ACTS = {name: act for moves in _ALL for name, (act, _) in moves.items()}


def moves_of(seed: int, events: int, faults: Sequence[str] = ()) -> list[Move]:
    """The same for the same seed; those of a shorter course come first in a longer one.

    `faults`: these alone, as often as ever among each other; none: the seed's own mixture of all.
    """
    if faults:
        chosen = {name: weight for name, weight in (FAULTS | LYING).items() if name in faults}
        moves = plan(seed, events, USUAL, chosen, mixed=False)
    else:
        moves = [*plan(seed, events, USUAL, FAULTS), *lies.moves_with_lies(seed, events)]
    moves += [*sweep_actions.moves_with_sweeps(seed, events), *pruning.moves_with_pruning(seed, events)]
    return sorted(moves, key=attrgetter("at"))


def make(world: World, move: Move) -> None:
    """Where there is nothing to do it to, nothing happens."""
    _ACTS[move.kind](world, Random(move.seed))
