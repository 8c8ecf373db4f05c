"""The DCS experiment (the paper's section 4.3), scaled to the test grid: a batch of 40 jobs of four components.

FCFS and FPFS; ordered, unordered and an even mix. A table like the paper's figures 2 to 4: response time (submit to
done), run time (start to the last process's end) and overhead (all of claim and completion that is not running).
"""

import argparse
import statistics
from collections.abc import Iterator
from datetime import datetime
from itertools import cycle
from typing import Any

from _grid import koalad_on_test_grid, last_line, wait_until_measured

from koalapy.common.data import data_path

Document = dict[str, Any]
COMPONENTS, PROCESSORS = 4, 2
ORDERED = ("alpha", "beta", "gamma", "alpha")
POISSON = data_path("configs") / "examples" / "poisson" / "poisson.py"


def job(kind: str, number: int, grid: int) -> Document:
    program = {
        "processors": PROCESSORS,
        "executable": "./poisson.py",
        "arguments": ["--grid", str(grid), "--tolerance", "0", "--max-iterations", "300"],
        "walltime": "10m",
    }
    ordered = kind == "ordered" or (kind == "mixed" and number % 2 == 0)
    places: Iterator[Document] = ({"cluster": name} for name in cycle(ORDERED)) if ordered else cycle([{}])
    components = [program | next(places) for _ in range(COMPONENTS)]
    return {"name": f"dcs-{kind}-{number}", "components": components, "stage_in": [str(POISSON)]}


def seconds(begin: str | None, end: str | None) -> float:
    assert begin is not None
    assert end is not None
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()


def experiment(queue: str, kind: str, jobs: int, grid: int) -> Document:
    with koalad_on_test_grid(queue=queue) as (koalad, _):
        wait_until_measured(koalad)
        numbers = [koalad.submit(job(kind, number, grid), directory="/tmp") for number in range(jobs)]
        found = koalad.wait(numbers, 3600)
        stories = {each["id"]: koalad.show(each["id"])["events"] for each in found}
    failed = [each["reason"] for each in found if each["state"] != "done"]
    if failed:
        raise SystemExit(f"{len(failed)} jobs failed, the first: {failed[0]}")
    rows = []
    for each in found:
        claimed = [event["at"] for event in stories[each["id"]] if event["kind"] == "job_claimed"][-1]
        run = seconds(each["started_at"], max(part["ended_at"] or "" for part in each["components"]))
        rows.append(
            (seconds(each["submitted_at"], each["finished_at"]), run, seconds(claimed, each["finished_at"]) - run)
        )
    failures = sum(each["submission_failures"] + each["completion_failures"] for each in found)
    makespan = seconds(min(each["submitted_at"] for each in found), max(each["finished_at"] or "" for each in found))
    return {"queue": queue, "kind": kind, "rows": rows, "failures": failures, "makespan": makespan}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=40)
    parser.add_argument("--grid", type=int, default=64, help="points a side of the Poisson problem")
    parser.add_argument("--queues", default="fcfs,fpfs", help="of these policies only")
    parser.add_argument("--kinds", default="ordered,unordered,mixed", help="of these kinds of jobs only")
    arguments = parser.parse_args()
    print("| queue | jobs | | response | run | overhead | makespan | failures |\n|---|---|---|---|---|---|---|---|")
    overheads: list[float] = []
    for queue in arguments.queues.split(","):
        for kind in arguments.kinds.split(","):
            result = experiment(queue, kind, arguments.jobs, arguments.grid)
            columns = list(zip(*result["rows"], strict=True))
            overheads += columns[2]
            for name, figure in (("avg", statistics.mean), ("stdev", statistics.stdev)):
                numbers = " | ".join(f"{figure(column):.1f}" for column in columns)
                last = f"{result['makespan']:.1f} | {result['failures']}" if name == "avg" else " | "
                print(f"| {queue} | {kind} | {name} | {numbers} | {last} |", flush=True)
    overhead = statistics.mean(overheads)
    # DCS on DUROC: 21.9 to 32.9 s of overhead a job, in its four tables.
    last_line("dcs", round(overhead, 2), "s", 21.9, overhead <= 21.9, {"jobs": len(overheads)})


if __name__ == "__main__":
    main()
