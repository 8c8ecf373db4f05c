"""Failure messages of the PBS family, and whose move each is, in the words of pbs_messages.c and pbs_error_db.h."""

from typing import Tuple

from koalapy_adapters.batch.classify import Verdict
from koalapy_adapters.errors import ClusterError, RequestError, TransientError

# Exit status of a command that a hook of the cluster refused: the low byte of PBSE_HOOKERROR, 15136.
HOOKED = 32
REFUSED_BY_SITE = Verdict(
    r"hook|rejected by all possible destinations|rejected|denied|not allowed|request not permitted",
    ClusterError,
    "cluster_refuses",
    "The cluster's PBS refuses the job.",
    "Read its words; if they do not help, ask the administrators.",
)

# Of commands that no user adds options to: those that Torque's, Slurm's or an older PBS's do not know.
NOT_OURS = Verdict(
    r"(invalid|unknown) option|usage:",
    ClusterError,
    "batch_system_other",
    "This is not OpenPBS or PBS Professional 14 or later.",
    "Write `batch: torque` in the grid file if the cluster runs Torque, `batch: slurm` if it has `sbatch`.",
)

# Of every command: the server does not answer, or does not let us in.
UNREACHABLE: Tuple[Verdict, ...] = (
    Verdict(
        r"unknown host|errno=15008|could not resolve|cannot resolve|no server specified|cannot find default server",
        ClusterError,
        "batch_system_misconfigured",
        "The head node does not know the host of the PBS server.",
        "Correct `queue` if it names a server (QUEUE@SERVER), else ask the administrators about PBS_SERVER.",
    ),
    Verdict(
        r"cannot connect to server|connection refused|could not connect to (batch server|trqauthd)|server shutting down"
        r"|no free connections|connection table full|premature end|end of file|batch protocol error|time(d)? ?out"
        r"|too busy|temporarily unavailable|can not establish connection|connection to socket|problem loading"
        r"|connection reset|please retry|error (writing|reading) data|pbs server internal error|system error"
        r"|communication failure",
        TransientError,
        "batch_system_unreachable",
        "The PBS server does not answer.",
        "It is asked again; if this goes on, see `qstat -B` on the head node.",
    ),
    Verdict(
        r"(invalid|expired) credential|access from host not allowed|munge[ _](encode|decode|credential|error|daemon)"
        r"|munged|auth.munge|unable to authenticate|pbs_iff|trqauthd"
        r"|client is not allowed|pbs license|license server",
        ClusterError,
        "batch_system_misconfigured",
        "The PBS server does not let commands of this head node in.",
        "Ask the administrators: its authentication or license may be broken.",
    ),
    Verdict(
        r"could not connect to mom|mom is down|node is down|unable to communicate with the mom",
        TransientError,
        "node_unreachable",
        "The PBS server cannot reach the node on which the job runs.",
        "It is tried again; the administrators must mend the node, or delete its jobs by `qdel -W force`.",
    ),
    Verdict(
        r"unauthorized request|bad [ug]id for job|bad effective [ug]id|root user not allowed",
        ClusterError,
        "not_permitted",
        "The PBS server does not permit this to this user.",
        "Ask the administrators for access to its PBS from this head node; it runs no jobs of root.",
    ),
)

_NOT_PERMITTED = Verdict(
    r"access to queue is denied|invalid account|group .*not|not authorized|(user|group) acl",
    RequestError,
    "account_not_permitted",
    "PBS does not let this user, group or account into the queue.",
    "Correct `account` or `queue` in the job or grid file, or ask the administrators for access.",
)

# Of qsub. Words that name a cause come before words that only report that something is wrong.
REFUSALS: Tuple[Verdict, ...] = (
    _NOT_PERMITTED._replace(words=r"(user|group) acl"),  # also `Unauthorized Request MSG=group ACL is not satisfied`
    *UNREACHABLE,
    Verdict(
        r"no default queue",
        RequestError,
        "no_such_queue",
        "PBS has no default queue, and the job names none.",
        "Set `queue` in the job or grid file; `qstat -Q` on the head node lists the queues.",
    ),
    Verdict(
        r"unknown queue",
        RequestError,
        "no_such_queue",
        "PBS has no queue of this name.",
        "Correct `queue` or `reservation` in the job or grid file; `qstat -Q` on the head node lists the queues.",
    ),
    Verdict(
        r"queue is (not enabled|currently not available)|does not allow (batch|nonrerunable)|not an execution queue",
        ClusterError,
        "queue_closed",
        "The queue takes no jobs such as ours at present.",
        "Choose another `queue` in the job or grid file, or wait until the cluster enables it.",
    ),
    _NOT_PERMITTED,
    Verdict(
        r"no budget|budget .*(exceeded|exhausted|used up)|insufficient (funds|balance|credits?|allocation)",
        RequestError,
        "budget_used_up",
        "The account of the job has no budget left.",
        "Set another `account` in the job or grid file, or ask for more.",
    ),
    Verdict(
        r"maximum number of jobs|would exceed .*limit|too many submit|max_queued|max_user_queuable",
        TransientError,
        "submit_limit",
        "PBS allows this user, group or queue no more jobs at a time.",
        "It is tried again when a job has ended there; the administrators set the limit.",
    ),
    Verdict(
        r"violates queue and/or server resource limits|exceeds queue resource limits|limit exceeds allowable"
        r"|cannot (locate feasible nodes|satisfy queue)|meet minimum limit",
        RequestError,
        "too_large_a_request",
        "The job asks for more than the queue or the server ever gives.",
        "Ask for fewer `processors`, less `walltime` (the time at the barrier is added to it) or memory, or choose"
        " another `queue`.",
    ),
    Verdict(
        r"unknown resource|resource invalid in|duplicated resource|cannot be used with|cannot have .place"
        r"|illegal (attribute|value)|undefined attribute|bad time specification|node\(s\) specification"
        r"|unknown node|resource request conflicts|incompatible",
        RequestError,
        "no_such_resource",
        "PBS does not have, or does not understand, one of the resources that the job asks for.",
        "Correct `constraint`, `gpus` or `native` in the job or grid file; `pbsnodes -a` shows what nodes have.",
    ),
    Verdict(
        r"unknown reservation|too late for reservation",
        RequestError,
        "no_such_reservation",
        "PBS has no reservation of this name for this user.",
        "Correct `reservation` in the grid file; `pbs_rstat` lists them.",
    ),
    Verdict(
        r"jobscript size",
        ClusterError,
        "script_too_large",
        "The cluster allows no batch script of this size.",
        "Ask the administrators to raise jobscript_max_size.",
    ),
    Verdict(
        r"script file|no such file|cannot access script|(error|can not) (opening|open) file",
        ClusterError,
        "script_missing",
        "qsub cannot read the batch script that koalapy wrote.",
        "Check `shared` in the grid file, and that the directory can be read on the head node.",
    ),
    Verdict(
        r"illegal -|(invalid|unknown) option|usage:|name is too long|array|requires an argument|dependency"
        r"|directive error|unknown job id|nodes statement is not supported",
        RequestError,
        "bad_native",
        "qsub does not understand one of the options.",
        "Correct `native` in the job or grid file: one option of qsub in each line, such as `-l matlab=1`.",
    ),
    Verdict(
        r"failed to save job|no space left|cannot allocate memory|i/o error",
        TransientError,
        "batch_system_failing",
        "The PBS server could not take the job.",
        "It is tried again; if this goes on, ask the administrators: its disk may be full.",
    ),
    REFUSED_BY_SITE,
)
