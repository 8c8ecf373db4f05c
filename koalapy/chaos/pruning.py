"""Maintenance in a world of chaos: what is over is pruned again and again, and what is not is asked for as well."""

from collections.abc import Callable, Iterator
from random import Random

from koalapy.chaos.plan import Move
from koalapy.model.events import PruneRequested
from koalapy.model.identity import JobId
from koalapy.model.units import MINUTE, Duration, Instant
from koalapy.world.random_streams import between, stream
from koalapy.world.world import World

SEEDS = 0.4  # of all seeds have maintenance
GAP = 150  # events from one of its moves to the next, on the average
MOST = 20  # jobs in one request
_KEEP = (Duration(0), Duration(2 * MINUTE))


def _prune(world: World, dice: Random) -> None:
    """By the store, as maintenance does, with some jobs that are still in the queue or run."""
    koalad = world.koalad
    if not koalad.alive or koalad.engine is None:
        return
    before, records, launchers = Instant(koalad.now() - between(dice, *_KEEP)), dice.random() < 0.7, dice.random() < 0.5
    jobs = koalad.store.prunable(before, MOST, JobId(0), records, launchers)
    living = list(koalad.engine.records.jobs.values())
    jobs += dice.sample(living, min(len(living), dice.randint(0, 3)))
    request = PruneRequested(jobs=tuple(jobs), before=before, records=records)
    koalad.tell(*[request] * dice.choice((1, 1, 2)))


ALL: dict[str, tuple[Callable[[World, Random], None], int]] = {"prune": (_prune, 1)}


def moves_with_pruning(seed: int, events: int) -> list[Move]:
    """Return those of this seed, which most have none of; those of a shorter course come first in a longer one."""
    dice = stream(seed, "chaos/pruning")
    return list(_drawn(dice, events)) if dice.random() < SEEDS else []


def _drawn(dice: Random, events: int) -> Iterator[Move]:
    at = 0
    while (at := at + 1 + int(dice.expovariate(1 / GAP))) < events:
        yield Move(at, "prune", dice.getrandbits(32))
