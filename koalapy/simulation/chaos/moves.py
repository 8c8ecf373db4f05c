"""The moves by their names: users' doings and faults, how often each comes up, and how a move is made."""

from random import Random

from koalapy.simulation.chaos import doings, faults
from koalapy.simulation.chaos.plan import Move, plan
from koalapy.simulation.world import World

DOINGS = {name: weight for name, (_, weight) in doings.ALL.items()}
FAULTS = {name: weight for name, (_, weight) in faults.ALL.items()}
_ACTS = {name: act for moves in (doings.ALL, faults.ALL) for name, (act, _) in moves.items()}


def moves_of(seed: int, events: int) -> list[Move]:
    """The same for the same seed; those of a shorter course come first in a longer one."""
    return plan(seed, events, DOINGS, FAULTS)


def make(world: World, move: Move) -> None:
    """Where there is nothing to do it to, nothing happens."""
    _ACTS[move.kind](world, Random(move.seed))
