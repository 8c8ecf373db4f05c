"""Queue fingerprint of PBS, which changes when others' jobs begin or cease to wait for processors."""

from typing import List

from koalapy_adapters.batch.classify import check, unreadable
from koalapy_adapters.batch.pbs_errors import UNREACHABLE
from koalapy_adapters.batch.pbs_records import asked
from koalapy_adapters.batch.protocol import Argv, BatchSettings
from koalapy_adapters.errors import Result

# An array of which some subjobs wait is B, for begun.
_WAITING = 'all=$(qselect -s QB) && ours=$(qselect -s QB -u "$1") && printf "%s\\n--\\n%s\\n" "$all" "$ours"'


def queue_fingerprint_argv(cluster: BatchSettings) -> Argv:
    """The command that prints the ids of all waiting jobs, then those of this user.

    qselect takes a twentieth of the time of qstat, which sleeps for 0.2 s, but prints nothing else about a job.
    """
    return ["sh", "-c", _WAITING, "qselect", cluster.user]


def parse_queue_fingerprint(cluster: BatchSettings, result: Result) -> List[str]:
    """The sorted ids of others' waiting jobs, with koalapy jobs of others and jobs that a limit keeps waiting.

    Raises BatchError if the command failed or its answer cannot be read.
    """
    result = asked(result, "qselect")
    check(result, UNREACHABLE)
    everybodys, mark, ours = result.stdout.partition("--\n")
    if not mark:
        raise unreadable(result, "did not list what waits")
    return sorted(set(everybodys.split()) - set(ours.split()))
