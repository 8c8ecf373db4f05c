"""What people do in a world of chaos: users of koalapy, users of one cluster, and another koalapy's users."""

from collections.abc import Callable
from random import Random

from koalapy.model.events import CancelRequested, HoldRequested
from koalapy.model.identity import AttemptId, InstanceId, JobId, tag_of
from koalapy.model.units import MINUTE, SECOND
from koalapy.world.random_requests import Habits, draw_request
from koalapy.world.random_streams import between
from koalapy.world.world import World

Act = Callable[[World, Random], None]

OTHER_STORE = InstanceId("0ther")
USERS = (
    Habits(),
    Habits(),
    Habits(long=0.8),
    Habits(optional=0.8),
    Habits(long=0.5, deaf=0.8, exit_status=0.3),
)
_KEYS = ("", "", "", "", "a", "b", "c")


def _submit(world: World, dice: Random) -> None:
    world.koalad.submit(draw_request(dice, world.sizes, world.habits), dice.choice(_KEYS))


def _submit_many(world: World, dice: Random) -> None:
    for _ in range(dice.randint(2, 5)):
        _submit(world, dice)


def _cancel(world: World, dice: Random) -> None:
    if (job := _job(world, dice)) is not None:
        world.koalad.tell(CancelRequested(job))


def _force_cancel(world: World, dice: Random) -> None:
    if (job := _job(world, dice)) is not None:
        world.koalad.tell(CancelRequested(job, force=True))


def _hold(world: World, dice: Random) -> None:
    if (job := _job(world, dice)) is not None:
        world.koalad.tell(HoldRequested(job))


def _release(world: World, dice: Random) -> None:
    world.release_held()


def _job(world: World, dice: Random) -> JobId | None:
    """One that a user knows the number of: no Launcher."""
    engine = world.koalad.engine
    jobs = list(engine.records.jobs.values()) if engine is not None else []
    known = [job.id for job in jobs if job.pilot is None]
    return dice.choice(known) if known else None


def _local_job(world: World, dice: Random) -> None:
    """Somebody who knows nothing of koalapy."""
    _foreign(world, dice, f"local-{dice.randrange(1000)}")


def _job_of_another_store(world: World, dice: Random) -> None:
    """Of the same user's other koalad: an attempt of the same numbers as one of ours, on the same cluster if it may."""
    attempt = AttemptId(JobId(dice.randint(1, 40)), dice.randint(0, 3), dice.randint(1, 3))
    place = dice.choice(list(world.clusters))
    engine = world.koalad.engine
    live = [] if engine is None else [(job, each) for job in engine.records.jobs.values() for each in job.live]
    if live:
        job, component = dice.choice(live)
        attempt, place = job.attempt_of(component), component.cluster or place
    _foreign(world, dice, tag_of(OTHER_STORE, attempt), place)


def _foreign(world: World, dice: Random, name: str, place: str = "") -> None:
    cluster = world.clusters[place or dice.choice(list(world.clusters))]
    runs = between(dice, SECOND, MINUTE)
    cluster.foreign_job(name, dice.randint(1, dice.randint(1, cluster.batch.size)), runs)


ALL: dict[str, tuple[Act, int]] = {
    "submit": (_submit, 12),
    "submit_many": (_submit_many, 3),
    "cancel": (_cancel, 2),
    "force_cancel": (_force_cancel, 1),
    "hold": (_hold, 1),
    "release": (_release, 2),
    "local_job": (_local_job, 4),
    "job_of_another_store": (_job_of_another_store, 2),
}
