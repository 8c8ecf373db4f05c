"""Maintenance in a world of chaos: pruning is requested again and again, also for jobs that are not final."""

from collections.abc import Callable, Iterator
from random import Random

from koalapy.chaos.plan import Action
from koalapy.model.attempt import Attempt, attempt_value
from koalapy.model.events import PruneRequested
from koalapy.model.identity import JobId
from koalapy.model.job import Job, job_value
from koalapy.model.sweep import Sweep, sweep_value
from koalapy.model.units import MINUTE, Duration, Instant
from koalapy.world.random_streams import between, stream
from koalapy.world.world import World

SEEDS = 0.4  # of all seeds have maintenance
GAP = 150  # mean number of events between two prunes
MOST = 20  # jobs in one request
_KEEP = (Duration(0), Duration(2 * MINUTE))


def _prune(world: World, rng: Random) -> None:
    """Prune jobs that the store lists, as maintenance does, and some that still wait or run."""
    koalad = world.koalad
    if not koalad.alive or koalad.engine is None:
        return
    before, records, of_sweeps = Instant(koalad.now() - between(rng, *_KEEP)), rng.random() < 0.7, rng.random() < 0.5
    work = [] if of_sweeps else koalad.store.prunable(before, MOST, JobId(0), records)
    pilots = koalad.store.prunable_pilots(before, MOST, JobId(0), records) if of_sweeps else []
    living = [*koalad.engine.records.all_work(), *koalad.engine.records.launchers.values()]
    unripe = rng.sample(living, min(len(living), rng.randint(0, 3)))
    work += [job_value(each) for each in unripe if isinstance(each, Job)]
    work += [sweep_value(each) for each in unripe if isinstance(each, Sweep)]
    pilots += [attempt_value(each) for each in unripe if isinstance(each, Attempt)]
    request = PruneRequested(work=tuple(work), pilots=tuple(pilots), before=before, records=records)
    koalad.request(*[request] * rng.choice((1, 1, 2)))


ALL: dict[str, tuple[Callable[[World, Random], None], int]] = {"prune": (_prune, 1)}


def schedule_pruning(seed: int, events: int) -> list[Action]:
    """Draw the maintenance of this seed; most seeds have none. A longer run begins with that of a shorter one."""
    rng = stream(seed, "chaos/pruning")
    return list(_drawn(rng, events)) if rng.random() < SEEDS else []


def _drawn(rng: Random, events: int) -> Iterator[Action]:
    at = 0
    while (at := at + 1 + int(rng.expovariate(1 / GAP))) < events:
        yield Action(at, "prune", rng.getrandbits(32))
