"""Slurm's failure messages, and whose move each is."""

from typing import Tuple

from koalapy_adapters.batch.classify import Verdict
from koalapy_adapters.errors import ClusterError, RequestError, TransientError

# Of every command: the controller does not answer, or does not let us in. slurm_errno.h has the words.
UNREACHABLE: Tuple[Verdict, ...] = (
    Verdict(
        r"slurm_persist_conn_open|open_persist_conn|problem talking to the database|unable to contact.*slurmdbd",
        TransientError,
        "accounting_unreachable",
        "Slurm's accounting does not answer.",
        "It is asked again; jobs run on without it. If this goes on, ask the administrators about slurmdbd.",
    ),
    Verdict(
        r"unable to contact slurm controller|socket timed out|connection refused|slurm controller not responding"
        r"|zero bytes were transmitted|backup controller in standby|temporarily unable to accept"
        r"|communication connection failure|message (send|receive) failure|resource temporarily unavailable"
        r"|transport endpoint|slurm system busy|unexpected message received|connection timed out|quiesce timeout"
        r"|connection reset|rate limit exceeded|no route to host",
        TransientError,
        "batch_system_unreachable",
        "Slurm's controller does not answer.",
        "It is asked again; if this goes on, see `scontrol ping` on the head node.",
    ),
    Verdict(
        r"protocol authentication error|munge (encode|decode|credential|error|daemon)|munged|auth.munge"
        r"|incompatible (protocol )?version|invalid authentication",
        ClusterError,
        "batch_system_misconfigured",
        "Slurm's commands cannot reach its controller.",
        "Ask the administrators: munge or the Slurm version of the head node may be wrong.",
    ),
)

