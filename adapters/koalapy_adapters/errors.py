"""Errors that carry whose move it is, and the batch system's own words.

BatchError
├── TransientError     try again
├── ClusterError       leave this cluster out
├── RequestError       the user's mistake
└── UnreadableError    the dialect cannot read the output
"""

from typing import List, NamedTuple, Optional

_TRACEBACK = "Traceback (most recent call last):"


class Result(NamedTuple):
    """A finished command. `exit_status` is None if it was ended at its time-out."""

    argv: List[str]
    exit_status: Optional[int]
    stdout: str
    stderr: str

    @property
    def words(self) -> str:
        """The command's stderr, else its stdout, in one line of at most 500 characters.

        Of a traceback the last line is kept.
        """
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        if _TRACEBACK in lines:
            lines = lines[: lines.index(_TRACEBACK)] + lines[-1:]
        return "; ".join(line.strip() for line in lines if line.strip())[:500]


class BatchError(Exception):
    """A failure of a batch system, or of the way to it. `code` is stable, `advice` states what to change."""

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
