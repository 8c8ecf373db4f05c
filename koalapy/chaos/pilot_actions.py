"""Pilots in a world of chaos: a person opens and closes them, and their batch jobs are killed."""

from random import Random

from koalapy.chaos.plan import Occasional
from koalapy.model.identity import tag_of
from koalapy.model.pilot import job_of_pilot
from koalapy.model.request import ComponentRequest, PilotOptions, Request, RetryOn
from koalapy.model.units import MINUTE, SECOND, Duration
from koalapy.world.behaviour import EXECUTABLE, Behaviour, arguments_of
from koalapy.world.random_streams import between
from koalapy.world.world import World

_LASTS = (Duration(2 * MINUTE), Duration(15 * MINUTE))
_RUNS = (Duration(2 * SECOND), Duration(90 * SECOND))
_IDLE = (Duration(10 * SECOND), Duration(2 * MINUTE))


def _open(world: World, rng: Random) -> None:
    """Open a pilot, on any cluster that is none."""
    names = [name for name in world.sizes if job_of_pilot(name) is None]
    if names:
        name = rng.choice(names)
        size = rng.randint(1, max(1, world.sizes[name] // 2))
        terms = PilotOptions(idle=rng.choice(_IDLE), shared=rng.random() < 0.5)
        program = Behaviour(runs=between(rng, *_LASTS), deaf=rng.random() < 0.3)
        world.pilots.open(name, size, program, terms)


def _submit(world: World, rng: Random) -> None:
    """Submit a job that names a pilot, sometimes with a component elsewhere."""
    name = _pilot(world, rng)
    if name is not None:
        components = [_component(rng, name, world.sizes[name])]
        if rng.random() < 0.3:
            components.append(_component(rng, None, 2))
        retry_on = (RetryOn.LOST, RetryOn.KILLED)
        world.koalad.submit(Request(name="inside", components=tuple(components), retry_on=retry_on))


def _component(rng: Random, cluster: str | None, size: int) -> ComponentRequest:
    return ComponentRequest(
        processors=rng.randint(1, max(1, size)), executable=EXECUTABLE, cluster=cluster,
        arguments=arguments_of(Behaviour(runs=between(rng, *_RUNS))), walltime=Duration(2 * MINUTE),
    )  # fmt: skip


def _close(world: World, rng: Random) -> None:
    name = _pilot(world, rng)
    if name is not None:
        world.pilots.close(name)


def _drain(world: World, rng: Random) -> None:
    name = _pilot(world, rng)
    if name is not None:
        world.koalad.grid.drain(name, True)


def _kill(world: World, rng: Random) -> None:
    """Kill a pilot's batch job, as an administrator does."""
    name = _pilot(world, rng)
    engine = world.koalad.engine
    job = None if name is None or engine is None else engine.records.jobs.get(job_of_pilot(name))  # type: ignore[arg-type]
    for attempt in job.present if job is not None else ():
        tag = tag_of(world.instance, attempt.id)
        batch = world.clusters[attempt.cluster].batch
        for batch_job in [each for each in batch.listed() if each.name == tag]:
            batch.kill(batch_job)


def _pilot(world: World, rng: Random) -> str | None:
    names = [name for name in world.koalad.grid.names if job_of_pilot(name) is not None]
    return rng.choice(names) if names else None


PILOTS = Occasional(
    stream="chaos/pilots",
    seeds=0.25,
    gap=60,
    acts={
        "open_pilot": (_open, 4),
        "submit_to_pilot": (_submit, 8),
        "close_pilot": (_close, 1),
        "drain_pilot": (_drain, 1),
        "kill_pilot": (_kill, 1),
    },
)