# Of sbatch. Words that name a cause come before words that only report that the submission failed.
REFUSALS: Tuple[Verdict, ...] = (
    *UNREACHABLE,
    Verdict(
        r"no partition specified",
        RequestError,
        "no_such_queue",
        "The cluster has no default partition, and the job names none.",
        "Set `queue` in the job or grid file; `sinfo` on the head node lists the partitions.",
    ),
    Verdict(
        r"invalid partition",
        RequestError,
        "no_such_queue",
        "Slurm has no partition of this name.",
        "Correct `queue` in the job or grid file; `sinfo` on the head node lists the partitions.",
    ),
    Verdict(
        r"(specify|needs?|requires?|must (have|give|name|set|use)) (an? |the |your )?(valid )?(account|project)\b",
        RequestError,
        "no_account",
        "The cluster wants an account, and the job names none.",
        "Set `account` in the job or grid file; `sacctmgr show user $USER withassoc` lists those that you may use.",
    ),
    Verdict(
        r"invalid account|(account|group).* not permitted|not permitted to use this (account|partition)",
        RequestError,
        "account_not_permitted",
        "Slurm does not let this account, or this user, into the partition.",
        "Correct `account` or `queue` in the job or grid file, or ask the administrators for access.",
    ),
    Verdict(
        r"invalid qos|qos not permitted"
        r"|(specify|needs?|requires?|must (have|give|name|set|use)) (an? |the |your )?(valid )?qos\b",
        RequestError,
        "no_such_qos",
        "Slurm needs a quality of service that it grants to this account and partition.",
        "Set or correct `qos` in the job or grid file; `sacctmgr show assoc user=$USER format=account,partition,qos`"
        " lists those that you may use.",
    ),
    Verdict(
        r"maxjobcount",
        TransientError,
        "submit_limit",
        "Slurm holds as many jobs as it can.",
        "It is tried again when a job has ended there; the administrators set the limit (MaxJobCount).",
    ),
    Verdict(
        r"(assoc|qos|acct|account)\w*submitjob\w*limit|maxsubmitjobs|submit limit reached",
        TransientError,
        "submit_limit",
        "Slurm allows this user or account no more jobs in its queues at a time.",
        "It is tried again when a job has ended there; the administrators set the limit.",
    ),
    Verdict(
        r"licenses (are )?(currently )?(not |un)available",
        TransientError,
        "licenses_unavailable",
        "The licenses that the job asks for are all in use.",
        "It is tried again.",
    ),
    Verdict(
        r"i/o error|internal error|no space left|cannot allocate memory",
        TransientError,
        "batch_system_failing",
        "Slurm's controller could not take the job.",
        "It is tried again; if this goes on, ask the administrators: its disk may be full.",
    ),
    Verdict(
        r"requested time limit is invalid|invalid time limit|max\w*wall\w*limit",
        RequestError,
        "walltime_too_long",
        "The walltime exceeds what the partition or its quality of service allows.",
        "Lower `walltime`, or choose another `queue`; the time at the barrier is added to the walltime.",
    ),
    Verdict(
        r"violates accounting/qos policy|qos usage threshold",
        RequestError,
        "accounting_limit",
        "The job exceeds a limit that the cluster has set for this account or quality of service.",
        "Ask for fewer processors or less walltime, or choose another `account` or `qos`.",
    ),
    Verdict(
        r"memory specification can not be satisfied|memory required by task is not available|invalid job memory"
        r"|memory limit",
        RequestError,
        "memory_too_large",
        "No node of the partition has as much memory as the job asks for on one.",
        "Lower `memory_per_processor` or `processors_per_node`, or choose another `queue`.",
    ),
    Verdict(
        r"more processors requested than permitted|(node|task) count specification invalid|too many tasks"
        r"|requested node configuration is not available|cpu count (per node )?(specification )?(invalid|can not be)",
        RequestError,
        "too_many_processors",
        "The partition can never give this many processors in this shape.",
        "Ask for fewer `processors` or `processors_per_node`, or choose another `queue`.",
    ),
    Verdict(
        r"invalid (feature|constraint)",
        RequestError,
        "no_such_constraint",
        "No node of the partition has the features of `constraint`.",
        "Correct `constraint` in the job or grid file; `sinfo -o %f` lists the features.",
    ),
    Verdict(
        r"requested reservation|reservation (is )?(invalid|required)|invalid reservation|requires? reservation",
        RequestError,
        "no_such_reservation",
        "Slurm has no reservation of this name for this user and partition, or the partition requires one.",
        "Correct `reservation` in the grid file; `scontrol show reservation` lists them.",
    ),
    Verdict(
        r"generic resource|invalid gres|invalid license|invalid (generic )?tres|burst buffer"
        r"|\bgpus? (request|count|specification|binding)|\bgpus?-?per|\binvalid gpu|\b(number|count) of gpus",
        RequestError,
        "no_such_resource",
        "The partition has no such GPUs, generic resources or licenses.",
        "Lower `gpus` or correct `native`, or choose another `queue`.",
    ),
    Verdict(
        r"unrecognized option|invalid directive|invalid option|requires an argument|invalid --?[a-z]"
        r"|invalid \S+ specification|ambiguous|invalid node name|nodes not in this partition|job dependency problem"
        r"|invalid wckey|invalid job array",
        RequestError,
        "bad_native",
        "sbatch does not understand one of the options.",
        "Correct `native` in the job or grid file: one option of sbatch in each line, such as `--licenses=matlab`.",
    ),
    Verdict(
        r"other parameter too long",
        RequestError,
        "value_too_long",
        "A path or another value of the job is too long for Slurm.",
        "Shorten what the job file gives Slurm, or `shared` in the grid file.",
    ),
    Verdict(
        r"partition in down state|partition (configuration )?not available|submissions (are )?disabled"
        r"|operation is presently disabled",
        ClusterError,
        "queue_closed",
        "The partition, or the whole of Slurm, takes no jobs at present.",
        "Choose another `queue` in the job or grid file, or wait until the administrators open it.",
    ),
    Verdict(
        r"node.*(down|drained)|job.*access.*denied|access/permission denied|invalid user id|unspecified error"
        r"|not allowed from this host",
        ClusterError,
        "cluster_refuses",
        "The cluster's Slurm refuses the job.",
        "Read its words; if they do not help, ask the administrators.",
    ),
    Verdict(
        r"unable to open file|no such file|does not look like a batch script|batch script is empty",
        ClusterError,
        "script_missing",
        "sbatch cannot read the batch script that koalapy wrote.",
        "Check that `shared` in the grid file is a directory that the head node and the nodes have in common.",
    ),
)
