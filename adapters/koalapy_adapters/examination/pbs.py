"""The queues of the PBS family, from `qstat -Q -f`, which OpenPBS and Torque share. See qstat(1B)."""

import re
from collections import Counter
from typing import Any, Dict, List, Optional

from koalapy_adapters.batch.classify import check
from koalapy_adapters.batch.pbs_errors import UNREACHABLE
from koalapy_adapters.batch.protocol import BatchSettings
from koalapy_adapters.batch.text import seconds_of
from koalapy_adapters.errors import BatchError, Result
from koalapy_adapters.examination.protocol import Lowest, Queue, Run

COMMANDS = ["qstat", "pbsnodes"]

_YES = ("true", "yes")
_FORMULA = re.compile(r"^\s*job_sort_formula = (.*?)\s*$", re.MULTILINE)
_BY_PRIORITY = re.compile(r"\bjob_priority\b")
_RAISE = (
    "Ask the administrator to set job_sort_formula to job_priority by qmgr, or for a queue of a Priority below all "
    "others', which a second entry for the cluster in the grid file then names."
)


def queues(run: Run, cluster: BatchSettings) -> List[Queue]:
    listed = run(["qstat", "-Q", "-f"])
    check(listed, UNREACHABLE)
    server = run(["qstat", "-B", "-f"])
    default = re.search(r"default_queue = (\S+)", server.stdout) if server.exit_status == 0 else None
    found = parse_queues(listed, default.group(1) if default else "")
    # Slurm's qstat asks no server, and shows no default queue: any queue may be the default.
    return found if server.exit_status == 0 else [queue._replace(default=True) for queue in found]


def parse_queues(result: Result, default: str = "") -> List[Queue]:
    """The queues in the answer of `qstat -Q -f`; a routing queue counts as open while it accepts jobs."""
    blocks = re.split(r"^Queue:\s*", _unfolded(result.stdout), flags=re.MULTILINE)[1:]
    return [_queue(block, default, only=len(blocks) == 1) for block in blocks]


def accounts(run: Run, cluster: BatchSettings) -> List[str]:
    """Return no accounts: PBS has no list of them, and `-A` is only copied into the accounting."""
    return []


def try_access(run: Run, cluster: BatchSettings) -> Optional[str]:
    """Return None: qsub cannot check a job without submitting it."""
    return None


def lowest(run: Run, cluster: BatchSettings) -> Optional[Lowest]:
    """By the server's or scheduler's job_sort_formula, which goes before sort keys, or the Priority of queues.

    No user can read sched_config. Raises BatchError if qstat fails.
    """
    formulas = _formulas(run)
    for formula in formulas:
        if _BY_PRIORITY.search(formula):
            return Lowest(True, "Its job_sort_formula is %s." % formula)
    listed = run(["qstat", "-Q", "-f"])
    check(listed, UNREACHABLE)
    server = run(["qstat", "-B", "-f"])
    default = re.search(r"default_queue = (\S+)", server.stdout)
    name = (cluster.queue or (default.group(1) if default else "")).split(",")[0]
    priorities = parse_priorities(listed)
    others = [value for queue, value in priorities.items() if queue != name]
    if name in priorities and others and priorities[name] < min(others):
        return Lowest(True, "The queue %s has the lowest Priority of all that start jobs." % name)
    if formulas:
        return Lowest(False, "Its job_sort_formula, %s, does not have job_priority." % formulas[0], _RAISE)
    words = "It has no job_sort_formula. Unless sched_config, which users cannot read, has job_priority as a sort key, "
    return Lowest(False, words + "PBS passes over the priority of jobs.", _RAISE)


def parse_priorities(result: Result) -> Dict[str, int]:
    """The Priority of each queue that jobs start in, as `qstat -Q -f` has it; 0 where it has none."""
    found = {}
    for block in re.split(r"^Queue:\s*", _unfolded(result.stdout), flags=re.MULTILINE)[1:]:
        fields = dict(re.findall(r"^\s+(\S+) = (.*?)\s*$", block, re.MULTILINE))
        if fields.get("queue_type", "Execution").startswith("E") and not _closed(fields):
            found[block.split("\n", 1)[0].strip()] = int(fields.get("Priority", "0"))
    return found


def _formulas(run: Run) -> List[str]:
    """The attributes of scheduler and server; those of `qstat -B -f` if qmgr is missing or refused."""
    texts = []
    for argv in (["qmgr", "-c", "list sched"], ["qstat", "-B", "-f"]):
        try:
            texts.append(run(argv).stdout)
        except BatchError:
            continue
    lines = (_FORMULA.search(_unfolded(text)) for text in texts)
    return [line.group(1).strip('"') for line in lines if line]


def span(run: Run, cluster: BatchSettings) -> Optional[Dict[str, Any]]:
    nodes = run(["pbsnodes", "-a"])
    check(nodes, UNREACHABLE)
    count = len(re.findall(r"^\S", nodes.stdout, re.MULTILINE))
    return {"processors": 2, "processors_per_node": 1} if count > 1 else None


def usual_size(run: Run) -> Optional[int]:
    """The processors of most of Torque's nodes: a job of several has to state how many it needs of each."""
    nodes = run(["pbsnodes", "-a"])
    sizes = Counter(re.findall(r"^\s+np = (\d+)", nodes.stdout, re.MULTILINE))
    return int(sizes.most_common(1)[0][0]) if sizes else None


def _queue(block: str, default: str, only: bool) -> Queue:
    name = block.split("\n", 1)[0].strip()
    fields = dict(re.findall(r"^\s+(\S+) = (.*?)\s*$", block, re.MULTILINE))
    return Queue(
        name=name,
        default=only or name == default,
        closed=_closed(fields),
        walltime_s=seconds_of(fields.get("resources_max.walltime", "")),
    )


def _closed(fields: Dict[str, str]) -> str:
    if fields.get("enabled", "True").lower() not in _YES:
        return "it takes no jobs (enabled = %s)" % fields["enabled"]
    if fields.get("started", "True").lower() not in _YES:
        return "it starts no jobs (started = %s)" % fields["started"]
    return ""


def _unfolded(text: str) -> str:
    """Join the long values that qstat breaks; they continue after a tab on the next line."""
    return re.sub(r"\n\t(?=[^=\n]*$)", "", text, flags=re.MULTILINE)
