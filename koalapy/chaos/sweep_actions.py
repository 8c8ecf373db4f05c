"""Actions of users on sweeps in a world of chaos, and of local users who want nodes that sweeps hold."""

from random import Random

from koalapy.chaos.plan import Occasional
from koalapy.model.attempt import OwnerKind
from koalapy.model.events import CancelRequested, HoldRequested, ReleaseRequested
from koalapy.model.identity import JobId
from koalapy.model.states import JobState
from koalapy.model.sweep import Sweep
from koalapy.model.units import MINUTE, SECOND, Duration
from koalapy.world.cluster.cluster import SimCluster
from koalapy.world.random_streams import between
from koalapy.world.random_sweeps import draw_sweep
from koalapy.world.world import World

_MOST = 4  # sweeps at a time
_KEYS = ("", "", "sweep a", "sweep b")
_STAYS = Duration(5 * SECOND), Duration(2 * MINUTE)


def _submit(world: World, rng: Random) -> None:
    if len(_sweeps(world)) < _MOST:
        world.koalad.submit(draw_sweep(rng), rng.choice(_KEYS))


def _cancel(world: World, rng: Random) -> None:
    if (sweep := _sweep(world, rng)) is not None:
        world.koalad.request(CancelRequested(sweep, force=rng.random() < 0.3))


def _hold(world: World, rng: Random) -> None:
    if (sweep := _sweep(world, rng)) is not None:
        world.koalad.request(HoldRequested(sweep))


def _release(world: World, rng: Random) -> None:
    for sweep in _sweeps(world):
        if sweep.state is JobState.HELD:
            world.koalad.request(ReleaseRequested(sweep.id))


def _local_jobs(world: World, rng: Random) -> None:
    """Add local jobs on a cluster with Launchers, which want some or all of their nodes."""
    scavenged = [cluster for cluster in world.clusters.values() if _launchers_on(world, cluster)]
    if not scavenged:
        return
    cluster = rng.choice(scavenged)
    for _ in range(rng.randint(1, 3)):
        most = max(1, cluster.batch.size // rng.choice((1, 2, 4)))
        cluster.foreign_job(f"local-{rng.randrange(1000)}", rng.randint(1, most), between(rng, *_STAYS))


SWEEPS = Occasional(
    stream="chaos/sweeps",
    seeds=1 / 3,
    gap=70,
    acts={
        "submit_sweep": (_submit, 6),
        "cancel_sweep": (_cancel, 1),
        "hold_sweep": (_hold, 1),
        "release_sweep": (_release, 3),
        "local_jobs_want_nodes": (_local_jobs, 4),
    },
)


# ---- targets


def _sweeps(world: World) -> list[Sweep]:
    engine = world.koalad.engine
    return list(engine.records.sweeps.values()) if engine is not None else []


def _sweep(world: World, rng: Random) -> JobId | None:
    sweeps = _sweeps(world)
    return rng.choice(sweeps).id if sweeps else None


def _launchers_on(world: World, cluster: SimCluster) -> bool:
    engine = world.koalad.engine
    if engine is None:
        return False
    return any(attempt.owner.kind is OwnerKind.SWEEP for attempt in engine.records.live(cluster.name))
