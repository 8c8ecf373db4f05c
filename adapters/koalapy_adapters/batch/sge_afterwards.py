"""Whether anything of the site's runs after a job: an epilog, its parallel environment's stop procedure, or the like.

Where nothing does, the cancel of a job whose last process has gone ends nothing, and has its host look at once: it says
that the job has ended as soon as it has, not at its next turn, up to a second later (docs/grid-engine.md). An epilog it
would end, and Grid Engine closes a queue whose epilog failed.
"""

import re
from typing import Sequence

from koalapy_adapters.batch.protocol import Argv, Site
from koalapy_adapters.errors import Result

# sge_conf(5), queue_conf(5), sge_pe(5). Hosts may have a configuration of their own; a job's queue may be any.
_ASK = """\
jobs=$(qstat -j "$1" 2>/dev/null)
[ -n "$jobs" ] || exit 1
hosts=$(qconf -sconfl 2>/dev/null | paste -sd , -)
qconf -sconf "global${hosts:+,$hosts}" && qconf -sq '*' || exit 1
for name in $(echo "$jobs" | sed -n 's/^parallel environment: *\\([^ ]*\\) .*/\\1/p' | sort -u); do
    qconf -sp "$name" || exit 1
done
"""
_PROCEDURE = re.compile(r"^(epilog|terminate_method|stop_proc_args)[ \t]+(.*?)[ \t]*$", re.MULTILINE)
_ALWAYS_TOLD = {"epilog", "terminate_method"}


def unattended_argv(site: Site, batch_ids: Sequence[str]) -> Argv:
    return ["sh", "-c", _ASK, "qconf", ",".join(batch_ids)]


def parse_unattended(result: Result) -> bool:
    """What cannot be read may be anything."""
    told = _PROCEDURE.findall(result.stdout)
    none = all(value.lower() == "none" for _, value in told)
    return result.exit_status == 0 and none and {name for name, _ in told} >= _ALWAYS_TOLD
