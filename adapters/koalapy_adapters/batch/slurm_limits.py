"""Limits of a user's account, and what they leave, as slurmctld has them in memory: scontrol(1), "show assoc_mgr".

The command queries no database and costs as much as a squeue. Where there are no accounts, it reports so and succeeds.
"""

import re
from typing import Dict, List, NamedTuple, Optional

from koalapy_adapters.batch.protocol import Argv, BatchSettings
from koalapy_adapters.errors import Result

_RECORD = re.compile(r"^(?=ClusterName=|QOS=)", re.MULTILINE)
# A limit and what is used of it: `GrpTRES=cpu=2(0),…`, `MaxJobs=1(1)`; N is none, and nothing at all is none too.
_PAIR = r"(\d+)\((\d+)\)"
# Those of an association, of a QOS, and of each of its users.
_PROCESSORS = re.compile(r"^\s*(?:GrpTRES|MaxTRESPU)=(?:[^\n]*?,)?cpu=" + _PAIR, re.MULTILINE)
_OF_ONE_JOB = re.compile(r"^\s*MaxTRESPJ=(?:[^\n]*?,)?cpu=(\d+)", re.MULTILINE)
_JOBS = re.compile(r"(?:^|\s)(?:GrpJobs|MaxJobs|MaxJobsPU)=" + _PAIR, re.MULTILINE)


class Limits(NamedTuple):
    """Limits in processors; None for no such limit.

    `room`: processors that the user may take on now through the cluster's account. `largest`: those that one job of
    this account can ever have. `most`: those that a job can ever have through any of the user's accounts that limit
    what is in use.
    """

    room: Optional[int] = None
    largest: Optional[int] = None
    most: Optional[int] = None


class _Account(NamedTuple):
    parent: str
    text: str


def argv(cluster: BatchSettings) -> Argv:
    """The command that shows the user's associations and those above them, with the quality of service only if it is
    named.
    """
    show = ["scontrol", "show", "assoc_mgr", "users=" + cluster.user]
    return [*show, "flags=assoc,qos", "qos=" + cluster.qos] if cluster.qos else [*show, "flags=assoc"]


def limits(cluster: BatchSettings, result: Result) -> Limits:
    """The limits of the user's account in this result.

    A failed command or an unknown format gives no limits, which only save waiting.
    """
    if result.exit_status != 0:
        return Limits()
    records = _RECORD.split(result.stdout)[1:]
    accounts = {_field(text, "Account"): _account(text) for text in records if _is_account(text)}
    leaves = [text for text in records if _is_users(cluster, text)]
    own = [text for text in leaves if _is_clusters(cluster, text)]
    applied = [each for text in own for each in _chain(accounts, text)]
    applied += [text for text in records if text.startswith("QOS=%s(" % cluster.qos)]
    chains = [_chain(accounts, text) for text in leaves]
    return Limits(_room(applied), _largest(applied), _most(chains))


def _account(text: str) -> _Account:
    return _Account(_field(text, "ParentAccount").partition("(")[0], text)


def _is_account(text: str) -> bool:
    return text.startswith("ClusterName=") and not _field(text, "UserName")


def _is_users(cluster: BatchSettings, text: str) -> bool:
    """Return whether the association is one of the user, in all partitions or in the queue."""
    partition = _field(text, "Partition")
    named = _field(text, "UserName").partition("(")[0] == cluster.user
    return named and (not partition or partition in (cluster.queue or "").split(","))


def _is_clusters(cluster: BatchSettings, text: str) -> bool:
    """Return whether the association is that of the account in the grid file, else of the user's default account."""
    return _field(text, "Account") == cluster.account if cluster.account else _field(text, "DefAssoc") == "Yes"


def _chain(accounts: Dict[str, _Account], leaf: str) -> List[str]:
    """The association and all above it. A limit on an account holds for all below it together."""
    found = [leaf]
    name = _field(leaf, "Account")
    while name in accounts and accounts[name].text not in found:
        found.append(accounts[name].text)
        name = accounts[name].parent
    return found


def _room(texts: List[str]) -> Optional[int]:
    if any(int(used) >= int(limit) for text in texts for limit, used in _JOBS.findall(text)):
        return 0
    left = [int(limit) - int(used) for text in texts for limit, used in _PROCESSORS.findall(text)]
    return max(0, min(left)) if left else None


def _largest(texts: List[str]) -> Optional[int]:
    return min(_in_use(texts) + [int(limit) for text in texts for limit in _OF_ONE_JOB.findall(text)], default=None)


def _most(chains: List[List[str]]) -> Optional[int]:
    """The largest limit among the user's accounts. Accounts without a limit are left out, because no job of them waits
    for one.
    """
    each = [_in_use(chain) for chain in chains]
    return max((min(found) for found in each if found), default=None)


def _in_use(texts: List[str]) -> List[int]:
    return [int(limit) for text in texts for limit, _ in _PROCESSORS.findall(text)]


def _field(text: str, name: str) -> str:
    match = re.search(r"(?:^|\s)%s=(\S*)" % name, text)
    return match.group(1) if match else ""
