"""Sweeps in a world where everything fails: each parameter's result is recorded once, none is lost or done again."""

from collections import Counter

import pytest

from koalapy.model.identity import JobId
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.sweep import Axis, Source, Space
from koalapy.model.units import HOUR, MINUTE, SECOND, Duration
from koalapy.simulation.chaos import faults
from koalapy.simulation.dice import stream
from koalapy.simulation.parameters import Try
from koalapy.simulation.program import EXECUTABLE, Behaviour, arguments_of
from koalapy.simulation.world import World

SWEEPS, PARAMETERS, FAULTS = 2, 120, 40
PATIENCE = HOUR


def course(seed: int) -> World:
    """Sweeps are begun, faults befall them, and then there is calm until nothing is left to do."""
    world, dice = World(seed), stream(seed, "sweeps")
    world.run_for(MINUTE)
    for number in range(SWEEPS):
        runs = [Duration(dice.randrange(1, 20) * SECOND) for _ in range(PARAMETERS)]
        assert world.koalad.submit(_sweep(runs), key=f"sweep {number}")
    for _ in range(FAULTS):
        world.run_for(Duration(dice.randrange(1, 15) * SECOND))
        act, _ = faults.ALL[dice.choice(list(faults.ALL))]
        act(world, dice)
        if not world.koalad.alive and dice.random() < 0.5:
            world.koalad.start()
    world.calm()
    assert world.settle(PATIENCE), f"seed {seed} does not come to rest"
    return world


def _sweep(runs: list[Duration]) -> Request:
    source = Source(names=("runs",), values=tuple(str(each) for each in runs))
    arguments = ("{runs}", *arguments_of(Behaviour())[1:])
    component = ComponentRequest(processors=1, executable=EXECUTABLE, arguments=arguments, walltime=MINUTE)
    space = Space(axes=(Axis(sources=(source,), count=len(runs)),))
    return Request(name="sweep", components=(component,), parameters=space)


def recorded(world: World, sweep: JobId) -> Counter[int]:
    """How many results there are of each parameter."""
    batches = (batch for _, batch in world.koalad.store.results(sweep))
    return Counter(result.number for batch in batches for result in batch.results)


def done_again(world: World) -> list[Try]:
    """Tries of parameters that had been done before."""
    tries = world.ledger.parameters.tries
    done = {(each.sweep, each.number): each.ended for each in tries if each.done}
    return [each for each in tries if (end := done.get((each.sweep, each.number))) is not None and each.began >= end]


def check(world: World) -> None:
    for sweep in world.koalad.accepted:
        assert recorded(world, sweep) == Counter(range(1, PARAMETERS + 1))
    assert done_again(world) == []


@pytest.mark.parametrize("seed", [1, 2])
def test_every_parameter_is_done_and_recorded_once(seed: int) -> None:
    world = course(seed)
    assert len(world.koalad.accepted) == SWEEPS
    check(world)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 23))
def test_over_many_seeds(seed: int) -> None:
    check(course(seed))
