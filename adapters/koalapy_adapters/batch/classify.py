"""The classification of a batch system's failure messages: whose move it is, and what to change."""

import re
from typing import NamedTuple, Sequence, Type

from koalapy_adapters.errors import BatchError, ClusterError, RequestError, Result, TransientError, UnreadableError

UNKNOWN_WORDS = "unknown_words"
_NOT_FOUND = 127  # env(1) and shells, for a command that is not there
# What a user chose and a message repeats: URLs, absolute paths, and what stands in quotes (but user's is no quote).
_REPEATED = re.compile(
    r"""\w+://\S+ | (?<![\w.~])~?/[^\s:;,'"()]+ | "[^"\n]*" | (?<!\w)'(?!\s)[^'\n]*(?<!\s)'""", re.VERBOSE
)


class Verdict(NamedTuple):
    """The meaning of a failure message. `words` is a regular expression, searched without regard to case in what the
    command printed, without the user's own paths and quoted values (`batch_systems_words`).
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

    A command without an exit status gives TransientError, and one without a matching verdict ClusterError.
    """
    command = result.argv[0] if result.argv else "the command"
    if result.exit_status is None:
        return TransientError(
            "no_answer",
            "%s did not answer in time." % command,
            "It is tried again; if this goes on, ask the administrators whether its batch system is overloaded.",
            result,
        )
    words = batch_systems_words(result)
    for verdict in verdicts:
        if re.search(verdict.words, words, re.IGNORECASE):
            return verdict.error(verdict.code, verdict.message, verdict.advice, result)
    if result.exit_status == _NOT_FOUND:
        return ClusterError(
            "command_missing",
            "%s was not found on the head node." % command,
            "Check `batch` in the grid file, and that the login shell puts the batch system's commands on the PATH.",
            result,
        )
    printed = result.words
    return ClusterError(
        UNKNOWN_WORDS,
        "%s failed%s." % (command, " with these words: " + printed.rstrip(".") if printed else " without a word"),
        "If its words do not help, ask the administrators.",
        result,
    )


def batch_systems_words(result: Result) -> str:
    """The output of a command, stderr first, without the URLs, paths and quoted values that it repeats from its user.

    So a file /scratch/gpu/script that cannot be opened is not taken for a lack of GPUs. Quotation marks are kept.
    """
    text = result.stderr + "\n" + result.stdout
    for path in sorted((each for each in result.argv if "/" in each), key=len, reverse=True):
        text = text.replace(path, "")
    return _REPEATED.sub(lambda match: match.group()[0] * 2 if match.group()[0] in "\"'" else "", text)


def unreadable(result: Result, how: str) -> UnreadableError:
    """The error for an answer that this dialect does not understand. `how` follows the command's name in its text."""
    command = result.argv[0] if result.argv else "the command"
    words = result.words
    return UnreadableError(
        "unreadable_answer",
        "%s %s%s." % (command, how, ": " + words if words else ""),
        "koalapy asks again. If this goes on, report it with the batch system's version and this output.",
        result,
    )
