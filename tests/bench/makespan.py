"""The makespan of a sweep on 32 slots, with Launchers and with one batch job per parameter (CCGrid 2009, figure 4).

Parameters of one second each, on all of the test grid's alpha. A makespan is from the first parameter's start to the
last one's end. The ideal is ceil(n / 32) times the median run of one parameter that runs alone. What it takes from the
submission to the first start stands beside it.

    tests/bench/run makespan [--sizes N,N,...] [--batch-sizes N,N,...]
"""

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from _grid import end_orderly, koalad_of, last_line, wait_until_measured

from koalapy import Grid, testgrid
from koalapy.answers import jobs as answers

HEAD, SLOTS = "alpha", 32
BOUNDS = {512: 1.05, 4096: 1.02}
COMPONENT = {"processors": 1, "executable": "/bin/sleep", "walltime": "1m"}
ALONE = 5
Row = dict[str, Any]


@contextmanager
def all_of_alpha() -> Iterator[Grid]:
    """A koalad over this one cluster, which has nothing else to do."""
    end_orderly()
    with testgrid.reserved():
        running = testgrid.up()
        running.reset()
        grid = running.grid(HEAD)
        grid["queue_after"] = "0s"
        grid["clusters"][HEAD]["backlog"] = max(BOUNDS)
        with koalad_of(grid, 1200) as (koalad, _):
            wait_until_measured(koalad)
            yield koalad


def by_launchers(koalad: Grid, parameters: int) -> Row:
    component = COMPONENT | {"arguments": ["1"], "environment": {"NUMBER": "{x}"}}
    began = time.time()
    sweep = koalad.submit({"components": [component], "parameters": {"x": f"1:{parameters}"}}, directory="/tmp")
    koalad.wait([sweep], 1200)
    runs = [(_instant(each["started_at"]), _instant(each["ended_at"])) for each in koalad.results(sweep)]
    if len(runs) != parameters:
        raise SystemExit(f"{len(runs)} of {parameters} parameters were run")
    return _row("Launchers", parameters, began, runs)


def by_batch_jobs(koalad: Grid, parameters: int) -> Row:
    job = {"components": [COMPONENT | {"arguments": ["1"]}]}
    began = time.time()
    ids = koalad.submit_many([job] * parameters, directory="/tmp")
    ended = koalad.wait(ids, 1200)
    return _row("batch jobs", parameters, began, [_run(each) for each in ended])


def alone(koalad: Grid) -> float:
    """Seconds of one parameter that runs alone."""
    return float(statistics.median(by_launchers(koalad, 1)["makespan_s"] for _ in range(ALONE)))


def _row(way: str, parameters: int, began: float, runs: list[tuple[float, float]]) -> Row:
    first = min(start for start, _ in runs)
    makespan = max(end for _, end in runs) - first
    return {"by": way, "parameters": parameters, "makespan_s": round(makespan, 3), "start_s": round(first - began, 2)}


def _run(job: answers.Job) -> tuple[float, float]:
    return _instant(job["started_at"] or ""), _instant(job["finished_at"] or "")


def _instant(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests/bench/run makespan", description=__doc__)
    parser.add_argument("--sizes", default="32,64,128,256,512,1024,2048,4096")
    parser.add_argument("--batch-sizes", default="32,64,128,256,512", help="by batch jobs, which take long")
    arguments = parser.parse_args()
    rows = []
    with all_of_alpha() as koalad:
        single = alone(koalad)
        for way, sizes in ((by_launchers, arguments.sizes), (by_batch_jobs, arguments.batch_sizes)):
            for size in (int(word) for word in sizes.split(",") if word):
                row = way(koalad, size) | {"load": round(os.getloadavg()[0], 1)}
                row["ratio"] = round(row["makespan_s"] / (math.ceil(size / SLOTS) * single), 3)
                rows.append(row)
                print(row, file=sys.stderr, flush=True)
    ratios = {row["parameters"]: row["ratio"] for row in rows if row["by"] == "Launchers"}
    measured = [size for size in BOUNDS if size in ratios]
    holds = all(ratios[size] <= BOUNDS[size] for size in measured)
    largest = max(measured or ratios)
    detail = {"alone_s": round(single, 3), "rows": rows, "bounds": BOUNDS}
    last_line("makespan", ratios[largest], "times the ideal", BOUNDS.get(largest, 0.0), holds, detail)


if __name__ == "__main__":
    main()
