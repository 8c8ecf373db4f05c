"""What a check found, and of a failure: the cause, what to change, and whose move it is."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

Move = Literal["you", "administrator", "nobody", "koalapy"]


class Status(StrEnum):
    OK = "ok"
    WARNING = "warning"  # it works, but not for sure, or not well
    FAILED = "failed"
    NOT_EXAMINED = "not_examined"  # something that it depends on failed, or the answer did not come in time
    NOT_APPLICABLE = "not_applicable"  # this cluster has nothing of the kind


FINE = frozenset({Status.OK, Status.WARNING, Status.NOT_APPLICABLE})  # what depends on it can be examined


@dataclass(frozen=True, slots=True)
class Failure:
    """`key`: of the cluster in the grid file, to be changed; `value`: to be written there, where it can be known.

    `move` is nobody's where it may pass by itself. `command`, `exit_status` and `words` are the batch system's.
    """

    code: str
    cause: str
    change: str
    move: Move
    key: str | None = None
    value: str | None = None
    command: str = ""
    exit_status: int | None = None
    words: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """Of one check on one cluster."""

    check: str
    status: Status
    message: str
    took_s: float = 0.0
    figures: Mapping[str, Any] = field(default_factory=dict)
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """Of one cluster; `left`: what could not be removed again, in words."""

    cluster: str
    findings: tuple[Finding, ...]
    left: tuple[str, ...] = ()

    @property
    def well(self) -> bool:
        """Nothing failed, and nothing is left behind."""
        return not self.left and all(finding.status is not Status.FAILED for finding in self.findings)
