"""Resource quota sets, as far as they limit this user's slots in the configured queue; sge_resource_quota(5).

`qquota` prints the use of a limit, but only while something is used. `qconf -srqs` prints the limits, but not their
use. Therefore `qquota` runs only if `qconf -srqs` has a rule. A limit for the users of one of the cluster's lists
(@physics) is subtracted once qquota shows it for this user.
"""

import re
from fnmatch import fnmatchcase
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple
from xml.etree import ElementTree

from koalapy_adapters.batch import sge_jobs
from koalapy_adapters.batch.classify import Verdict, check
from koalapy_adapters.batch.protocol import Argv, BatchSettings
from koalapy_adapters.batch.sge_errors import UNREACHABLE
from koalapy_adapters.errors import ClusterError, Result

_ASK = 'qconf -srqs 2>/dev/null && exec qquota -u "$1" -l slots -xml || exit 0'
_HOST = re.compile(r"[\w.-]+\Z")
_FILTERS = ("users", "projects", "pes", "queues", "hosts")


class Rule(NamedTuple):
    """A rule of a quota set.

    `filters` has the members of each filter as written, with `{` before them if the limit applies to each member alone.
    """

    name: str  # as qquota prints it: `set/rule`, or `set/number`
    filters: Dict[str, str]
    slots: int


class Room(NamedTuple):
    """The slots that quotas leave to this user: in all (None: no limit), and on each host with a limit of its own."""

    slots: Optional[int]
    of_hosts: Dict[str, int]


def quotas_argv(cluster: BatchSettings) -> Argv:
    return ["sh", "-c", _ASK, "qquota", cluster.user]


def room(cluster: BatchSettings, result: Result) -> Room:
    """The slots that the quotas leave to this user. `result` is that of `quotas_argv`.

    An empty answer means no limit, because some Grid Engines have no quotas. Raises BatchError if the command did not
    end, did not reach the qmaster, or printed XML that cannot be read.
    """
    text, _, xml = result.stdout.partition("<?xml")
    if result.exit_status is None or "commlib error" in result.stderr:
        check(result._replace(exit_status=result.exit_status or 1), UNREACHABLE + _NOT_ANSWERED)
    used = list(_used(result._replace(stdout="<?xml" + xml))) if xml else []
    left: List[int] = []
    of_hosts: Dict[str, int] = {}
    shown = set()
    for name, filters, slots, taken in used:
        if _applies(filters, cluster):
            shown.add(name)
            host = filters.get("hosts") or "*"
            if host == "*":
                left.append(slots - taken)
            elif _HOST.match(host):
                of_hosts[host] = min(of_hosts.get(host, slots), slots - taken)
    for rule in _first_of_each_set(cluster, text):
        if rule.name not in shown and "hosts" not in rule.filters:
            left.append(rule.slots)
    return Room(max(0, min(left)) if left else None, {host: max(0, slots) for host, slots in of_hosts.items()})


_NOT_ANSWERED = (Verdict("", ClusterError, "no_quotas", "qquota failed.", "Try `qquota` on the head node."),)


def _used(result: Result) -> Iterator[Tuple[str, Dict[str, str], int, int]]:
    """Tuples (rule, filters, limit, used) of qquota, which lists a rule in braces once for each member in use."""
    for rule in sge_jobs.document(result).iter():
        if rule.tag.endswith("qquota_rule"):
            filters = {_plain(each): each.text or "" for each in rule if _plain(each) in _FILTERS}
            for limit in rule:
                amounts = limit.get("limit", ""), limit.get("value", "0")
                if limit.get("resource") == "slots" and amounts[0].isdigit() and amounts[1].isdigit():
                    yield rule.get("name", ""), filters, int(amounts[0]), int(amounts[1])


def _plain(element: ElementTree.Element) -> str:
    return str(element.tag).rpartition("}")[2]


def _first_of_each_set(cluster: BatchSettings, text: str) -> Iterator[Rule]:
    """The first rule of each enabled set that applies to a request of this user, if that rule limits slots."""
    for body in re.findall(r"^\{\n(.*?)^\}", text.replace("\\\n", " "), re.MULTILINE | re.DOTALL):
        if re.search(r"^ *enabled +TRUE", body, re.MULTILINE | re.IGNORECASE):
            for rule in _rules(body):
                if _applies(rule.filters, cluster):
                    if rule.slots >= 0:
                        yield rule
                    break


def _rules(body: str) -> Iterator[Rule]:
    found = re.search(r"^ *name +(\S+)", body, re.MULTILINE)
    for number, line in enumerate(re.findall(r"^ *limit +(.*)$", body, re.MULTILINE), 1):
        words = dict(re.findall(r"\b(name|users|projects|pes|queues|hosts|to) +(\{[^}]*\}|\S+)", line))
        slots = re.search(r"(?:^|,)slots=(\d+)(?:,|$)", words.pop("to", ""))
        name = "%s/%s" % (found.group(1) if found else "", words.pop("name", number))
        yield Rule(name, words, int(slots.group(1)) if slots else -1)


def _applies(filters: Dict[str, str], cluster: BatchSettings) -> bool:
    """Return whether the filters match a job of this user in the configured queue.

    Members of lists (@…) are not known.
    """
    own = {
        "users": cluster.user,
        "projects": cluster.account or "",
        "pes": cluster.parallel_environment or "",
        "queues": (cluster.queue or "*").partition("@")[0],
    }
    return all(_among(own[name], filters[name]) for name in own if name in filters)


def _among(own: str, members: str) -> bool:
    """Return whether `own` is among the members.

    In `*,!bob`, an exclamation mark excludes a name; `*` requires any name, and `!*` none.
    """
    names = re.split(r"[,\s]+", members.strip("{} "))
    if own and any(fnmatchcase(own, name[1:]) for name in names if name.startswith("!")):
        return False
    wanted = [name for name in names if not name.startswith("!")]
    return not wanted or (bool(own) and any(fnmatchcase(own, name) for name in wanted))
