"""Limits of an OpenPBS server or queue, and what they leave to a user: pbs_server_attributes(7B), "max_run" and the
like.
"""

import re
from typing import List, NamedTuple, Optional

from koalapy_adapters.batch.pbs_records import Record, number, word
from koalapy_adapters.errors import Result

_LIMIT = re.compile(r"\[([ou]):([^=\]]+)=([0-9]{1,9})\]")


class Use(NamedTuple):
    """Running jobs and their processors: those of this user, and those of all users."""

    jobs: int
    processors: int
    all_jobs: int
    all_processors: int


def room(place: Record, user: str, use: Use, result: Result) -> Optional[int]:
    """The number of further processors that this user may have here; None if nothing limits it.

    Limits of groups and projects are not applied, because qstat does not show to which of them a user belongs. Raises
    UnreadableError if a limit is no number.
    """
    left = _left(place, "max_run_res.ncpus", user, use.processors, use.all_processors)
    left += _old(place, "max_user_res.ncpus", use.processors, result)
    left += _old(place, "resources_available.ncpus", use.all_processors, result)
    jobs = _left(place, "max_run", user, use.jobs, use.all_jobs)
    jobs += _old(place, "max_user_run", use.jobs, result) + _old(place, "max_running", use.all_jobs, result)
    if any(more <= 0 for more in jobs):
        return 0
    return max(0, min(left)) if left else None


def _left(place: Record, name: str, user: str, mine: int, everybodys: int) -> List[int]:
    """The remainders under the user's limit and under that of all users, as far as there are such limits.

    In `[u:PBS_GENERIC=64],[u:alice=8],[o:PBS_ALL=500]`, a user's own limit overrides the general one.
    """
    limits = {(kind, who.strip().strip('"')): int(most) for kind, who, most in _LIMIT.findall(word(place, name))}
    own = limits.get(("u", user), limits.get(("u", "PBS_GENERIC")))
    overall = limits.get(("o", "PBS_ALL"))
    left = [] if own is None else [own - mine]
    return left if overall is None else [*left, overall - everybodys]


def _old(place: Record, name: str, used: int, result: Result) -> List[int]:
    """The remainder under a limit of the old kind, a plain number; empty if there is none."""
    return [number(place, name, result) - used] if name in place.fields else []
