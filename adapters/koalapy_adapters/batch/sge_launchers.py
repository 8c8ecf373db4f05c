"""The choice of the parallel environment for a Launcher's batch job: best is one host, and no slaves to control.

If the environment controls slaves, the end of each of its jobs is reported to the qmaster twice, even without another
host. The second report comes a second later (docs/grid-engine.md), and nobody can use the node meanwhile. The queries
are for a KCM to run, one command after the other; they submit nothing.
"""

import re
from typing import Callable, Dict, Generator, List, NamedTuple, Optional, Set, Tuple

from koalapy_adapters.batch import sge_drmaa, sge_quotas
from koalapy_adapters.batch.classify import check, failure
from koalapy_adapters.batch.protocol import Argv, BatchJob, BatchSettings, Chosen
from koalapy_adapters.batch.sge_errors import UNREACHABLE
from koalapy_adapters.errors import Result, TransientError

_NOBODYS = "k" + 14 * "0"  # a tag that no job has
_EVERY = """\
names=$(qconf -spl 2>&1) || { echo "$names" >&2; exit 1; }
for name in $names; do qconf -sp "$name" || true; done
"""
# qsub(1), -w v: it looks as -w e does, at the configuration alone, and submits nothing. The last option counts.
_VERIFY = 'script=$1; shift; printf %s "$script" | qsub "$@" -w v'
# What a cluster calls an environment that is meant for any job on one host. Others may have a purpose of their own.
_USUAL = re.compile(r"smp|omp|thread|shm|shared|single|onenode|pe_slots", re.IGNORECASE)
_NO_PROCEDURE = ("", "NONE", "/bin/true", "true", "/usr/bin/true")


class Environment(NamedTuple):
    """A parallel environment as in sge_pe(5). `procedures`: the cluster runs a command before or after each of its
    jobs.
    """

    name: str
    slots: int
    rule: str
    controls: bool
    procedures: bool


def choice(
    cluster: BatchSettings, job: BatchJob, script: Callable[[BatchJob], str]
) -> Generator[Argv, Result, Optional[Chosen]]:
    """Yield commands, be sent each Result, and return the best environment, which may be the job's own.

    The environment must be offered wherever the job's own is, and hold as many jobs. Grid Engine must accept this job
    there, because only Grid Engine knows who is admitted. Returns None if none will do. Raises BatchError if Grid
    Engine does not answer.
    """
    known = _environments((yield ["sh", "-c", _EVERY, "qconf"]))
    total = _total((yield _queue(["qstat", "-g", "c", "-xml"], job)))
    roomy = _roomy(cluster, job, known, (yield sge_quotas.quotas_argv(cluster)))
    own = job.parallel_environment
    present = _selected((yield _select(cluster, job, own))) if own else set()
    for each in _candidates(roomy, job, total):
        if each.name != own:
            offered = _selected((yield _select(cluster, job, each.name)))
            if not offered or not present <= offered or not _takes((yield _verify(job, each.name, script))):
                continue
        return Chosen(each.name, each.controls)
    return None


def _candidates(known: List[Environment], job: BatchJob, total: int) -> List[Environment]:
    """The environments that are suitable as configured, the best first.

    The job's own precedes others that are like it in controlling slaves or not.
    """
    own = [each.slots for each in known if each.name == job.parallel_environment]
    least = min([total, *own])
    fit = [each for each in known if each.rule in ("$pe_slots", str(job.processors)) and each.slots >= least]

    def demerits(each: Environment) -> Tuple[bool, bool, bool, bool, str]:
        unusual = not _USUAL.search(each.name)
        return each.controls, each.name != job.parallel_environment, each.procedures, unusual, each.name

    return sorted(fit, key=demerits)


def _roomy(cluster: BatchSettings, job: BatchJob, known: List[Environment], quotas: Result) -> List[Environment]:
    """The environments to which the quotas leave at least as many slots as to the job's own."""

    def left(environment: Optional[str]) -> float:
        there = cluster._replace(queue=job.queue, parallel_environment=environment)
        slots = sge_quotas.room(there, quotas).slots
        return float("inf") if slots is None else slots

    least = left(job.parallel_environment)
    return [each for each in known if left(each.name) >= least]


def _environments(result: Result) -> List[Environment]:
    """The parallel environments of the cluster; empty if it has none. Raises BatchError if qconf failed."""
    if result.exit_status != 0 and "no parallel environment" in result.words:
        return []
    check(result, UNREACHABLE)
    described = re.split(r"^(?=pe_name )", result.stdout, flags=re.MULTILINE)
    fields = [dict(re.findall(r"^(\w+) +(.*?) *$", each, re.MULTILINE)) for each in described]
    return [_environment(each) for each in fields if "pe_name" in each and each.get("slots", "").isdigit()]


def _environment(fields: Dict[str, str]) -> Environment:
    procedures = [fields.get(key, "") for key in ("start_proc_args", "stop_proc_args")]
    return Environment(
        name=fields["pe_name"],
        slots=int(fields["slots"]),
        rule=fields.get("allocation_rule", ""),
        controls=fields.get("control_slaves", "").upper() == "TRUE",
        procedures=not all(each in _NO_PROCEDURE for each in procedures),
    )


def _total(result: Result) -> int:
    """The slots of the job's queues, whoever may use them."""
    check(result, UNREACHABLE)
    return sum(map(int, re.findall(r"<total>(\d+)</total>", result.stdout)))


def _select(cluster: BatchSettings, job: BatchJob, environment: str) -> Argv:
    return _queue(["qselect", "-U", cluster.user, "-pe", environment], job)


def _queue(argv: Argv, job: BatchJob) -> Argv:
    return argv + (["-q", job.queue] if job.queue else [])


def _selected(result: Result) -> Set[str]:
    """The queue instances that qselect printed. It has no other way to select none than to fail."""
    _unless_unanswered(result)
    return set(result.stdout.split()) if result.exit_status == 0 else set()


def _verify(job: BatchJob, environment: str, script: Callable[[BatchJob], str]) -> Argv:
    """The command that verifies the job as it would be submitted, except for its name, command and hosts to avoid."""
    trial = job._replace(tag=_NOBODYS, command=["true"], avoid=[], parallel_environment=environment)
    return ["sh", "-c", _VERIFY, "qsub", script(trial), *sge_drmaa.OF_COMMANDS]


def _takes(result: Result) -> bool:
    _unless_unanswered(result)
    return result.exit_status == 0


def _unless_unanswered(result: Result) -> None:
    """Raise TransientError if Grid Engine did not answer. Any other failure is an answer."""
    error = failure(result, UNREACHABLE) if result.exit_status != 0 else None
    if isinstance(error, TransientError):
        raise error
