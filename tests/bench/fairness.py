"""How fairly three users' sweeps share DAS-3 (272 nodes) while grid jobs come and go: CCGrid 2009, section 6.3.

In the simulated world, at full size: one hour under each policy and each workload. The figure is the least that a user
gets done under Equipartition-PerSite, as a part of the most: 1 is perfectly fair. The bound is that of the paper's own
table: 2.4 against 2.7 jobs a minute.
"""

import argparse
import os
from pathlib import Path

from _grid import last_line

from koalapy.simulation.sweeps import fairness
from koalapy.simulation.sweeps.outcome import means, write

BOUND = 2.4 / 2.7
FIELDS = ("done", "per_minute", "preemptions", "nodes", "lost_hours")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("results"))
    arguments = parser.parse_args()
    chosen = fairness.courses(arguments.seed, arguments.sets)
    outcomes = list(fairness.run(chosen, os.cpu_count() or 1))
    rows = means([row for outcome in outcomes for row in outcome.rows])
    print(f"{'':29}" + "".join(f"{field:>13}" for field in FIELDS))
    for row in rows:
        name = f"{row['workload']} {row['policy']} {row['user']}"
        print(f"{name:<30}" + "".join(f"{float(row[field]):>13.3g}" for field in FIELDS))
    write(chosen, outcomes, arguments.out)
    figure = min(fair(rows, workload, "equipartition-persite") for workload in ("WBlock", "WBurst"))
    detail = {f"{each.workload} {each.policy}": fair(rows, each.workload, each.policy) for each in chosen}
    last_line(
        "fairness", figure, "least user's parameters / most user's", BOUND, figure >= BOUND, detail | {"rows": rows}
    )


def fair(rows: list[fairness.Row], workload: str, policy: str) -> float:
    done = [float(row["done"]) for row in rows if (row["workload"], row["policy"]) == (workload, policy)]
    return min(done) / max(done)


if __name__ == "__main__":
    main()
