"""What an attempt's wrapper goes by. Durations are integer microseconds."""

from typing import NamedTuple


class Settings(NamedTuple):
    """What is fixed for this attempt."""

    tag: str
    batch_id: str
    barrier_timeout: int
    walltime: int
    grace: int
    orphan_timeout: int
