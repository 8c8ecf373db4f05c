"""The result of a check, and for a failure its cause, what to change, and who has to act."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

Move = Literal["you", "administrator", "nobody", "koalapy"]


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
