"""How a parallel environment lays a job's slots on hosts, and so what of the free ones a job can get; sge_pe(5)."""

import re
from typing import Dict, List, NamedTuple, Optional, Sequence

from koalapy_adapters.batch.classify import Verdict, check, unreadable
from koalapy_adapters.batch.protocol import Argv, ClusterSettings
from koalapy_adapters.batch.sge_errors import UNREACHABLE
from koalapy_adapters.errors import ClusterError, Result

_PATTERN = re.compile(r"[*?\[]")
_MISSING = (
    Verdict(
        r"is not a parallel environment",
        ClusterError,
        "no_such_parallel_environment",
        "Grid Engine has no parallel environment of this name.",
        "Correct `parallel_environment` in the grid file; `qconf -spl` lists them.",
    ),
)


class Environment(NamedTuple):
    """`per_host`: how many slots of a job each of its hosts gives, 0 where one host gives all of them, None where it
    does not matter ($fill_up, $round_robin). `slots`: how many all jobs in it may have together.
    """

    name: str
    per_host: Optional[int]
    slots: int

    def usable(self, free: int) -> int:
        """Of so many on one host, those that a job can get."""
        return free - free % self.per_host if self.per_host else free

    def most(self, hosts: Sequence[int]) -> int:
        """That one job can get of hosts with so many slots."""
        usable = [self.usable(slots) for slots in hosts]
        return max(usable, default=0) if self.per_host == 0 else sum(usable)


ANY = Environment("", None, 1 << 30)


def environment_argvs(cluster: ClusterSettings) -> List[Argv]:
    """None where no parallel environment is named, or several are, by a pattern: each job gets one that fits."""
    name = cluster.parallel_environment
    return [["qconf", "-sp", name]] if name and not _PATTERN.search(name) else []


def environment(cluster: ClusterSettings, results: List[Result]) -> Environment:
    """Raises ClusterError if there is none of this name, or if it cannot give what `processors_per_node` says."""
    if not results:
        return ANY
    check(results[0], UNREACHABLE + _MISSING)
    fields = dict(re.findall(r"^(\w+) +(.*?) *$", results[0].stdout, re.MULTILINE))
    found = _read(fields, results[0])
    wanted = cluster.processors_per_node
    if wanted and found.per_host and wanted != found.per_host:
        raise ClusterError(
            "processors_per_node",
            "The parallel environment %s gives %d slots of each host, and `processors_per_node` is %d."
            % (found.name, found.per_host, wanted),
            "Write `processors_per_node: %d`, or name another `parallel_environment` (`qconf -spl`)." % found.per_host,
            results[0],
        )
    return found


def fewer(free: Dict[str, int], most: int) -> Dict[str, int]:
    """What a limit on all of them together leaves, beginning with the hosts that have most."""
    left, kept = max(0, most), {}
    for host, slots in sorted(free.items(), key=lambda item: (-item[1], item[0])):
        kept[host] = min(slots, left)
        left -= kept[host]
    return kept


def _read(fields: Dict[str, str], result: Result) -> Environment:
    rule, slots = fields.get("allocation_rule", ""), fields.get("slots", "")
    if not slots.isdigit():
        raise unreadable(result, "printed no parallel environment")
    name = fields.get("pe_name", "")
    if rule in _RULES:
        return Environment(name, _RULES[rule], int(slots))
    if rule.isdigit() and int(rule) > 0:
        return Environment(name, int(rule), int(slots))
    raise unreadable(result, "says that the allocation rule is %r" % rule)


_RULES: Dict[str, Optional[int]] = {"$fill_up": None, "$round_robin": None, "$pe_slots": 0}
