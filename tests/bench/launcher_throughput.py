"""The number of short programs a second on two nodes of four slots: koalapy's Launchers, and others.

Every round runs as many /bin/true each way, in random order, on the same two nodes of a real Slurm: by a sweep of
koalapy, by HyperQueue, by Parsl's high-throughput executor, by Dask, and by eight processes that only start and wait:
the limit. The others stand and are warm before they are asked, and their time is from the first call until the
last answer. A sweep begins with its batch jobs' start, so its time is from the first program's start to the last one's
end. Its start-up stands beside it. All of them keep what programs write as they do by default.

    tests/bench/run launcher-throughput [--rounds N] [--tasks N]
"""

import argparse
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from _grid import bootstrap, end_orderly, koalad_of, last_line, wait_until_measured
from _peers import PACKAGES, Peers

from koalapy import Grid, testgrid

PEER_BOUND, LIMIT_BOUND = 1.0, 0.6
HEAD, NODES = "alpha", ("alpha-c1", "alpha-c2")
Seconds = dict[str, list[float]]


@contextmanager
def two_nodes(tasks: int) -> Iterator[tuple[Grid, Peers]]:
    """A koalad that may scavenge the first two nodes of alpha, and the others on the same ones."""
    end_orderly()
    with testgrid.reserved():
        running = testgrid.up()
        running.reset()
        grid = running.grid(HEAD)
        grid["clusters"][HEAD]["scavenge"] = {"max_nodes": len(NODES)}
        with Peers(running.containers, HEAD, NODES, tasks).installed() as peers, koalad_of(grid, 300) as (koalad, _):
            wait_until_measured(koalad)
            yield koalad, peers


def by_sweep(koalad: Grid, tasks: int) -> dict[str, float]:
    """Seconds of one sweep: `run` from the first program's start to the last one's end, `started` before that."""
    component = {"processors": 1, "executable": "/bin/true", "arguments": ["{x}"], "walltime": "5m"}
    began = time.time()
    sweep = koalad.submit({"components": [component], "parameters": {"x": f"1:{tasks}"}}, directory="/tmp")
    koalad.wait([sweep], 600)
    results = list(koalad.results(sweep))
    if len(results) != tasks or any(each["exit_status"] for each in results):
        raise SystemExit(f"{len(results)} of {tasks} parameters were run")
    first = min(_instant(each["started_at"]) for each in results)
    return {"run": max(_instant(each["ended_at"]) for each in results) - first, "started": first - began}


def measure(rounds: int, tasks: int, chance: random.Random) -> Seconds:
    """Seconds by each way, a round after another."""
    with two_nodes(tasks) as (koalad, peers):
        seconds: Seconds = {way: [] for way in ("koalapy", *PACKAGES, "limit", "started", "load")}

        def sweep() -> float:
            found = by_sweep(koalad, tasks)
            seconds["started"].append(found["started"])
            return found["run"]

        ways: dict[str, Callable[[], float]] = {"koalapy": sweep, "limit": peers.limit}
        ways |= {name: _asks(peers, name) for name in PACKAGES}
        for number in range(rounds):
            seconds["load"].append(os.getloadavg()[0])
            for way in chance.sample(sorted(ways), len(ways)):
                seconds[way].append(ways[way]())
            rates = ", ".join(f"{way} {each[-1]:.2f}" for way, each in seconds.items())
            print(f"round {number + 1}: {rates}", file=sys.stderr, flush=True)
        return seconds


def _asks(peers: Peers, name: str) -> Callable[[], float]:
    return lambda: peers.round(name)


def _instant(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests/bench/run launcher-throughput", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    seconds = measure(arguments.rounds, arguments.tasks, random.Random(arguments.seed))
    rates = {way: arguments.tasks / statistics.median(seconds[way]) for way in ("koalapy", *PACKAGES, "limit")}
    fastest = max(PACKAGES, key=lambda name: rates[name])
    rows = [_row(seconds, rates, fastest, PEER_BOUND), _row(seconds, rates, "limit", LIMIT_BOUND)]
    detail: dict[str, Any] = {
        "rounds": arguments.rounds,
        "tasks": arguments.tasks,
        "per_second": {way: round(rate, 1) for way, rate in rates.items()},
        "rows": rows,
        "started_s": round(statistics.median(seconds["started"]), 2),
        "load": round(statistics.median(seconds["load"]), 1),
        "packages": sorted(PACKAGES.values()),
    }
    holds = all(row["holds"] for row in rows)
    last_line("launcher-throughput", round(rates["koalapy"], 1), "tasks/s", PEER_BOUND, holds, detail)


def _row(seconds: Seconds, rates: dict[str, float], other: str, bound: float) -> dict[str, Any]:
    """The ratio of programs a second, with the interval of the rounds' ratios."""
    ratios = [theirs / ours for ours, theirs in zip(seconds["koalapy"], seconds[other], strict=True)]
    ratio = rates["koalapy"] / rates[other]
    interval = [round(each, 3) for each in bootstrap(ratios)]
    return {"against": other, "ratio": round(ratio, 3), "interval": interval, "bound": bound, "holds": ratio >= bound}


if __name__ == "__main__":
    main()
