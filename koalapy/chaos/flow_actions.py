"""Flows in a world of chaos: jobs that wait for each other, of which users cancel and hold single ones and all."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

from koalapy.chaos.plan import Action
from koalapy.model.request import FlowJob, OnFailure, Request
from koalapy.world.random_requests import draw_request
from koalapy.world.random_streams import stream
from koalapy.world.random_sweeps import draw_sweep
from koalapy.world.world import World

SEEDS = 0.3  # of all seeds have flows
GAP = 400  # mean number of events between two flows
MOST_JOBS = 6
SWEEPS = 0.25  # of all flows have a sweep


def _submit_flow(world: World, rng: Random) -> None:
    """Submit jobs of which each waits for some of those before it; the client may repeat the request."""
    jobs = [
        FlowJob(
            request=draw_request(rng, world.sizes, world.habits),
            after=tuple(before for before in range(place) if rng.random() < 0.5),
        )
        for place in range(rng.randint(2, MOST_JOBS))
    ]
    on_failure = rng.choice((OnFailure.CONTINUE, OnFailure.CONTINUE, OnFailure.STOP))
    key = rng.choice(("", "", "flow"))
    if rng.random() < SWEEPS:  # last, so that the other draws stay the same
        place = rng.randrange(len(jobs))
        jobs[place] = replace(jobs[place], request=draw_sweep(rng))
    whole = Request(name="flow", components=(), jobs=tuple(jobs), on_failure=on_failure)
    world.koalad.submit(whole, key)


ALL: dict[str, tuple[Callable[[World, Random], None], int]] = {"submit_flow": (_submit_flow, 1)}


def schedule_flows(seed: int, events: int) -> list[Action]:
    """Draw the flows of this seed; most seeds have none. A longer run begins with those of a shorter one."""
    rng = stream(seed, "chaos/flows")
    return list(_drawn(rng, events)) if rng.random() < SEEDS else []


def _drawn(rng: Random, events: int) -> Iterator[Action]:
    at = 0
    while (at := at + 1 + int(rng.expovariate(1 / GAP))) < events:
        yield Action(at, "submit_flow", rng.getrandbits(32))
