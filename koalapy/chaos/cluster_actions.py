"""Actions of operators in a world of chaos.

Clusters are added, drained, resumed and removed, and the grid file changes. Pruning is requested again and again, also
for jobs that are not final.
"""

from dataclasses import replace
from random import Random

from koalapy.chaos.plan import Occasional
from koalapy.model.attempt import Attempt, attempt_value
from koalapy.model.events import PruneRequested
from koalapy.model.identity import JobId
from koalapy.model.pilot import job_of_pilot
from koalapy.model.units import MINUTE, SECOND, Duration, Instant
from koalapy.model.work import KIND_OF
from koalapy.world.random_streams import between
from koalapy.world.world import World

KILLED = 0.2  # share of the changes in which koalad is killed
_SPARE = ("epsilon", "zeta")  # clusters that a person may add
_STEPS = 8  # of koalad, within which it is then killed
_BACKLOGS = (None, 2, 20)
_QUEUE_AFTER = (0, 30, 120)
_MOST_PRUNED = 20  # jobs in one request
_KEEP = (Duration(0), Duration(2 * MINUTE))


def _add(world: World, rng: Random) -> None:
    """Add a cluster, but no pilot: one that was never there, or one that has left, with all that is still there."""
    names = [name for name in (*world.clusters, *_SPARE) if job_of_pilot(name) is None]
    absent = [name for name in names if name not in world.koalad.grid.names]
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


CLUSTERS = Occasional(
    stream="chaos/clusters",
    seeds=0.4,
    gap=90,
    acts={
        "add_cluster": (_add, 5),
        "drain_cluster": (_drain, 3),
        "resume_clusters": (_resume, 2),
        "remove_cluster": (_remove, 4),
        "remove_cluster_by_force": (_remove_by_force, 2),
        "reload_grid_file": (_reload, 4),
    },
)


def _prune(world: World, rng: Random) -> None:
    """Prune jobs that the store lists, as maintenance does, and some that still wait or run."""
    koalad = world.koalad
    if not koalad.alive or koalad.engine is None:
        return
    before, records, of_sweeps = Instant(koalad.now() - between(rng, *_KEEP)), rng.random() < 0.7, rng.random() < 0.5
    work = [] if of_sweeps else koalad.store.prunable(before, _MOST_PRUNED, JobId(0), records)
    pilots = koalad.store.prunable_launchers(before, _MOST_PRUNED, JobId(0), records) if of_sweeps else []
    living = [*koalad.engine.records.all_work(), *koalad.engine.records.launchers.values()]
    unripe = rng.sample(living, min(len(living), rng.randint(0, 3)))
    work += [KIND_OF[type(each)].to_value(each) for each in unripe if not isinstance(each, Attempt)]
    pilots += [attempt_value(each) for each in unripe if isinstance(each, Attempt)]
    request = PruneRequested(work=tuple(work), launchers=tuple(pilots), before=before, records=records)
    koalad.request(*[request] * rng.choice((1, 1, 2)))


PRUNING = Occasional(stream="chaos/pruning", seeds=0.4, gap=150, acts={"prune": (_prune, 1)})
