"""The fairness among three users' sweeps on DAS-3 (272 nodes) while grid jobs come and go: CCGrid 2009, section 6.3.

In the simulated world, at full size: one hour under each policy and each workload. The figure is the least that a user
gets done under Equipartition-PerSite, as a part of the most: 1 is perfectly fair. The bound is that of the paper's own
table: 2.4 against 2.7 jobs a minute. With `--live` the same on twelve nodes of the test grid, twenty times as fast:
there a node is a large part of what anybody has. The bound is what Equipartition-All comes to in the same run under
WBlock, that table's workload. The bursts of WBurst are over before so few nodes show how the policies differ.

    tests/bench/run fairness [--live [--faster N]] [--sets N] [--seed S] [--out DIR]
"""

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import _live_fairness as live
from _grid import last_line

from koalapy import testgrid
from koalapy.experiments import files
from koalapy.experiments.plan import Row, outcomes
from koalapy.experiments.sweeps import fairness
from koalapy.experiments.sweeps.outcome import figure, means

BOUND = 2.4 / 2.7
WORKLOADS = ("WBlock", "WBurst")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--live", action="store_true", help="on the test grid")
    parser.add_argument("--faster", type=float, default=20.0, help="so many times as fast, if live")
    parser.add_argument("--sets", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results"))
    arguments = parser.parse_args()
    chosen = fairness.tasks(arguments.seed, arguments.sets)
    name, about = (live.NAME, live.ABOUT) if arguments.live else (fairness.NAME, fairness.ABOUT)
    found = list(played(chosen, arguments.faster) if arguments.live else outcomes(chosen, os.cpu_count() or 1))
    files.write(name, fairness.rows_of(found), figure(chosen, found, about), arguments.out)
    rows = means(fairness.rows_of(found))
    print_rows(rows)
    judged = WORKLOADS[:1] if arguments.live else WORKLOADS
    least = min(fair(rows, workload, "equipartition-persite") for workload in judged)
    bound = max(fair(rows, workload, "equipartition-all") for workload in judged) if arguments.live else BOUND
    detail: dict[str, Any] = {
        f"{each.workload} {each.policy}": fair(rows, each.workload, each.policy) for each in chosen
    }
    detail |= {"load": round(os.getloadavg()[0], 1), "rows": rows}
    last_line("fairness", least, "least user's parameters / most user's", bound, least >= bound, detail)


def played(chosen: list[fairness.FairnessTask], faster: float) -> Iterator[fairness.FairnessOutcome]:
    with testgrid.reserved():
        running = testgrid.up()
        for task in chosen:
            yield (outcome := live.play(running, task, faster))
            outcomes = [f"{row['done']} done, {row['preemptions']} preempted" for row in outcome.rows]
            print(f"{task.workload} {task.policy}: {'; '.join(outcomes)}", file=sys.stderr, flush=True)
        running.reset()


def print_rows(rows: list[Row]) -> None:
    fields = [name for name in rows[0] if name not in ("workload", "policy", "user")]
    print(f"{'':29}" + "".join(f"{field:>13}" for field in fields))
    for row in rows:
        name = f"{row['workload']} {row['policy']} {row['user']}"
        print(f"{name:<30}" + "".join(f"{float(row[field]):>13.3g}" for field in fields))


def fair(rows: list[Row], workload: str, policy: str) -> float:
    done = [float(row["done"]) for row in rows if (row["workload"], row["policy"]) == (workload, policy)]
    return min(done) / max(done)


if __name__ == "__main__":
    main()
