"""The Lublin-Feitelson model of rigid parallel jobs (JPDC 63(11), 2003): sizes, run times and a daily arrival cycle.

It has two streams, batch and interactive, or one of jobs without a type. All times inside are in seconds.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy
from numpy.typing import NDArray

from koalapy.experiments.workloads.reading import Ended, TraceJob
from koalapy.model.units import SECOND, Duration

BUCKET = 1800  # the day is cut into half hours
BUCKETS = 48
_CYCLE_FROM = 11  # the first half hour of the daily cycle's curve: at five in the morning
_BLOCK = 4096  # jobs drawn at once
_LONGEST_RUNTIME, _LONGEST_GAP = 12.0, 13.0  # logarithms of seconds; larger values are drawn again


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The parameters of one stream, named as in the paper. Gamma distributions have a shape and a scale.

    `serial` and `power_of_two` are shares of all jobs; the rest has any size. The logarithm of a size to base 2 is
    uniform from `least` to `knee` with probability `first_stage`, else from `knee` to `most`.
    """

    serial: float
    power_of_two: float
    least: float
    knee: float
    most: float
    first_stage: float
    short: tuple[float, float]
    long: tuple[float, float]
    mix: tuple[float, float]  # slope and intercept of the probability of `short` over the size
    arrival: tuple[float, float]
    rush: float  # multiplies the arrivals' shape
    cycle: tuple[float, float]

    def for_size(self, processors: int) -> "Model":
        """Return the model with sizes for a machine of `processors`, as its authors advise."""
        most = math.log2(processors)
        return replace(self, most=most, knee=max(self.least, most - 2.5))


BATCH = Model(
    serial=0.2927, power_of_two=0.6686, least=1.2, knee=5.0, most=7.0, first_stage=0.875, short=(6.57, 0.823),
    long=(639.1, 0.0156), mix=(-0.003, 0.6986), arrival=(6.0415, 0.8531), rush=1.0519, cycle=(6.1271, 5.2740),
)  # fmt: skip
INTERACTIVE = Model(
    serial=0.1541, power_of_two=0.625, least=1.0, knee=3.0, most=5.5, first_stage=0.705, short=(3.8351, 0.6605),
    long=(7.073, 0.6856), mix=(-0.0118, 0.9156), arrival=(6.5510, 0.6621), rush=0.9797, cycle=(8.9186, 3.6680),
)  # fmt: skip
UNTYPED = Model(
    serial=0.244, power_of_two=0.576, least=0.8, knee=4.5, most=7.0, first_stage=0.86, short=(4.2, 0.94),
    long=(312.0, 0.03), mix=(-0.0054, 0.78), arrival=(10.2303, 0.4871), rush=1.0225, cycle=(8.1737, 3.9631),
)  # fmt: skip


Numbers = NDArray[numpy.float64]


def jobs(model: Model, largest: int, seed: int, stretch: float = 1.0) -> Iterator[TraceJob]:
    """Yield jobs without end, in order of arrival; none is larger than `largest`.

    Gaps between arrivals are `stretch` times those of the model. The daily cycle is that of the model's own time,
    before it is stretched.
    """
    rng = numpy.random.default_rng(seed)
    number, points = 0, 0.0
    while True:
        spent = points + numpy.cumsum(draw_gaps(model, _BLOCK, rng))
        sizes = draw_sizes(model, largest, _BLOCK, rng)
        runtimes = draw_runtimes(model, sizes, rng)
        for at, size, runtime in zip(arrivals(model, spent), sizes, runtimes, strict=True):
            number += 1
            yield TraceJob(
                number=number,
                submitted=Duration(round(int(at) * stretch * SECOND)),
                processors=int(size),
                runtime=Duration(int(runtime) * SECOND),
                ended=Ended.COMPLETED,
            )
        points = float(spent[-1])


def draw_sizes(model: Model, largest: int, count: int, rng: numpy.random.Generator) -> NDArray[numpy.int64]:
    """Draw the processors of `count` jobs; sizes of the model above `largest` become `largest`."""
    kind, stage, share = rng.random((3, count))
    low = numpy.where(stage <= model.first_stage, model.least, model.knee)
    high = numpy.where(stage <= model.first_stage, model.knee, model.most)
    exponent = low + (high - low) * share
    exponent = numpy.where(kind <= model.serial + model.power_of_two, exponent.round(), exponent)
    sizes = numpy.where(kind <= model.serial, 1, numpy.exp2(exponent).round())
    return numpy.minimum(sizes, largest).astype(numpy.int64)


