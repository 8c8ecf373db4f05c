"""Allocation rules of parallel environments, which decide how many of the free slots a job can get; sge_pe(5)."""

import re
from typing import Dict, List, NamedTuple, Optional, Sequence

from koalapy_adapters.batch.classify import Verdict, check, unreadable
from koalapy_adapters.batch.protocol import Argv, BatchSettings
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
    """A parallel environment. `slots` is the number of slots that all jobs in it may have together.

    `per_host` is the number of a job's slots on each of its hosts. It is 0 if one host gives all of them, and None if
    the number does not matter ($fill_up, $round_robin).
    """

    name: str
    per_host: Optional[int]
    slots: int

    def usable(self, free: int) -> int:
        """The slots that a job can get on a host with `free` slots."""
        return free - free % self.per_host if self.per_host else free

    def most(self, hosts: Sequence[int]) -> int:
        """The slots that one job can get on hosts with these numbers of slots."""
        usable = [self.usable(slots) for slots in hosts]
        return max(usable, default=0) if self.per_host == 0 else sum(usable)


ANY = Environment("", None, 1 << 30)


def environment_argvs(cluster: BatchSettings) -> List[Argv]:
    """The command that prints the parallel environment.

    There is no command if none is named, or several by a pattern: then each job gets one that fits.
    """
    name = cluster.parallel_environment
    return [["qconf", "-sp", name]] if name and not _PATTERN.search(name) else []


def environment(cluster: BatchSettings, results: List[Result]) -> Environment:
    """The configured parallel environment; ANY without a result.

    Raises ClusterError if there is none of this name, or if it cannot give `processors_per_node`. Raises
    another BatchError if the command failed or its answer cannot be read.
    """
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
    """The slots of each host, cut down to `most` in all. The hosts with most slots come first."""
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
    raise unreadable(result, "has the allocation rule %r" % rule)


_RULES: Dict[str, Optional[int]] = {"$fill_up": None, "$round_robin": None, "$pe_slots": 0}
