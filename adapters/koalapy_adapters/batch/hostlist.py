"""The expansion of Slurm's short forms: host lists such as `a[1-3,07-09],b`, and counts such as `4(x2),1`."""

import re
from typing import List

# What a host list may expand to. A larger one is a mistake, not a cluster.
MOST_HOSTS = 100000

_PART = re.compile(r"(?:[^,\[\]]|\[[^\]]*\])+")
_BRACKETS = re.compile(r"\[([^\]]*)\]")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?\Z")
_COUNT = re.compile(r"(\d+)(?:\(x(\d+)\))?\Z")


def expand(text: str) -> List[str]:
    """The hosts of a host list, in order. Several brackets in a name multiply, and the last one varies fastest.

    Raises ValueError if the text is no host list, or its brackets expand to more than MOST_HOSTS hosts.
    """
    parts = _PART.findall(text)
    if not parts or ",".join(parts) != text:
        raise ValueError("not a host list: %.200r" % text)
    hosts: List[str] = []
    for part in parts:
        hosts += _expand_part(part, MOST_HOSTS - len(hosts))
    return hosts


def expand_counts(text: str) -> List[int]:
    """The counts of a list, one for each node (SLURM_TASKS_PER_NODE): `4(x2),1` gives 4, 4, 1.

    Raises ValueError if the text is no such list, or repeats a count more than MOST_HOSTS times.
    """
    counts: List[int] = []
    for part in text.split(","):
        match = _COUNT.match(part)
        if not match or int(match.group(2) or 1) > MOST_HOSTS:
            raise ValueError("not a list of counts: %.200r" % text)
        counts += [int(match.group(1))] * int(match.group(2) or 1)
    return counts


def _expand_part(part: str, most: int) -> List[str]:
    pieces = _BRACKETS.split(part)
    names = [pieces[0]]
    for inside, after in zip(pieces[1::2], pieces[2::2]):
        numbers = _numbers(inside, most)
        if len(names) * len(numbers) > most:
            raise ValueError("a host list of more than %d hosts: %.200r" % (MOST_HOSTS, part))
        names = [name + number + after for name in names for number in numbers]
    return names


def _numbers(inside: str, most: int) -> List[str]:
    """The numbers between brackets, as wide as they are written: `07-10` gives 07, 08, 09, 10."""
    numbers: List[str] = []
    for piece in inside.split(","):
        match = _RANGE.match(piece)
        if not match:
            raise ValueError("not a range of hosts: %.200r" % piece)
        first, last = match.group(1), match.group(2) or match.group(1)
        if not 0 <= int(last) - int(first) < most:
            raise ValueError("not a range of hosts: %.200r" % piece)
        numbers += [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
    return numbers
