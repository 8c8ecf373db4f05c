"""Grid Engine's failure messages, and whose move each is."""

from typing import Tuple

from koalapy_adapters.batch.classify import Verdict
from koalapy_adapters.errors import ClusterError, RequestError, TransientError

# Of every command: the qmaster does not answer, or does not let us in.
UNREACHABLE: Tuple[Verdict, ...] = (
    Verdict(
        r"commlib error|unable to (send message to|contact) qmaster|got (no connection|send error|read error)"
        r"|can't find connection|error reading answer list|failed receiving|timed? ?out",
        TransientError,
        "batch_system_unreachable",
        "Grid Engine's qmaster does not answer.",
        "It is asked again; if this goes on, see `qping -info` on the head node.",
    ),
    Verdict(
        r"SGE_ROOT|SGE_CELL|cell directory|could not get environment|unresolvable|can't (resolve|get) .*host"
        r"|neither submit nor admin host|is no(t( an?)?)? (submit|admin)|could not set up connection|services",
        ClusterError,
        "batch_system_misconfigured",
        "Grid Engine's commands cannot reach its qmaster from this host.",
        "Check that the head node is a submit host and that the login shell sets SGE_ROOT (settings.sh).",
    ),
)

# Of qsub. It verifies with -w e, which looks at the configuration and not at what is busy, down or disabled.
REFUSALS: Tuple[Verdict, ...] = (
    Verdict(
        r"unknown queue",
        RequestError,
        "no_such_queue",
        "Grid Engine has no queue of this name.",
        "Correct `queue` in the job or grid file; `qconf -sql` lists the queues.",
    ),
    Verdict(
        r"parallel environment .*does not exist",
        RequestError,
        "no_such_parallel_environment",
        "Grid Engine has no parallel environment of this name.",
        "Correct `parallel_environment` in the grid file; `qconf -spl` lists them.",
    ),
    Verdict(
        r"not allowed to run in any queue",
        RequestError,
        "account_not_permitted",
        "Grid Engine lets this user, or this project, into none of its queues that suit the job.",
        "Set or correct `account` or `queue` in the job or grid file, or ask the administrators for access.",
    ),
    Verdict(
        r"\bproject\b|access to .*denied|no permission|not permitted|denied due to (access|missing)",
        RequestError,
        "account_not_permitted",
        "Grid Engine does not know this project, or does not let this user submit to it.",
        "Correct `account` in the job or grid file (a project of `qconf -sprjl`), or ask for access.",
    ),
    Verdict(
        r"advance reservation",
        RequestError,
        "no_such_reservation",
        "Grid Engine has no advance reservation of this number for this user.",
        "Correct `reservation` in the grid file; `qrstat -u '*'` lists them.",
    ),
    Verdict(
        r"unknown resource|attribute .*is not|consumable|resource .*(invalid|not)",
        RequestError,
        "no_such_resource",
        "Grid Engine does not have one of the resources that the job asks for.",
        "Correct `exclusive`, `constraint` or `native` in the job or grid file; `qconf -sc` lists the resources.",
    ),
    Verdict(
        r"no suitable queues|cannot run in PE|pe range",
        RequestError,
        "too_large_a_request",
        "No queue can ever give what the job asks for.",
        "Ask for fewer `processors`, less `walltime` (the time at the barrier is added to it) or memory, or choose"
        " another `queue` or `parallel_environment`.",
    ),
    Verdict(
        r"limit .*(jobs|user)|too many (jobs|active)|max_u_jobs|max_jobs|only \d+ jobs are allowed",
        TransientError,
        "submit_limit",
        "Grid Engine allows this user no more jobs at a time.",
        "It is tried again when a job has ended there; the administrators set the limit.",
    ),
    Verdict(
        r"error opening|no such file",
        ClusterError,
        "script_missing",
        "qsub cannot read the batch script that koalapy wrote.",
        "Check `shared` in the grid file, and that the directory can be read on the head node.",
    ),
    Verdict(
        r"not allowed in \w*name",
        RequestError,
        "bad_value",
        "A name or value of the job has a sign that Grid Engine does not take.",
        "Correct `queue`, `account`, `constraint` or `native` in the job or grid file.",
    ),
    Verdict(
        r"use parallel environments instead|invalid option|unknown option|option .*(argument|invalid)|not a valid"
        r"|numerical value|invalid",
        RequestError,
        "bad_native",
        "qsub does not understand one of the options.",
        "Correct `native` in the job or grid file: one option of qsub in each line, such as `-l arch=lx-amd64`.",
    ),
    *UNREACHABLE,
    Verdict(
        r"denied|rejected|jsv",
        ClusterError,
        "cluster_refuses",
        "The cluster's Grid Engine refuses the job.",
        "Read its words; if they do not help, ask the administrators.",
    ),
)
