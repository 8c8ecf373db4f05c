"""Pilots: jobs that hold processors, and are clusters of their own."""

from typing import Literal

from typing_extensions import TypedDict

from koalapy.answers.fields import Instant


class Pilot(TypedDict):
    """A pilot."""

    name: str
    """Of its cluster: a component that names it is placed there."""
    job: int
    state: Literal["binding", "bound", "draining", "closing", "ended", "failed"]
    """`binding`: its job waits, or is in a batch queue; `bound`: it is a cluster."""
    on: str
    """The cluster whose processors it holds."""
    processors: int
    nodes: int | None
    """The number of nodes that was asked for."""
    hosts: list[str]
    walltime_s: float
    idle_s: float
    """It ends after so long without a job."""
    shared: bool
    """Jobs that do not name it are placed there too."""
    isolate: Literal["none", "auto", "bwrap", "unshare"]
    """How programs there are isolated from the account that runs them."""
    opened_at: Instant
    ends_at: Instant | None
    """When its walltime ends; null before it is bound."""
    ended_at: Instant | None
    jobs: list[int]
    """Jobs and sweeps that are there, or can run nowhere else."""
    reason: str | None
    """Why its job waits, why no job can be placed there now, or how it ended."""


class PilotAnswer(TypedDict):
    """A pilot that was opened, or is being closed."""

    schema: Literal["koala.pilot/1"]
    pilot: Pilot


class PilotsAnswer(TypedDict):
    """Pilots."""

    schema: Literal["koala.pilots/1"]
    pilots: list[Pilot]
