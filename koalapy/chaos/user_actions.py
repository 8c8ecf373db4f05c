"""Actions of people in a world of chaos: users of koalapy, of one cluster alone, and of another koalapy.

Some submit flows, jobs of which some wait for others, and some open byte streams to processes of running jobs.
"""

from dataclasses import replace
from random import Random

from koalapy.chaos.plan import Act, Occasional
from koalapy.model.events import CancelRequested, HoldRequested
from koalapy.model.identity import AttemptId, InstanceId, JobId, tag_of
from koalapy.model.request import FlowJob, OnFailure, Request
from koalapy.model.units import MINUTE, SECOND
from koalapy.world.random_requests import Habits, draw_request
from koalapy.world.random_streams import between
from koalapy.world.random_sweeps import draw_sweep
from koalapy.world.world import World

OTHER_STORE = InstanceId("0ther")
USERS = (
    Habits(),
    Habits(notify=0.5, ranges=0.6),
    Habits(long=0.8, matching=0.3, ranges=0.3),
    Habits(optional=0.8, notify=0.3),
    Habits(long=0.6, urgent=0.3),
    Habits(long=0.6, queue=0.8, race=0.5, expires=0.2, held_limit=0.3, begin=0.2),
    Habits(long=0.5, deaf=0.8, exit_status=0.3, matching=0.5),
)
_KEYS = ("", "", "", "", "a", "b", "c")
_MOST_JOBS, _WITH_SWEEP = 6, 0.25  # of a flow; the share of all flows that have a sweep
_MOST_LOST = 4  # chunks of a stream


def _submit(world: World, rng: Random) -> None:
    world.koalad.submit(draw_request(rng, world.sizes, world.habits), rng.choice(_KEYS))


def _submit_many(world: World, rng: Random) -> None:
    for _ in range(rng.randint(2, 5)):
        _submit(world, rng)


def _cancel(world: World, rng: Random) -> None:
    if (job := _job(world, rng)) is not None:
        world.koalad.request(CancelRequested(job))


def _force_cancel(world: World, rng: Random) -> None:
    if (job := _job(world, rng)) is not None:
        world.koalad.request(CancelRequested(job, force=True))


def _hold(world: World, rng: Random) -> None:
    if (job := _job(world, rng)) is not None:
        world.koalad.request(HoldRequested(job))


def _release(world: World, rng: Random) -> None:
    world.release_held()


def _job(world: World, rng: Random) -> JobId | None:
    engine = world.koalad.engine
    work = engine.records.all_work() if engine is not None else []
    return rng.choice(work).id if work else None


def _local_job(world: World, rng: Random) -> None:
    """Add a job of a user who does not use koalapy."""
    _add_local_job(world, rng, f"local-{rng.randrange(1000)}")


def _job_of_another_store(world: World, rng: Random) -> None:
    """Add a job of the user's other koalad, with the numbers of an attempt of this one, if possible on its cluster."""
    attempt = AttemptId(JobId(rng.randint(1, 40)), rng.randint(0, 3), rng.randint(1, 3))
    place = rng.choice(list(world.clusters))
    engine = world.koalad.engine
    live = [] if engine is None else [each for job in engine.records.jobs.values() for each in job.live]
    if live:
        chosen = rng.choice(live)
        attempt, place = chosen.id, chosen.cluster
    _add_local_job(world, rng, tag_of(OTHER_STORE, attempt), place)


def _add_local_job(world: World, rng: Random, name: str, place: str = "") -> None:
    cluster = world.clusters[place or rng.choice(list(world.clusters))]
    runs = between(rng, SECOND, MINUTE)
    cluster.foreign_job(name, rng.randint(1, rng.randint(1, cluster.batch.size)), runs)


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


def _lose(world: World, rng: Random) -> None:
    """Let a KCM drop some of the next chunks, as it does when too many wait for koalad or for a wrapper."""
    cluster = world.clusters[rng.choice(list(world.clusters))]
    cluster.environment.chunks_to_lose = rng.randint(1, _MOST_LOST)


def _open(world: World, rng: Random) -> None:
    world.koalad.open_stream(world.streams, rng)


STREAMS = Occasional(
    stream="chaos/streams", seeds=0.25, gap=100, acts={"open_stream": (_open, 2), "lose_chunks": (_lose, 1)}
)


def _submit_flow(world: World, rng: Random) -> None:
    """Submit jobs of which each waits for some of those before it; the client may repeat the request."""
    jobs = [
        FlowJob(
            request=draw_request(rng, world.sizes, world.habits),
            after=tuple(before for before in range(place) if rng.random() < 0.5),
        )
        for place in range(rng.randint(2, _MOST_JOBS))
    ]
    on_failure = rng.choice((OnFailure.CONTINUE, OnFailure.CONTINUE, OnFailure.STOP))
    key = rng.choice(("", "", "flow"))
    if rng.random() < _WITH_SWEEP:  # last, so that the other draws stay the same
        place = rng.randrange(len(jobs))
        jobs[place] = replace(jobs[place], request=draw_sweep(rng))
    whole = Request(name="flow", components=(), jobs=tuple(jobs), on_failure=on_failure)
    world.koalad.submit(whole, key)


FLOWS = Occasional(stream="chaos/flows", seeds=0.3, gap=400, acts={"submit_flow": (_submit_flow, 1)})