def draw_runtimes(model: Model, sizes: NDArray[numpy.int64], rng: numpy.random.Generator) -> NDArray[numpy.int64]:
    """Draw the run times of jobs of these sizes, in whole seconds from 1."""
    slope, intercept = model.mix
    chance = numpy.clip(slope * sizes + intercept, 0.0, 1.0)

    def draw(which: NDArray[numpy.intp]) -> Numbers:
        short = rng.random(len(which)) <= chance[which]
        return numpy.where(short, rng.gamma(*model.short, len(which)), rng.gamma(*model.long, len(which)))

    logarithms = _redrawn(draw, len(sizes), _LONGEST_RUNTIME)
    return numpy.exp(logarithms).astype(numpy.int64)


def draw_gaps(model: Model, count: int, rng: numpy.random.Generator) -> Numbers:
    """Draw gaps between arrivals in points: a half hour with the average number of arrivals has one point."""
    shape, scale = model.arrival
    logarithms = _redrawn(lambda which: rng.gamma(shape * model.rush, scale, len(which)), count, _LONGEST_GAP)
    return numpy.exp(logarithms) / BUCKET


def arrivals(model: Model, points: Numbers) -> NDArray[numpy.int64]:
    """Return when the points are used up, in whole seconds since midnight. Each half hour has its weight in points."""
    days, rest = numpy.divmod(points, BUCKETS)
    edges = numpy.concatenate(([0.0], numpy.cumsum(daily_weights(model))))
    return ((days * BUCKETS + numpy.interp(rest, edges, numpy.arange(BUCKETS + 1))) * BUCKET).astype(numpy.int64)


def daily_weights(model: Model) -> list[float]:
    """Return the weight of each half hour in a day's arrivals, from midnight on; the average is 1."""
    weights = [0.0] * BUCKETS
    for half_hour in range(_CYCLE_FROM, _CYCLE_FROM + BUCKETS):
        mass = gamma_cdf(half_hour + 0.5, *model.cycle) - gamma_cdf(half_hour - 0.5, *model.cycle)
        weights[(half_hour - 1) % BUCKETS] = mass
    mean = sum(weights) / BUCKETS
    return [weight / mean for weight in weights]


def mean_gap(model: Model, samples: int = 400_000) -> float:
    """Return the mean seconds between arrivals: the mean of e^g over gamma variates up to the longest gap."""
    return float(draw_gaps(model, samples, numpy.random.default_rng(0)).mean() * BUCKET)


def _redrawn(draw: Callable[[NDArray[numpy.intp]], Numbers], count: int, most: float) -> Numbers:
    """Draw `count` variates; those above `most` are drawn again."""
    values = draw(numpy.arange(count))
    while len(beyond := numpy.flatnonzero(values > most)):
        values[beyond] = draw(beyond)
    return values


_ENOUGH, _MOST_TERMS = 1e-16, 10_000


def gamma_cdf(value: float, shape: float, scale: float) -> float:
    """Return the probability of at most `value`.

    It is the regularised lower incomplete gamma function (Abramowitz & Stegun 6.5). Below shape + 1 its series is used,
    above it Lentz's continued fraction of the complement.
    """
    x = value / scale
    if x <= 0:
        return 0.0
    front = math.exp(shape * math.log(x) - x - math.lgamma(shape))
    return front * _series(shape, x) if x < shape + 1 else 1.0 - front * _fraction(shape, x)


def _series(shape: float, x: float) -> float:
    term = total = 1.0 / shape
    for count in range(1, _MOST_TERMS):
        term *= x / (shape + count)
        total += term
        if term < total * _ENOUGH:
            break
    return total


def _fraction(shape: float, x: float) -> float:
    tiny = 1e-300
    b = x + 1.0 - shape
    c, d = 1.0 / tiny, 1.0 / b
    result = d
    for count in range(1, _MOST_TERMS):
        a = -count * (count - shape)
        b += 2.0
        d = 1.0 / _not_zero(a * d + b, tiny)
        c = _not_zero(b + a / c, tiny)
        result *= d * c
        if abs(d * c - 1.0) < _ENOUGH * 10:
            break
    return result


def _not_zero(value: float, tiny: float) -> float:
    return value if abs(value) > tiny else tiny
