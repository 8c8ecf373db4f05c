"""The checks of a cluster, in their order, their results, and the JSON document koala.doctor/1 of all results.

A check that depends on a failed one is not examined. One that passes returns a message and figures; one that does not
raises an exception of this module. A failure has its cause, what to change, and who has to act.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Literal

from koalapy.config import GridFile
from koalapy.model.errors import Reason

Figures = dict[str, Any]
Found = tuple[str, Figures]  # the message and figures of a check that passed
Move = Literal["you", "administrator", "nobody", "koalapy"]
Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Check:
    """A check of one cluster. `after`: ids of checks whose failure would make this one fail too.

    `agent`: whether it asks the KCM.
    """

    id: str
    title: str
    after: tuple[str, ...] = ()
    agent: bool = True


CHECKS = (
    Check("login", "login", agent=False),
    Check("python", "Python on the head node", ("login",), agent=False),
    Check("shared", "shared directory", ("python",), agent=False),
    Check("clock", "clock of the head node", ("python",)),
    Check("batch", "batch system", ("python",)),
    Check("queue", "queue", ("batch",)),
    Check("access", "permission to submit", ("queue",)),
    Check("lowest", "lowest priority", ("queue",)),
    Check("drmaa", "DRMAA", ("batch",)),
    Check("node", "a batch job starts", ("shared", "queue", "access")),
    Check("node_shared", "shared directory on a compute node", ("node",)),
    Check("node_relay", "relay reached from a compute node", ("node",)),
    Check("node_clock", "clock of a compute node", ("node_shared",)),
    Check("canary", "canary job", ("node_shared", "node_relay")),
    Check("launch", "processes on two nodes", ("canary",)),
    Check("isolation", "isolation of borrowers' programs", ("canary",)),
)
BY_ID = {check.id: check for check in CHECKS}
TITLES = {check.id: check.title for check in CHECKS}
QUICK = CHECKS[: CHECKS.index(BY_ID["node"])]  # the checks without a batch job


class Trouble(Exception):
    """The check failed. `value`: what the grid file should have instead, '' if that is not known."""

    def __init__(self, reason: Reason, value: str = "") -> None:
        super().__init__(str(reason))
        self.reason, self.value = reason, value


class Undecided(Exception):
    """The check did not finish. Its text names what the check waited for, in one or two sentences."""


class Inapplicable(Exception):
    """The check does not apply to this cluster. Its text gives the reason, in a sentence."""


class Doubtful(Exception):
    """The check passed with a warning. Its text gives the reason, in one or two sentences."""


class Status(StrEnum):
    OK = "ok"
    WARNING = "warning"  # it works, but not reliably or not well
    FAILED = "failed"
    NOT_EXAMINED = "not_examined"  # a check that it depends on failed, or the answer did not arrive in time
    NOT_APPLICABLE = "not_applicable"  # the cluster has nothing to check


FINE = frozenset({Status.OK, Status.WARNING, Status.NOT_APPLICABLE})  # checks that depend on it can be examined


@dataclass(frozen=True, slots=True)
class Failure:
    """The cause of a failed check, and its remedy.

    `key`: the cluster's key in the grid file that has to change. `value`: what to write there, None if that is not
    known. `move` is "nobody" if the failure may end by itself. `command`, `exit_status` and `output` are the batch
    system's.
    """

    code: str
    cause: str
    change: str
    move: Move
    key: str | None = None
    value: str | None = None
    command: str = ""
    exit_status: int | None = None
    output: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check on one cluster. `took_s`: the duration of the check."""

    check: str
    status: Status
    message: str
    took_s: float = 0.0
    figures: Mapping[str, Any] = field(default_factory=dict)
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The findings on one cluster. `left`: descriptions of what could not be removed again."""

    cluster: str
    findings: tuple[Finding, ...]
    left: tuple[str, ...] = ()

    @property
    def well(self) -> bool:
        """Return whether no check failed and nothing is left behind."""
        return not self.left and all(finding.status is not Status.FAILED for finding in self.findings)


def document(grid: GridFile, reports: Sequence[Report], complete: bool = True) -> Document:
    """Return the reports as a JSON object. `complete`: whether the examination ran without an interrupt."""
    return {
        "schema": "koala.doctor/1",
        "grid": grid.grid,
        "complete": complete,
        "ok": all(report.well for report in reports),
        "clusters": [_cluster(grid, report) for report in reports],
    }


def _cluster(grid: GridFile, report: Report) -> Document:
    described = grid.clusters[report.cluster]
    return {
        "cluster": report.cluster,
        "batch": described.batch,
        "connect": list(described.connect),
        "ok": report.well,
        "left_behind": list(report.left),
        "checks": [_check(finding) for finding in report.findings],
    }


def _check(finding: Finding) -> Document:
    return {
        "check": finding.check,
        "title": TITLES[finding.check],
        "status": str(finding.status),
        "message": finding.message,
        "took_s": round(finding.took_s, 3),
        "figures": dict(finding.figures),
        "failure": asdict(finding.failure) if finding.failure is not None else None,
    }
