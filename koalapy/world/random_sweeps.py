"""Parameter sweeps as the users of a simulated grid write them."""

from collections.abc import Sequence
from random import Random
from typing import NamedTuple

from koalapy.model.parameters import Axis, Source, Space
from koalapy.model.request import ComponentRequest, Request
from koalapy.model.units import MINUTE, SECOND, Duration
from koalapy.world.behaviour import EXECUTABLE, Behaviour, arguments_of
from koalapy.world.random_streams import between

_COUNTS = (1, 7, 30, 90)
_SHORT = Duration(SECOND // 5), Duration(5 * SECOND)
_RUNS = _SHORT, _SHORT, (Duration(10 * SECOND), Duration(50 * SECOND))


class Parameter(NamedTuple):
    """The behaviour of a sweep's program for one parameter."""

    runs: Duration
    exit_status: int = 0


def sweep_of(parameters: Sequence[Parameter], walltime: Duration, deaf: bool = False) -> Request:
    """Return a sweep with one axis of two names that vary together; `walltime` is each parameter's."""
    runs = Source(names=("runs",), values=tuple(str(each.runs) for each in parameters))
    status = Source(names=("status",), values=tuple(str(each.exit_status) for each in parameters))
    component = ComponentRequest(
        processors=1,
        executable=EXECUTABLE,
        arguments=("{runs}", "{status}", *arguments_of(Behaviour(deaf=deaf))[2:]),
        walltime=walltime,
    )
    space = Space(axes=(Axis(sources=(runs, status), count=len(parameters)),))
    return Request(name="sweep", components=(component,), parameters=space)


def draw_sweep(rng: Random) -> Request:
    """Draw a sweep. Most parameters succeed within seconds; some run long enough to be interrupted."""
    span, deaf, wrong = rng.choice(_RUNS), rng.random() < 0.2, rng.choice((0.0, 0.0, 0.1))
    parameters = [
        Parameter(between(rng, *span), exit_status=3 if rng.random() < wrong else 0) for _ in range(rng.choice(_COUNTS))
    ]
    return sweep_of(parameters, MINUTE, deaf)
