"""The gamma distribution's cumulative probability, to the precision of a double."""

import math

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
