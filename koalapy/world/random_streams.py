"""Chance, all of it from one seed: a stream of its own for whoever throws, so that one's throws disturb no other's."""

import hashlib
from random import Random

from koalapy.model.units import Duration


def stream(seed: int, name: str) -> Random:
    """The same for the same seed and name, in every process."""
    return Random(int.from_bytes(hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=16).digest(), "big"))


def between(rng: Random, least: Duration, most: Duration) -> Duration:
    """Any duration from `least` to `most`, small ones as likely as large ones by their logarithm."""
    low = max(1, least)
    return Duration(min(most, max(least, round(low * (most / low) ** rng.random()))))
