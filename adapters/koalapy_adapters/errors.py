"""Errors that say whose move it is, with the batch system's own words.

BatchError
├── TransientError     try again
├── ClusterError          leave this cluster out
├── RequestError       the user's mistake
└── UnreadableError    our dialect must learn
"""

from typing import List, NamedTuple, Optional

_TRACEBACK = "Traceback (most recent call last):"


class Result(NamedTuple):
    """A finished command. `exit_status` is None when it was ended for taking too long."""

    argv: List[str]
    exit_status: Optional[int]
    stdout: str
    stderr: str

    @property
    def words(self) -> str:
        """What the command said of its failure, shortened to one line; of a traceback, its last."""
        said = (self.stderr.strip() or self.stdout.strip()).splitlines()
        if _TRACEBACK in said:
            said = said[: said.index(_TRACEBACK)] + said[-1:]
        return "; ".join(line.strip() for line in said if line.strip())[:500]


class BatchError(Exception):
    """Something between us and a batch system. `code` is stable, `advice` says what to change."""

    whose = "ours"

    def __init__(self, code: str, message: str, advice: str = "", result: Optional[Result] = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.advice = advice
        self.result = result


class TransientError(BatchError):
    whose = "transient"


class ClusterError(BatchError):
    whose = "cluster"


class RequestError(BatchError):
    whose = "request"


class UnreadableError(BatchError):
    whose = "ours"
