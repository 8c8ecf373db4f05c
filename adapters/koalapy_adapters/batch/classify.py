"""The classification of a batch system's failure messages: whose move it is, and what to change."""

import re
from typing import NamedTuple, Sequence, Type

from koalapy_adapters.errors import BatchError, ClusterError, RequestError, Result, TransientError, UnreadableError

_NOT_FOUND = 127  # env(1) and shells, for a command that is not there


class Verdict(NamedTuple):
    """The meaning of a failure message. `words` is a regular expression, searched without regard to case in all that
    the command printed.
    """

    words: str
    error: Type[BatchError]
    code: str
    message: str
    advice: str


# Of hold and release, in Slurm's, Grid Engine's and the PBS family's words.
NOT_HELD = Verdict(
    r"invalid job id|no longer pending|does not exist|unknown job id|job has (already )?finished|invalid for state",
    RequestError,
    "not_waiting",
    "The batch system has no such job that waits.",
    "It may have started or ended meanwhile; see `koala show`.",
)


def check(result: Result, verdicts: Sequence[Verdict]) -> None:
    """Check that a command succeeded. Raises BatchError, of the kind that `failure` finds, if it did not."""
    if result.exit_status != 0:
        raise failure(result, verdicts)


def failure(result: Result, verdicts: Sequence[Verdict]) -> BatchError:
    """The error that a failed command means: that of the first verdict whose words it printed.

    A command without an exit status gives TransientError. Without a matching verdict, a command that was not found
    gives ClusterError, and any other UnreadableError.
    """
    command = result.argv[0] if result.argv else "the command"
    if result.exit_status is None:
        return TransientError(
            "no_answer",
            "%s did not answer in time." % command,
            "It is tried again; if this goes on, ask the administrators whether its batch system is overloaded.",
            result,
        )
    output = result.stderr + "\n" + result.stdout
    for verdict in verdicts:
        if re.search(verdict.words, output, re.IGNORECASE):
            return verdict.error(verdict.code, verdict.message, verdict.advice, result)
    if result.exit_status == _NOT_FOUND:
        return ClusterError(
            "command_missing",
            "%s was not found on the head node." % command,
            "Check `batch` in the grid file, and that the login shell puts the batch system's commands on the PATH.",
            result,
        )
    return unreadable(result, "failed with words that koalapy does not know")


def unreadable(result: Result, how: str) -> UnreadableError:
    """The error for an answer that this dialect does not understand. `how` follows the command's name in its text."""
    command = result.argv[0] if result.argv else "the command"
    words = result.words
    return UnreadableError(
        "unreadable_answer",
        "%s %s%s." % (command, how, ": " + words if words else ""),
        "Report it as a bug, with the batch system's version and these words.",
        result,
    )
