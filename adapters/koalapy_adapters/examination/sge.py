"""Grid Engine's queues, projects and parallel environments, and its answer to a job: qconf(1), qstat(1)."""

import re
import xml.etree.ElementTree as xml
from typing import Any, Dict, List, Optional

from koalapy_adapters.batch import sge
from koalapy_adapters.batch.classify import check, unreadable
from koalapy_adapters.batch.protocol import Argv, BatchSettings
from koalapy_adapters.batch.sge_errors import REFUSALS, UNREACHABLE
from koalapy_adapters.batch.text import seconds_of
from koalapy_adapters.errors import Result
from koalapy_adapters.examination.protocol import (
    Environment,
    Lowest,
    Misnamed,
    Queue,
    Run,
    chosen,
    from_stdin,
    nearest,
    smallest_job,
)

COMMANDS = ["qconf"]

_VERIFY = ["qsub", "-w", "v"]
_ONE_HOST = "$pe_slots"  # the allocation rule that keeps a job on one node
_CLOSING = {
    "d": "disabled",
    "D": "disabled by its calendar",
    "s": "suspended",
    "S": "suspended by another queue",
    "E": "in error",
    "u": "on a host that does not answer",
    "C": "suspended by its calendar",
    "o": "orphaned",
    "c": "configured ambiguously",
}


def queues(run: Run, cluster: BatchSettings) -> List[Queue]:
    """The queues. All count as default: a job without a queue may go to any."""
    listed = run(["qconf", "-sql"])
    check(listed, UNREACHABLE)
    states = run(["qstat", "-f", "-xml"])
    check(states, UNREACHABLE)
    instances = parse_instances(states)
    return [_queue(run, name, instances) for name in listed.stdout.split()]


def environments(run: Run) -> List[Environment]:
    """All parallel environments; empty if the cluster has none."""
    listed = run(["qconf", "-spl"])
    if listed.exit_status != 0 and "no parallel environment" in listed.words:
        return []
    check(listed, UNREACHABLE)
    return [parse_environment(run(["qconf", "-sp", name])) for name in listed.stdout.split()]


def parse_environment(result: Result) -> Environment:
    check(result, UNREACHABLE)
    fields = _fields(result)
    return Environment(
        fields.get("pe_name", ""),
        fields.get("control_slaves", "").upper() == "TRUE",
        fields.get("allocation_rule", ""),
        int(fields.get("slots", "0")),
    )


def accounts(run: Run, cluster: BatchSettings) -> List[str]:
    """The names of the projects."""
    result = run(["qconf", "-sprjl"])
    return result.stdout.split() if result.exit_status == 0 else []


def try_access(run: Run, cluster: BatchSettings) -> Optional[str]:
    """`qsub -w v` verifies, and submits nothing. First the parallel environment, which it does not look into."""
    if cluster.parallel_environment:
        check_environment(cluster, environments(run), chosen(queues(run, cluster), cluster))
    result = run(access_argv(cluster))._replace(argv=_VERIFY)
    check(result, REFUSALS)
    return result.words


def access_argv(cluster: BatchSettings) -> Argv:
    """The command that has qsub read a script such as a job's, because a directive is not read as an argument is."""
    return from_stdin(_VERIFY, sge.script(smallest_job(cluster)._replace(qos=None)))


def check_environment(cluster: BatchSettings, known: List[Environment], queues: List[Queue]) -> None:
    """Raises Misnamed for an environment that does not exist, starts no processes, or is not offered by the queue."""
    found = [each for each in known if each.name == cluster.parallel_environment]
    usable = [each.name for each in known if _serves(each) and _is_offered(each.name, queues)]
    value = nearest(cluster.parallel_environment, usable, usable)
    others = "; of those that will do there %s %s" % ("is" if len(usable) == 1 else "are", ", ".join(usable))
    advice = "Correct `parallel_environment`%s." % (
        others if usable else "; ask the administrators for one with control_slaves"
    )
    if not found:
        message = "Grid Engine has no parallel environment named %s." % cluster.parallel_environment
        raise Misnamed("no_such_parallel_environment", message, advice, value)
    if not _serves(found[0]):
        message = "The parallel environment %s has no control_slaves: no process can be started on other nodes."
        raise Misnamed("no_control_slaves", message % found[0].name, advice, value)
    if not _is_offered(found[0].name, queues):
        message = "The queue %s does not offer the parallel environment %s." % (cluster.queue, found[0].name)
        raise Misnamed("parallel_environment_not_in_queue", message, advice, value)


