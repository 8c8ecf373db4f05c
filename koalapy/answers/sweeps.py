"""Sweeps and their results."""

from typing import Literal

from typing_extensions import TypedDict

from koalapy.answers.fields import Instant

JobStateName = Literal[
    "blocked", "waiting", "held", "claiming", "running", "stopping", "done", "failed", "cancelled",
]  # fmt: skip


Ending = Literal["exited", "killed", "walltime", "output", "failed"]


class Counts(TypedDict):
    """Numbers of parameters."""

    parameters: int
    done: int
    """Parameters with a result, whatever it is."""
    failed: int
    """Parameters with a result other than exit status 0."""
    assigned: int
    """Parameters that a cluster has, and that are not done."""
    preempted: int
    """Parameters that were interrupted because their node was given back, and will run again."""


class SweepProgress(Counts):
    """The progress of a sweep."""

    clusters: list[str]
    """Clusters that have parameters."""


class RunnerCluster(TypedDict):
    """The nodes and parameters of a sweep on one cluster."""

    cluster: str
    nodes: int
    """Nodes of its Launchers, with those that are stopping or suspended."""
    processors: int
    starting: int
    """Launchers whose batch job waits."""
    stopping: int
    """Launchers that were asked to end."""
    suspended: int
    """Nodes whose batch system has suspended the Launcher."""
    running: int | None
    """Parameters that run; null: unknown."""
    assigned: int
    """Parameters that the cluster has, and that are not done."""
    reclaimed: int
    """Nodes that were reclaimed for others' jobs, and that the sweep has not got back."""
    black_holes: list[str]
    """Nodes that are excluded, because every parameter fails on them at once."""


class Admission(TypedDict):
    """Nodes that koalad predicts for sweeps on all clusters, and the error of its predictions."""

    expected_nodes: float
    """Mean number of idle nodes expected in the next hour."""
    predicted_nodes: float | None
    """Nodes predicted for the last hour."""
    nodes: float | None
    """Nodes that were idle in the last hour."""
    mean_error: float | None
    """Mean error of all predictions whose time has passed, in nodes."""


class Runner(Counts):
    """A sweep and its CS-Runner."""

    id: int
    name: str
    owner: str
    state: JobStateName
    submitted_at: Instant
    admitted_at: Instant | None
    finished_at: Instant | None
    running: int | None
    """Parameters that run; null: unknown."""
    waiting: int
    """Parameters that are neither done nor with a cluster."""
    parameters_per_minute: float | None
    """Mean over the last minute."""
    ends_at: Instant | None
    """Estimate from that mean."""
    charged_processor_seconds: float
    """Processor-seconds of all its allocations, with idle time in them."""
    reason: str | None
    clusters: list[RunnerCluster]


class RunnersAnswer(TypedDict):
    """CS-Runners of sweeps, and the forecast that admission uses."""

    schema: Literal["koala.runners/1"]
    runners: list[Runner]
    admission: Admission


class Result(TypedDict):
    """The result of one parameter."""

    parameter: int
    """Number of the parameter in the sweep as written, from 1."""
    values: dict[str, str] | None
    """Values by name; null: their file is gone."""
    exit_status: int
    """128 + N if signal N ended it."""
    ending: Ending
    """`output`: it wrote more than it may. `failed`: it could not be started."""
    cluster: str
    host: str
    started_at: Instant
    ended_at: Instant
    output_bytes: int
    error_bytes: int


class ResultsAnswer(TypedDict):
    """The results of a sweep, in the order of their records."""

    schema: Literal["koala.results/1"]
    id: int
    results: list[Result]
