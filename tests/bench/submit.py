"""The time until many jobs are in a batch system's queue: koalapy, a shell loop of its own command, and PSI/J.

Every round submits as many one-processor jobs each way, in random order, to a cluster that somebody else has filled. So
all of them wait and none takes processor time from those that are still to come. The time is from the first call
until the batch system's own listing, which is asked on the head node, shows all of them. Processor time is that of
all processes on the head, the batch system's servers included, and of koalad, from the first call until then. What the
loop takes of it, spread over all processors, is the least that the same commands can take: beside each ratio stands
the floor that this sets.

    tests/bench/run submit [--rounds N] [--jobs N] [--cluster NAME]
"""

import argparse
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import _psij
from _grid import bootstrap, last_line
from _heads import Head, full_cluster, koalad_over

from koalapy import Grid

LOOP_BOUND, PSIJ_BOUND = 1.0, 0.5
_WAYS = {"alpha": "Slurm, by its API", "gamma": "Grid Engine, by DRMAA"}
JOB = {
    "name": "submit",
    "components": [{"processors": 1, "executable": "/bin/sleep", "arguments": ["600"], "walltime": "10m"}],
}
Times = dict[str, list[float]]


def by_koalapy(koalad: Grid, head: Head, jobs: int) -> float:
    began = time.time()
    koalad.submit_many([JOB] * jobs, directory="/tmp")
    return began


def by_loop(head: Head, jobs: int) -> float:
    loop = head.loop(jobs)
    began = time.time()
    head.run(loop)
    return began


def measure(name: str, rounds: int, jobs: int, chance: random.Random) -> Times:
    """Seconds by each way, a round after another. Grid Engine has no executor in PSI/J."""
    with ExitStack() as stack:
        head = stack.enter_context(full_cluster(name))
        koalad = stack.enter_context(koalad_over(head, jobs))
        ways: dict[str, Callable[[], float]] = {
            "koalapy": lambda: by_koalapy(koalad, head, jobs),
            "loop": lambda: by_loop(head, jobs),
        }
        if name == "alpha":
            stack.enter_context(_psij.installed(head))
            ways["psij"] = lambda: _psij.submit(head, jobs)
        pid = int(koalad.status()["pid"])
        times: Times = {kind: [] for way in ways for kind in (way, f"{way} cpu")}
        times["load"] = []
        for number in range(rounds):
            times["load"].append(os.getloadavg()[0])
            for way in chance.sample(sorted(ways), len(ways)):
                spent = _spent(head, pid)
                times[way].append(_timed(head, jobs, ways[way]))
                times[f"{way} cpu"].append(_spent(head, pid) - spent)
                _tidy(head, koalad)
            reported = ", ".join(f"{way} {each[-1]:.2f}" for way, each in times.items())
            print(f"{name}, round {number + 1}: {reported}", file=sys.stderr, flush=True)
        return times


def _timed(head: Head, jobs: int, submit: Callable[[], float]) -> float:
    with head.watched(jobs) as seen:
        began = submit()
        return seen.result() - began


def _spent(head: Head, koalad: int) -> float:
    """Processor seconds so far, of the head and of koalad; no way but koalapy's uses a notable part of koalad's."""
    user, system = Path(f"/proc/{koalad}/stat").read_text().rpartition(")")[2].split()[11:13]
    return head.cpu_s() + (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _tidy(head: Head, koalad: Grid) -> None:
    """Nothing of ours is left, in any queue or directory."""
    left = [job["id"] for job in koalad.jobs() if job["finished_at"] is None]
    koalad.cancel_many(left)
    koalad.wait(left, 300)
    head.empty()


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests/bench/run submit", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--cluster", choices=sorted(_WAYS), action="append", help="only this one")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    names = arguments.cluster or sorted(_WAYS)
    rows = [
        row for name in names for row in _rows(_WAYS[name], measure(name, arguments.rounds, arguments.jobs, chance))
    ]
    worst = max(row["ratio"] / row["bound"] for row in rows)
    detail = {"rounds": arguments.rounds, "jobs": arguments.jobs, "rows": rows}
    last_line("submit", round(rows[0]["ratio"], 3), "ratio", LOOP_BOUND, worst <= 1, detail)


def _rows(way: str, times: Times) -> list[dict[str, Any]]:
    """Compare this way's time with each other's: the ratio of the medians, and the interval of the rounds' ratios.

    `floor` is the ratio of one that costs what the bare commands cost and nothing else, with no processor idle.
    """
    rows = []
    least = statistics.median(times["loop cpu"]) / (os.cpu_count() or 1)
    for other, bound in (("loop", LOOP_BOUND), ("psij", PSIJ_BOUND)):
        if other not in times:
            continue
        ours, theirs = statistics.median(times["koalapy"]), statistics.median(times[other])
        ratios = [mine / its for mine, its in zip(times["koalapy"], times[other], strict=True)]
        rows.append(
            {
                "cluster": way, "against": other, "ratio": round(ours / theirs, 3), "bound": bound,
                "interval": [round(each, 3) for each in bootstrap(ratios)],
                "floor": round(least / theirs, 2),
                "koalapy_s": round(ours, 2), "other_s": round(theirs, 2), "holds": ours <= bound * theirs,
                "koalapy_cpu_s": _median(times["koalapy cpu"]), "other_cpu_s": _median(times[f"{other} cpu"]),
                "load": round(statistics.median(times["load"]), 1),
            }
        )  # fmt: skip
    return rows


def _median(values: list[float]) -> float:
    return round(statistics.median(values), 2)


if __name__ == "__main__":
    main()
