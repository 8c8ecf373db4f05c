"""Byte streams in a world of chaos: users connect to processes of running jobs.

Only some seeds have them. All is drawn from a stream of its own, so that the other draws do not change.
"""

from collections.abc import Callable, Iterator
from random import Random

from koalapy.chaos.plan import Action
from koalapy.world.random_streams import stream
from koalapy.world.world import World

SEEDS = 0.25  # of all seeds have byte streams
GAP = 100  # mean number of events between two actions
_MOST_LOST = 4  # chunks


def _lose(world: World, rng: Random) -> None:
    """Let a KCM drop some of the next chunks, as it does when too many wait for koalad or for a wrapper."""
    cluster = world.clusters[rng.choice(list(world.clusters))]
    cluster.environment.chunks_to_lose = rng.randint(1, _MOST_LOST)


def _open(world: World, rng: Random) -> None:
    world.koalad.open_stream(world.streams, rng)


ALL: dict[str, tuple[Callable[[World, Random], None], int]] = {"open_stream": (_open, 2), "lose_chunks": (_lose, 1)}


def schedule_streams(seed: int, events: int) -> list[Action]:
    """Draw the streams of this seed; most seeds have none. A longer run begins with those of a shorter one."""
    rng = stream(seed, "chaos/streams")
    return list(_drawn(rng, events)) if rng.random() < SEEDS else []


def _drawn(rng: Random, events: int) -> Iterator[Action]:
    at, weights = 0, [weight for _, weight in ALL.values()]
    while (at := at + 1 + int(rng.expovariate(1 / GAP))) < events:
        yield Action(at, rng.choices(list(ALL), weights)[0], rng.getrandbits(32))
