"""Why a batch job ended before its wrapper began: what the nodes did not see, or what they could not start."""

from typing import Any, Dict, Optional

from koalapy_adapters.batch.protocol import ENDED, JobStatus
from koalapy_adapters.kcm.state.actions import DirectoryStatus
from koalapy_adapters.kcm.state.attempt import Attempt
from koalapy_adapters.messages import Failure

_BY_OTHERS = ("cancelled", "lost", "walltime", "memory")  # endings that have reasons of their own
_NOT_SEEN = ("can't open file", "can't find '__main__' module")  # by Python, of the pushed file
_FULL = ("No space left on device", "Disk quota exceeded")
_LAST = 300  # characters of what was said


def never_began(attempt: Attempt, status: JobStatus, sight: DirectoryStatus) -> bool:
    """Whether it ended by itself although nobody has claimed the attempt, whose directory is there."""
    if attempt.over or attempt.ending is not None or attempt.connected or status.state != ENDED:
        return False
    return bool(sight.directory) and not sight.start_lock and sight.record is None and status.ending not in _BY_OTHERS


def why(directory: str, status: JobStatus, output: Optional[str]) -> Dict[str, Any]:
    """A Failure as JSON. `output`: what the batch job said, None where it left no file for that."""
    said = _last_line(output or "")
    if output is None or any(words in output for words in _NOT_SEEN):
        return _failure(
            "not_shared",
            "The compute nodes do not see %s, or cannot write to it: the batch job left nothing there." % directory,
            "Name a directory that the head node and the compute nodes share with `shared:` in the grid file.",
            said,
        )
    if any(words in output for words in _FULL):
        return _failure(
            "shared_full",
            "The shared directory has no room for the attempt: %s" % said,
            "Free space or quota there, or name another directory with `shared:` in the grid file.",
            said,
        )
    ended = "" if status.exit_status is None else " (exit status %d)" % status.exit_status
    return _failure(
        "wrapper_not_started",
        "The batch job ended before koalapy's wrapper began%s%s" % (ended, ": " + said if said else "."),
        "See that the `python` of the grid file, Python 3.6 or later, starts on the compute nodes, and that they can"
        " write to %s." % directory,
        said,
    )


def _failure(code: str, message: str, advice: str, words: str) -> Dict[str, Any]:
    return dict(Failure(code, "cluster", message, advice, words=words)._asdict())


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][-_LAST:] if lines else ""
