"""The least that tells whether others have begun or ceased to wait for PBS's processors."""

from typing import List

from koalapy_adapters.batch.classify import check, unreadable
from koalapy_adapters.batch.pbs_errors import UNREACHABLE
from koalapy_adapters.batch.pbs_records import asked
from koalapy_adapters.batch.protocol import Argv, ClusterSettings
from koalapy_adapters.errors import Result

# An array of which some subjobs wait is B, for begun.
_WAITING = 'all=$(qselect -s QB) && ours=$(qselect -s QB -u "$1") && printf "%s\\n--\\n%s\\n" "$all" "$ours"'


def queue_fingerprint_argv(cluster: ClusterSettings) -> Argv:
    """The ids of all that wait, then of this user's. qselect takes a twentieth of the time of qstat, which sleeps for
    0.2 s, but tells nothing more of a job.
    """
    return ["sh", "-c", _WAITING, "qselect", cluster.user]


def parse_queue_fingerprint(cluster: ClusterSettings, result: Result) -> List[str]:
    """Others' koalapy jobs are among them, and jobs that a limit keeps waiting; this user's own jobs are not."""
    result = asked(result, "qselect")
    check(result, UNREACHABLE)
    everybodys, mark, ours = result.stdout.partition("--\n")
    if not mark:
        raise unreadable(result, "did not list what waits")
    return sorted(set(everybodys.split()) - set(ours.split()))
