"""The words of batch systems that refuse, and whose move each refusal is, whatever words are the user's own."""

from koalapy_adapters.batch import pbs, sge, slurm, torque
from koalapy_adapters.errors import BatchError, Result

BATCH_SYSTEMS = {"slurm": slurm, "sge": sge, "pbs": pbs, "torque": torque}
FAILED = "\nsbatch: error: Batch job submission failed: "
POLICY = FAILED + "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"
UNSPECIFIED = FAILED + "Unspecified error"
NOT_RUN = "Unable to run job: "

SLURM = [
    (FAILED + "I/O error writing script/environment to file", "transient", "batch_system_failing"),
    (
        f"sbatch: error: spank: x11.so: Plugin file not found{FAILED}I/O error writing script/environment to file",
        "transient",
        "batch_system_failing",
    ),
    (FAILED + "Pathname of a file, directory or other parameter too long", "request", "value_too_long"),
    (FAILED + "No partition specified or system default partition", "request", "no_such_queue"),
    (FAILED + "Partition in DOWN state", "cluster", "queue_closed"),
    (FAILED + "Required partition not available (inactive or drain)", "cluster", "queue_closed"),
    (FAILED + "System submissions disabled", "cluster", "queue_closed"),
    (FAILED + "Required node not available (down, drained or reserved)", "cluster", "cluster_refuses"),
    (FAILED + "Requested account has breached requested QOS usage threshold", "request", "accounting_limit"),
    (FAILED + "Unexpected message received", "transient", "batch_system_unreachable"),
    (FAILED + "Rate limit exceeded, please retry", "transient", "batch_system_unreachable"),
    (FAILED + "Connection timed out reading", "transient", "batch_system_unreachable"),
    (FAILED + "Slurmctld internal error", "transient", "batch_system_failing"),
    (FAILED + "Requested licenses currently unavailable", "transient", "licenses_unavailable"),
    (FAILED + "MaxJobCount limit reached", "transient", "submit_limit"),
    (FAILED + "Job dependency problem", "request", "bad_native"),
    (FAILED + "Requested nodes not in this partition", "request", "bad_native"),
    (FAILED + "Task count specification invalid", "request", "too_many_processors"),
    (FAILED + "Burst Buffer request invalid", "request", "no_such_resource"),
    (POLICY, "request", "accounting_limit"),
    ("sbatch: error: QOSMaxWallDurationPerJobLimit" + POLICY, "request", "walltime_too_long"),
    ("sbatch: error: AssocMaxSubmitJobLimit" + POLICY, "transient", "submit_limit"),
    ("sbatch: error: QOSMaxSubmitJobPerUserLimit" + POLICY, "transient", "submit_limit"),
    (
        f"sbatch: error: CPU count per node can not be satisfied{FAILED}Requested node configuration is not available",
        "request",
        "too_many_processors",
    ),
    ("sbatch: error: Please specify an account for partition gpu" + UNSPECIFIED, "request", "no_account"),
    (
        "sbatch: error: Every job here needs an account: use --account=physics or chem" + UNSPECIFIED,
        "request",
        "no_account",
    ),
    ("sbatch: error: You must specify a QOS" + UNSPECIFIED, "request", "no_such_qos"),
    (
        "sbatch: error: invalid account or account/partition combination specified" + UNSPECIFIED,
        "request",
        "account_not_permitted",
    ),
    (
        "[TACC]: Job submission is not allowed from this host. Please submit\n"
        "[TACC]: through one of the available login resources.",
        "cluster",
        "cluster_refuses",
    ),
    (FAILED + "Requested reservation is invalid", "request", "no_such_reservation"),
    # words of the user's own
    ("sbatch: error: Unable to open file /scratch/gpu/.koala/x/script", "cluster", "script_missing"),
    (UNSPECIFIED + "\nsee https://wiki.example/gpu", "cluster", "cluster_refuses"),
    ("sbatch: error: Unable to open file /home/munge/.koala/x/script", "cluster", "script_missing"),
    ("sbatch: error: Unable to open file '/home/invalid partition/x'", "cluster", "script_missing"),
    ("sbatch: error: the moon is in the wrong place", "cluster", "unknown_words"),
    ("sbatch: error: auth/munge: Munge encode failed", "cluster", "batch_system_misconfigured"),
]
PBS = [
    (
        "qsub: submit error (Unauthorized Request  MSG=group ACL is not satisfied: user ann@login.example, queue"
        " training)",
        "request",
        "account_not_permitted",
    ),
    (
        "qsub: submit error (Bad UID for job execution MSG=ruserok failed validating u1/u1 from n1.example)",
        "cluster",
        "not_permitted",
    ),
    (
        "qsub: submit error (Pbs Server is currently too busy to service this request. Please retry this request.)",
        "transient",
        "batch_system_unreachable",
    ),
    (
        "qsub: submit error (No default queue specified MSG=requested queue not found)",
        "request",
        "no_such_queue",
    ),
    ("qsub: Cannot be used with select or place: nodes", "request", "no_such_resource"),
    ("qsub: Nodes statement is not supported, use select statement.", "request", "bad_native"),
    ("qsub: Job rejected by all possible destinations", "cluster", "cluster_refuses"),
    ("qsub: Job violates queue and/or server resource limits", "request", "too_large_a_request"),
    (
        "qsub: submit error (Job exceeds queue resource limits MSG=cannot locate feasible nodes (nodes file is empty,"
        " all systems are busy, or no nodes present))",
        "request",
        "too_large_a_request",
    ),
    ("qsub: Account x01 has no budget left", "request", "budget_used_up"),
    ("qsub: request rejected as filter could not be applied", "cluster", "cluster_refuses"),
    ("qsub: directive error: -l selct=1", "request", "bad_native"),
    ("qsub: Maximum number of jobs for user ann already in queue workq", "transient", "submit_limit"),
    ("qsub: would exceed queue's per-user limit", "transient", "submit_limit"),
    ("qsub: illegal -N value", "request", "bad_native"),
    ("qsub: Unknown Job Id", "request", "bad_native"),
    ("qsub: Cannot send environment with the job", "cluster", "unknown_words"),
    ("qsub: Failed to save job/resv, refer server logs for details", "transient", "batch_system_failing"),
    ("qsub: Unknown Host.", "cluster", "batch_system_misconfigured"),
    ("qsub: cannot connect to server pbs1 (errno=111)", "transient", "batch_system_unreachable"),
    ("qsub: script file '/home/munge/array/x' cannot be loaded", "cluster", "script_missing"),
    ("the moon is in the wrong place", "cluster", "unknown_words"),
]
SGE = [
    (
        NOT_RUN + "warning: ann's job is not allowed to run in any queue\nerror: no suitable queues\nExiting.",
        "request",
        "account_not_permitted",
    ),
    (NOT_RUN + "error: no suitable queues.\nExiting.", "request", "too_large_a_request"),
    (
        NOT_RUN + 'denied: host "node7.example" is no submit host.\nExiting.',
        "cluster",
        "batch_system_misconfigured",
    ),
    (NOT_RUN + 'denied: host "nodexxx" is not submit host.\nExiting.', "cluster", "batch_system_misconfigured"),
    (
        NOT_RUN + '"job" denied: use parallel environments instead of requesting slots explicitly.\nExiting.',
        "request",
        "bad_native",
    ),
    (NOT_RUN + "Backslash ('\\\\') not allowed in objectname.\nExiting.", "request", "bad_value"),
    (
        NOT_RUN + 'Job was rejected because job requests unknown queue "default".\nExiting.',
        "request",
        "no_such_queue",
    ),
    (NOT_RUN + 'job rejected: the project "lab7" does not exist.\nExiting.', "request", "account_not_permitted"),
    (NOT_RUN + "JSV stderr: perl: warning: Setting locale failed.\nExiting.", "cluster", "cluster_refuses"),
    (
        NOT_RUN + 'unable to send message to qmaster using port 6444 on host "chione": got send timeout.\nExiting.',
        "transient",
        "batch_system_unreachable",
    ),
    (
        "error: commlib error: got select error (Connection refused)\nUnable to run job: unable to send message to"
        ' qmaster using port 6444 on host "gamma": got send error.\nExiting.',
        "transient",
        "batch_system_unreachable",
    ),
    (
        NOT_RUN + "job rejected: only 200 jobs are allowed per user (current job count: 200).\nExiting.",
        "transient",
        "submit_limit",
    ),
    (
        NOT_RUN + 'got no response from JSV script "/opt/sge/util/jsv.sh".\nExiting.',
        "cluster",
        "cluster_refuses",
    ),
    (NOT_RUN + "error opening /projects/lab: No such file or directory\nExiting.", "cluster", "script_missing"),
    ("the moon is in the wrong place", "cluster", "unknown_words"),
]
ROWS = [("slurm", *row) for row in SLURM] + [("pbs", *row) for row in PBS] + [("sge", *row) for row in SGE]


def refusal(batch: str, words: str) -> BatchError:
    """The error that the dialect makes of a submit command that printed these words."""
    try:
        BATCH_SYSTEMS[batch].parse_submit(Result(["qsub", "/shared/munge/gpu/script"], 1, "", words + "\n"))
    except BatchError as error:
        return error
    raise AssertionError(words)
