"""Random streams from one seed: one for each user, so that the draws of one do not change those of another."""

import hashlib
from random import Random

from koalapy.model.units import Duration


def stream(seed: int, name: str) -> Random:
    """Return a random stream, the same for the same seed and name in every process."""
    return Random(int.from_bytes(hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=16).digest(), "big"))


def between(rng: Random, least: Duration, most: Duration) -> Duration:
    """Draw a duration from `least` to `most`, uniform in its logarithm."""
    low = max(1, least)
    return Duration(min(most, max(least, round(low * (most / low) ** rng.random()))))
