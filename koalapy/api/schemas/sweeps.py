"""The answers about sweeps."""

from typing import Literal

from pydantic import Field

from koalapy.api.schemas.answer import INSTANT, Answer

JobStateName = Literal["waiting", "held", "claiming", "running", "stopping", "done", "failed", "cancelled"]
Ending = Literal["exited", "killed", "walltime", "output", "failed"]


class Counts(Answer):
    """Of parameters."""

    parameters: int
    done: int = Field(description="parameters with a result, whatever it is")
    failed: int = Field(description="of those done, the ones that did not end with 0")
    out: int = Field(description="parameters that a cluster has, and that are not done")
    preempted: int = Field(
        description="parameters that were interrupted because their node was given back, and will run again"
    )


class SweepProgress(Counts):
    """How far a sweep is."""

    clusters: list[str] = Field(description="clusters that have parameters")


class RunnerCluster(Answer):
    """What a sweep has on one cluster."""

    cluster: str
    nodes: int = Field(description="of its Launchers, those that are going or suspended included")
    processors: int
    starting: int = Field(description="Launchers whose batch job waits")
    going: int = Field(description="Launchers that were asked to end")
    suspended: int = Field(description="of the nodes, those whose batch system lets nothing of it run now")
    running: int | None = Field(description="parameters that run; null: not known")
    out: int = Field(description="parameters that are there and not done")
    owed: int = Field(description="nodes that were taken from it for others' jobs")
    left_out: list[str] = Field(description="nodes on which everything fails at once")


class Admission(Answer):
    """Nodes of all clusters that sweeps can expect, as koalad predicts them, and how well it has predicted."""

    expected_nodes: float = Field(description="mean number of idle nodes expected in the next hour")
    predicted_nodes: float | None = Field(description="nodes predicted for the last hour")
    nodes: float | None = Field(description="nodes that were idle in the last hour")
    mean_error: float | None = Field(description="of all predictions whose time is over, in nodes")


class Runner(Counts):
    """A sweep and its CS-Runner."""

    id: int
    name: str
    owner: str
    state: JobStateName
    submitted_at: str = Field(pattern=INSTANT)
    admitted_at: str | None = Field(pattern=INSTANT)
    finished_at: str | None = Field(pattern=INSTANT)
    running: int | None = Field(description="parameters that run; null: not known")
    waiting: int = Field(description="parameters that are neither done nor with a cluster")
    parameters_per_minute: float | None = Field(description="over the last minute")
    ends_at: str | None = Field(pattern=INSTANT, description="estimated by that")
    charged_processor_seconds: float = Field(description="of all its allocations, idle time in them included")
    reason: str | None
    clusters: list[RunnerCluster]


class RunnersAnswer(Answer):
    schema_: Literal["koala.runners/1"] = Field(alias="schema")
    runners: list[Runner]
    admission: Admission


class Result(Answer):
    """One parameter that is done."""

    parameter: int = Field(description="its number in the sweep as written, from 1")
    values: dict[str, str] | None = Field(description="by name; null: their file is not there any more")
    exit_status: int = Field(description="128 + N for signal N")
    ending: Ending = Field(description="output: it wrote more than it may; failed: it could not be started")
    cluster: str
    host: str
    started_at: str = Field(pattern=INSTANT)
    ended_at: str = Field(pattern=INSTANT)
    output_bytes: int
    error_bytes: int


class ResultsAnswer(Answer):
    """In the order in which they were recorded."""

    schema_: Literal["koala.results/1"] = Field(alias="schema")
    id: int
    results: list[Result]
