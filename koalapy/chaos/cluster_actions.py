"""Changes of the grid in a world of chaos: clusters are added, drained, resumed and removed, and the grid file changes.

Only some seeds have them. All is drawn from a stream of its own, so that the other draws do not change.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

from koalapy.chaos.plan import Action
from koalapy.model.units import SECOND, Duration
from koalapy.world.random_streams import stream
from koalapy.world.world import World

SEEDS = 0.4  # of all seeds change their grids
GAP = 90  # mean number of events between two changes
KILLED = 0.2  # share of the changes in which koalad is killed
_SPARE = ("epsilon", "zeta")  # clusters that a person may add
_STEPS = 8  # of koalad, within which it is then killed
_BACKLOGS = (None, 2, 20)
_QUEUE_AFTER = (0, 30, 120)


def _add(world: World, rng: Random) -> None:
    """Add a cluster: one that was never there, or one that has left, with all that is still there."""
    absent = [name for name in (*world.clusters, *_SPARE) if name not in world.koalad.grid.names]
    if absent:
        name = rng.choice(list(dict.fromkeys(absent)))
        world.koalad.grid.add(world.build(name).plan.settings)
        _kill(world, rng)


def _drain(world: World, rng: Random) -> None:
    world.koalad.grid.drain(rng.choice(world.koalad.grid.names), True)
    _kill(world, rng)


def _resume(world: World, rng: Random) -> None:
    world.resume_clusters()
    _kill(world, rng)


def _remove(world: World, rng: Random) -> None:
    """Remove a cluster, mostly one that is drained."""
    grid = world.koalad.grid
    world.koalad.grid.remove(rng.choice(list(grid.draining) or list(grid.names)))
    _kill(world, rng)


def _remove_by_force(world: World, rng: Random) -> None:
    world.koalad.grid.remove(rng.choice(world.koalad.grid.names), force=True)
    _kill(world, rng)


def _reload(world: World, rng: Random) -> None:
    """Change one key of the grid file, or read it as it is: clusters that were removed by command come back."""
    grid = world.koalad.grid
    file, rules, renewed = dict(grid.file), grid.rules, ""
    what, name = rng.choice(("nothing", "backlog", "scavenge", "rules", "link", "leaves")), rng.choice(list(file))
    if what == "backlog":
        file[name] = replace(file[name], backlog=rng.choice(_BACKLOGS))
    elif what == "scavenge":
        file[name] = replace(file[name], scavenge=replace(file[name].scavenge, max_nodes=rng.choice((None, 1, 2))))
    elif what == "rules":
        rules = replace(rules, queue_after=Duration(rng.choice(_QUEUE_AFTER) * SECOND))
    elif what == "link":
        renewed = name
    elif what == "leaves" and len(file) > 1:
        del file[name]
    grid.reload(file, rules, renewed)
    _kill(world, rng)


def _kill(world: World, rng: Random) -> None:
    """Sometimes let koalad be killed during the change."""
    if rng.random() < KILLED:
        world.koalad.crash_point.left = rng.randint(1, _STEPS)


ALL: dict[str, tuple[Callable[[World, Random], None], int]] = {
    "add_cluster": (_add, 5),
    "drain_cluster": (_drain, 3),
    "resume_clusters": (_resume, 2),
    "remove_cluster": (_remove, 4),
    "remove_cluster_by_force": (_remove_by_force, 2),
    "reload_grid_file": (_reload, 4),
}


def schedule_cluster_actions(seed: int, events: int) -> list[Action]:
    """Draw the changes of this seed's grid; most seeds have none. A longer run begins with those of a shorter one."""
    rng = stream(seed, "chaos/clusters")
    return list(_drawn(rng, events)) if rng.random() < SEEDS else []


def _drawn(rng: Random, events: int) -> Iterator[Action]:
    at, weights = 0, [weight for _, weight in ALL.values()]
    while (at := at + 1 + int(rng.expovariate(1 / GAP))) < events:
        yield Action(at, rng.choices(list(ALL), weights)[0], rng.getrandbits(32))
