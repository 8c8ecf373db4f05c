"""What every dialect needs of text: tags, quoting, values that fit on one line of a batch script."""

import re
import shlex
from typing import List, Sequence

from koalapy_adapters.batch.protocol import BatchJob
from koalapy_adapters.errors import RequestError

_TAG = re.compile(r"k[0-9abcdefghjkmnpqrstvwxyz]{14}\Z")
_HOST = re.compile(r"[A-Za-z0-9_][\w.-]*\Z", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def is_tag(name: str) -> bool:
    """Whether a batch job of this name could be one of koalapy's, of whichever store."""
    return _TAG.match(name) is not None


def is_launcher(name: str) -> bool:
    """Whether a batch job of this name is the Launcher of a sweep, of whichever store: the upper half of the ids of
    jobs is theirs (see koalapy.model.identity), which the first character after the store's tells.
    """
    return is_tag(name) and name[6] in "ghjkmnpqrstvwxyz"


def exec_line(argv: Sequence[str]) -> str:
    """The batch script's last line: the shell becomes this command, its arguments byte for byte.

    A line break in an argument is refused, since a batch system would read what follows it as options.
    """
    return "exec " + " ".join(shlex.quote(one_line("command", word)) for word in argv) + "\n"


def one_line(what: str, value: str) -> str:
    """The value, fit for a directive of a batch script: what follows a line break would be the shell's."""
    if _CONTROL.search(value):
        raise RequestError(
            "bad_value",
            "The %s %r contains a control character." % (what, value),
            "Write the %s on one line." % what,
        )
    return value


def native_lines(native: Sequence[str]) -> List[str]:
    """The batch system's own options, one directive each, as the user wrote them."""
    return [one_line("native option", line) for line in native]


def hosts_left_out(job: BatchJob) -> List[str]:
    """The hosts to avoid, in order, once each. Raises RequestError for what is no name of a host: a batch system would
    read it as a pattern, or as more options.
    """
    for host in job.avoid:
        if not _HOST.match(host):
            message = "%r is not the name of a host." % host
            raise RequestError("bad_value", message, "Name hosts as the batch system does.")
    return sorted(set(job.avoid))


def rounded_up(amount: int, unit: int) -> int:
    """How many whole units hold the amount."""
    return -(-amount // unit)
