"""In which parallel environment the batch job of a Launcher is best: on one host, and with no slaves to control.

Where the environment controls slaves, the end of each of its jobs is told twice, though there be no other host, and the
second time a second later (docs/grid-engine.md): a second for which the node is nobody's. What is asked is for a KCM to
run, one command after the other; nothing is submitted.
"""

import re
from typing import Callable, Dict, Generator, List, NamedTuple, Optional, Set, Tuple

from koalapy_adapters.batch import sge_drmaa, sge_quotas
from koalapy_adapters.batch.classify import check, failure
from koalapy_adapters.batch.protocol import Argv, BatchJob, Chosen, ClusterSettings
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
    """As sge_pe(5) has it. `procedures`: the cluster has something run before and after each of its jobs."""

    name: str
    slots: int
    rule: str
    controls: bool
    procedures: bool


def choice(
    cluster: ClusterSettings, job: BatchJob, script: Callable[[BatchJob], str]
) -> Generator[Argv, Result, Optional[Chosen]]:
    """Yields commands, is sent what each said, and returns the best, which may be the job's own; None if none will do.

    It must be offered wherever the job's own is, hold as many jobs, and take this one by Grid Engine's own word, which
    knows who is let in. Raises BatchError where Grid Engine does not answer.
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
    """Those that would do as they are configured, the best first. The job's own is as good as others of its kind."""
    own = [each.slots for each in known if each.name == job.parallel_environment]
    least = min([total, *own])
    fit = [each for each in known if each.rule in ("$pe_slots", str(job.processors)) and each.slots >= least]

    def demerits(each: Environment) -> Tuple[bool, bool, bool, bool, str]:
        unusual = not _USUAL.search(each.name)
        return each.controls, each.name != job.parallel_environment, each.procedures, unusual, each.name

    return sorted(fit, key=demerits)


def _roomy(cluster: ClusterSettings, job: BatchJob, known: List[Environment], quotas: Result) -> List[Environment]:
    """Those that quotas leave as much room as the job's own, at least."""

    def left(environment: Optional[str]) -> float:
        there = cluster._replace(queue=job.queue, parallel_environment=environment)
        slots = sge_quotas.room(there, quotas).slots
        return float("inf") if slots is None else slots

    least = left(job.parallel_environment)
    return [each for each in known if left(each.name) >= least]


def _environments(result: Result) -> List[Environment]:
    """None where the cluster has none."""
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


def _select(cluster: ClusterSettings, job: BatchJob, environment: str) -> Argv:
    return _queue(["qselect", "-U", cluster.user, "-pe", environment], job)


def _queue(argv: Argv, job: BatchJob) -> Argv:
    return argv + (["-q", job.queue] if job.queue else [])


def _selected(result: Result) -> Set[str]:
    """Queue instances; qselect has no other way to say "none" than to fail."""
    _unless_unanswered(result)
    return set(result.stdout.split()) if result.exit_status == 0 else set()


def _verify(job: BatchJob, environment: str, script: Callable[[BatchJob], str]) -> Argv:
    """Of the job as it would be submitted, but for its name and what it runs."""
    trial = job._replace(tag=_NOBODYS, command=["true"], avoid=[], parallel_environment=environment)
    return ["sh", "-c", _VERIFY, "qsub", script(trial), *sge_drmaa.OF_COMMANDS]


def _takes(result: Result) -> bool:
    _unless_unanswered(result)
    return result.exit_status == 0


def _unless_unanswered(result: Result) -> None:
    """Any other failure is the answer."""
    error = failure(result, UNREACHABLE) if result.exit_status != 0 else None
    if isinstance(error, TransientError):
        raise error
