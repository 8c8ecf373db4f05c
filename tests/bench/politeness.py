"""The cost of koalapy for a head node: processor seconds and commands an hour, idle and with many queued jobs.

Processor time is that of everything on the head, by its container's control group: the batch system's servers, the SSH
server, all of ours. What the head costs without koalapy is measured in the same run and taken off, with as many jobs
queued by the bare command: a batch system goes over its queue again and again, whoever has filled it. The cluster is
somebody else's, so that what is queued stays queued. Commands are counted where they are started: in a directory that
is first on our user's PATH there, each of the batch system's commands leaves a mark before it runs; the marks cost a
shell each, which counts as koalapy's. What a sweep costs that has nodes there, `unobtrusive` measures.

    tests/bench/run politeness [--cluster NAME] [--jobs N] [--minutes M]
"""

import argparse
import os
import shlex
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from _grid import last_line
from _heads import OURS, Head, full_cluster, koalad_over
from submit import JOB

from koalapy import Grid

COMMANDS = {
    "alpha": ("sbatch", "squeue", "sinfo", "scontrol", "scancel", "sacct"),
    "gamma": ("qsub", "qstat", "qhost", "qdel", "qacct", "qconf"),
}
GROWTH = 1.1  # more calls with jobs than without, at most: one more may fall into the time that is looked at
_MARKS = f"/home/{OURS}/.koala-bench-calls"
_BIN = f"/home/{OURS}/.koala-bench-bin"
_PROFILE = f"/home/{OURS}/.bash_profile"
_WRAPPER = '#!/bin/sh\necho {name} >> {marks}\nexec {path} "$@"\n'


class Cost(NamedTuple):
    seconds: float  # that were looked at
    cpu_s: float  # of the whole head
    calls: int


def look(head: Head, minutes: float) -> Cost:
    """Measure the cost of the head node from now on, for this time."""
    began, cpu, calls = time.monotonic(), cpu_s(head), _calls(head)
    time.sleep(60 * minutes)
    return Cost(time.monotonic() - began, cpu_s(head) - cpu, _calls(head) - calls)


@contextmanager
def counted(head: Head) -> Iterator[None]:
    """Commands of the batch system that our user's login shells start are counted while this lasts."""
    head.run(f"rm -rf {_BIN} {_MARKS}; mkdir {_BIN}; : > {_MARKS}")
    for name in COMMANDS[head.name]:
        path = head.run(f"command -v {name} || true")
        if path:
            wrapper = shlex.quote(_WRAPPER.format(name=name, marks=_MARKS, path=path))
            head.run(f"printf %s {wrapper} > {_BIN}/{name}; chmod +x {_BIN}/{name}")
    head.run(f"[ ! -e {_PROFILE} ] || mv {_PROFILE} {_PROFILE}.kept")
    head.run(f"echo '[ ! -r ~/.profile ] || . ~/.profile; PATH={_BIN}:$PATH' > {_PROFILE}")
    try:
        yield
    finally:
        head.run(f"rm -f {_PROFILE}; [ ! -e {_PROFILE}.kept ] || mv {_PROFILE}.kept {_PROFILE}", OURS)
        head.run(f"rm -rf {_BIN} {_MARKS}", "root")


def _calls(head: Head) -> int:
    return int(head.run(f"wc -l < {_MARKS}"))


def cpu_s(head: Head) -> float:
    """Processor time of all processes of the container so far."""
    return head.cpu_s()


def measure(name: str, jobs: int, minutes: float) -> dict[str, Any]:
    with ExitStack() as stack:
        head = stack.enter_context(full_cluster(name))
        stack.enter_context(counted(head))
        without = look(head, minutes)
        bare = _bare(head, jobs, minutes)
        with koalad_over(head, jobs) as koalad:
            time.sleep(30)  # what a start costs is over
            idle = look(head, minutes)
            timings = _queue(koalad, head, jobs)
            time.sleep(30)
            queued = look(head, minutes)
            timings |= _cancel(koalad, head)
    rows = {
        "without": _row(without, without),
        "idle": _row(idle, without),
        "queued without": _row(bare, bare),
        "queued": _row(queued, bare),
    }
    return {"cluster": name, "rows": rows, **timings}


def _bare(head: Head, jobs: int, minutes: float) -> Cost:
    """Measure the cost of the head node while this many jobs are queued by its own command."""
    head.run(head.loop(jobs))
    time.sleep(30)  # what their submits cost is over
    try:
        return look(head, minutes)
    finally:
        head.empty()


def _queue(koalad: Grid, head: Head, jobs: int) -> dict[str, float]:
    with head.watched(jobs) as seen:
        began, calls = time.time(), _calls(head)
        koalad.submit_many([JOB] * jobs, directory="/tmp")
        queued_s = seen.result() - began
    began = time.time()
    koalad.jobs()
    return {
        "queued_s": round(queued_s, 2),
        "listed_s": round(time.time() - began, 2),
        "submit_calls": _calls(head) - calls,
    }


def _cancel(koalad: Grid, head: Head) -> dict[str, float]:
    ids = [job["id"] for job in koalad.jobs()]
    began, calls = time.time(), _calls(head)
    koalad.cancel_many(ids)
    answered_s = time.time() - began
    koalad.wait(ids, 600)
    gone_s = time.time() - began
    return {
        "cancel_answered_s": round(answered_s, 2),
        "cancelled_s": round(gone_s, 2),
        "cancel_calls": _calls(head) - calls,
    }


def _row(cost: Cost, without: Cost) -> dict[str, float]:
    """Make a row by the hour; `without`: the cost without koalapy."""
    per_hour = 3600 / cost.seconds
    own = cost.cpu_s * per_hour - without.cpu_s * 3600 / without.seconds
    return {
        "cpu_s_an_hour": round(cost.cpu_s * per_hour, 1),
        "by_koalapy": round(own, 1),
        "calls_an_hour": round(cost.calls * per_hour),
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests/bench/run politeness", description=__doc__)
    parser.add_argument("--cluster", choices=sorted(COMMANDS), action="append", help="only this one")
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=5.0, help="that each figure is looked at")
    arguments = parser.parse_args()
    found = [measure(name, arguments.jobs, arguments.minutes) for name in arguments.cluster or sorted(COMMANDS)]
    growths = [_growth(each) for each in found]
    detail = {
        "jobs": arguments.jobs,
        "minutes": arguments.minutes,
        "load": round(os.getloadavg()[0], 1),
        "clusters": found,
    }
    last_line("politeness", round(max(growths), 3), "calls with jobs / idle", GROWTH, max(growths) <= GROWTH, detail)


def _growth(found: dict[str, Any]) -> float:
    idle, queued = (found["rows"][row]["calls_an_hour"] for row in ("idle", "queued"))
    return float(queued / max(1, idle))


if __name__ == "__main__":
    main()
