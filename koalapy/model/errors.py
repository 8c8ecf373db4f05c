"""Errors, and the party that has to act on each: `whose`.

KoalaError                     code, whose, message, advice
├── TransientError             try again (whose: transient)
├── ClusterError               exclude this cluster (whose: cluster)
├── RequestError               the user's mistake (whose: request)
└── OurError                   koalapy's own (whose: ours)
"""

from dataclasses import dataclass, replace
from typing import Literal

Whose = Literal["transient", "cluster", "request", "ours"]


@dataclass(frozen=True, slots=True)
class Reason:
    """Why something failed or waits: one sentence states what is wrong, and one what to do.

    `command`, `exit_status` and `words` are those of the batch system, if it was involved. A NUL character, which a
    program may have written, is spelled out: no record can hold one.
    """

    code: str
    whose: Whose
    message: str
    advice: str = ""
    command: str = ""
    exit_status: int | None = None
    words: str = ""

    def __post_init__(self) -> None:
        for name in ("message", "advice", "command", "words"):
            text = getattr(self, name)
            if isinstance(text, str) and "\0" in text:
                object.__setattr__(self, name, text.replace("\0", "\\0"))

    def __str__(self) -> str:
        return f"{self.message} {self.advice}".strip()

    def on(self, cluster: str) -> "Reason":
        """Return the reason with the name of the cluster before its message."""
        return replace(self, message=f"{cluster}: {self.message}")


class KoalaError(Exception):
    """A refusal or a failure of koalapy. `reason` states what is wrong and what to do."""

    whose: Whose = "ours"
    lasting = False  # whether the same call would fail again

    def __init__(self, code: str, message: str, advice: str = "") -> None:
        super().__init__(f"{message} {advice}".strip())
        self.reason = Reason(code, self.whose, message, advice)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the error as it is, whatever arguments its class takes."""
        return _restored, (type(self), self.reason)


class TransientError(KoalaError):
    whose: Whose = "transient"


class ClusterError(KoalaError):
    whose: Whose = "cluster"


class RequestError(KoalaError):
    whose: Whose = "request"


class OurError(KoalaError):
    whose: Whose = "ours"


def _restored(kind: type[KoalaError], reason: Reason) -> KoalaError:
    error = kind.__new__(kind, str(reason))
    error.reason = reason
    return error
