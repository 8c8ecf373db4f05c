"""Text functions that every dialect needs: tags, quoting, and values that fit on one line of a batch script."""

import re
import shlex
from typing import Iterable, List, Optional, Sequence

from koalapy_adapters.batch.protocol import BatchJob
from koalapy_adapters.errors import RequestError

_TAG = re.compile(r"k[0-9abcdefghjkmnpqrstvwxyz]{14}\Z")
_HOST = re.compile(r"[A-Za-z0-9_][\w.-]*\Z", re.ASCII)
_CLOCK = re.compile(r"(?:([0-9]{1,9})-)?([0-9]{1,9}(?::[0-9]{1,9}){0,3})\Z")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def is_tag(name: str) -> bool:
    """Return whether a batch job of this name could be one of koalapy's, of whichever store."""
    return _TAG.match(name) is not None


def is_launcher(name: str) -> bool:
    """Return whether a batch job of this name is a pilot in which a sweep's Launcher runs, of whichever store.

    Such pilots have a quarter of the ids of jobs (see koalapy.model.identity). The first character after the store's
    shows the quarter; those above are of pilots that hold nodes for other owners.
    """
    return is_tag(name) and name[6] in "ghjkmnpq"


def exec_line(argv: Sequence[str]) -> str:
    """The last line of a batch script, which replaces the shell by this command with its arguments byte for byte.

    Raises RequestError if an argument contains a control character. A batch system would read what follows a line break
    as options.
    """
    return "exec " + " ".join(shlex.quote(one_line("command", word)) for word in argv) + "\n"


def one_line(what: str, value: str) -> str:
    """Return `value` if it fits on one line of a batch script. `what` names it in the error.

    Raises RequestError if it contains a control character: the shell would execute what follows a line break.
    """
    if _CONTROL.search(value):
        raise RequestError(
            "bad_value",
            "The %s %r contains a control character." % (what, value),
            "Write the %s on one line." % what,
        )
    return value


def native_lines(native: Sequence[str]) -> List[str]:
    """The batch system's own options, one directive each, as the user wrote them. Raises RequestError if one contains a
    control character.
    """
    return [one_line("native option", line) for line in native]


def hosts_left_out(job: BatchJob) -> List[str]:
    """The hosts to avoid, sorted, each once. Raises RequestError if one is not a host name: a batch system would read
    it as a pattern, or as more options.
    """
    for host in job.avoid:
        if not _HOST.match(host):
            message = "%r is not the name of a host." % host
            raise RequestError("bad_value", message, "Name hosts as the batch system does.")
    return sorted(set(job.avoid))


def seconds_of(text: str) -> Optional[int]:
    """The seconds in `[days-]hours:minutes:seconds`, `days:hours:minutes:seconds`, `minutes:seconds` or `seconds`.

    None for anything else, such as UNLIMITED, infinity and NONE.
    """
    match = _CLOCK.match(text.strip())
    if match is None:
        return None
    parts = [int(part) for part in reversed(match.group(2).split(":"))]
    return int(match.group(1) or 0) * 86400 + sum(each * unit for each, unit in zip(parts, (1, 60, 3600, 86400)))


def longest(limits: Iterable[Optional[int]]) -> Optional[int]:
    """The longest of these limits of walltimes, in seconds; None if there is none, or one of them is unknown."""
    found = list(limits)
    known = [each for each in found if each is not None]
    return max(known) if known and len(known) == len(found) else None


def rounded_up(amount: int, unit: int) -> int:
    """The number of whole units that hold the amount."""
    return -(-amount // unit)