def lowest(run: Run, cluster: BatchSettings) -> Optional[Lowest]:
    """Return None: no user can see how the administrator weighs priorities."""
    return None


def span(run: Run, cluster: BatchSettings) -> Optional[Dict[str, Any]]:
    """By the allocation rule of sge_pe(5): a filled node and one processor more lie on two nodes."""
    found = [each for each in environments(run) if each.name == cluster.parallel_environment]
    queues_ = chosen(queues(run, cluster), cluster)
    if not found or sum(queue.nodes or 0 for queue in queues_) < 2:
        return None
    rule = found[0].rule
    if rule.isdigit():
        return {"processors": 2 * int(rule)}
    if rule == "$round_robin":
        return {"processors": 2}
    if rule == "$fill_up":
        return {"processors": 1 + max(_largest(run, queue.name) for queue in queues_)}
    return None


def parse_instances(result: Result) -> Dict[str, List[Any]]:
    """[host, slots, state letters] of each instance, by queue. Raises BatchError for XML that cannot be read."""
    try:
        tree = xml.fromstring(result.stdout)
    except xml.ParseError as error:
        raise unreadable(result, "printed XML that cannot be read (%s)" % error) from error
    found: Dict[str, List[Any]] = {}
    for instance in tree.iter("Queue-List"):
        queue, _, host = (instance.findtext("name") or "").partition("@")
        slots = int(instance.findtext("slots_total") or 0)
        found.setdefault(queue, []).append([host, slots, instance.findtext("state") or ""])
    return found


def _queue(run: Run, name: str, instances: Dict[str, List[Any]]) -> Queue:
    shown = run(["qconf", "-sq", name])
    check(shown, UNREACHABLE)
    return parse_queue(shown, instances.get(name, []))


def parse_queue(shown: Result, own: List[Any]) -> Queue:
    """The queue of `qconf -sq` and its instances."""
    fields = _fields(shown)
    return Queue(
        name=fields.get("qname", ""),
        default=True,
        closed=_closed(own),
        walltime_s=seconds_of(fields.get("h_rt", "").split(",")[0]),
        nodes=len({host for host, _, _ in own}),
        processors=sum(slots for _, slots, _ in own),
        environments=_offers(fields.get("pe_list", "")),
    )


def _offers(pe_list: str) -> List[str]:
    """All environments of a pe_list: the four of `a b,[host=c d]`, which offers more on some hosts."""
    return [name for name in re.findall(r"[\w.-]+", re.sub(r"\[[^=\]]*=", " ", pe_list)) if name != "NONE"]


def _closed(own: List[Any]) -> str:
    """Why the queue is closed: only if no instance accepts jobs."""
    if not own:
        return "it has no hosts"
    letters = [set(state) & set(_CLOSING) for _, _, state in own]
    if not all(letters):
        return ""
    return "all of it is " + " or ".join(sorted({_CLOSING[letter] for each in letters for letter in each}))


def _serves(environment: Environment) -> bool:
    """Return whether a job in the environment can start processes on all its nodes."""
    return environment.controls or environment.rule == _ONE_HOST


def _is_offered(name: str, queues: List[Queue]) -> bool:
    return any(name in queue.environments for queue in queues)


def _largest(run: Run, queue: str) -> int:
    """Slots of the queue's largest instance."""
    states = run(["qstat", "-f", "-q", queue, "-xml"])
    check(states, UNREACHABLE)
    return max((slots for _, slots, _ in parse_instances(states).get(queue, [])), default=1)


def _fields(result: Result) -> Dict[str, str]:
    """`name   value` of qconf's listings; a line that ends with a backslash goes on."""
    text = re.sub(r"\\\n\s*", " ", result.stdout)
    return dict(re.findall(r"^(\S+)[ \t]+(.*?)\s*$", text, re.MULTILINE))
