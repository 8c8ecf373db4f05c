"""`koala sim run cs-fairness`: how fairly sweeps share DAS-3, beside the cycle-scavenging paper's own figures."""

from pathlib import Path
from typing import TYPE_CHECKING

from koalapy.cli import output
from koalapy.cli.progress import shown
from koalapy.cli.signals import interruptible

if TYPE_CHECKING:  # the world and matplotlib are imported where they are needed
    from koalapy.simulation.sweeps.fairness import Outcome, Row

_COLUMNS = ("done", "per_minute", "preemptions", "nodes", "lost_hours")


def run_fairness(sets: int | None, seed: int, out: Path, workers: int, as_json: bool) -> None:
    """The table and the figure go to `out`."""
    from koalapy.simulation.sweeps import fairness
    from koalapy.simulation.sweeps.outcome import means, write

    chosen = fairness.courses(seed, sets or fairness.SETS)
    outcomes: list[Outcome] = []
    with interruptible():
        outcomes.extend(shown(fairness.run(chosen, workers), len(chosen), "hours"))
    files = write(chosen, outcomes, out)
    rows = [row for outcome in outcomes for row in outcome.rows]
    if as_json:
        document = {"schema": "koala.experiment/1", "experiment": fairness.NAME, "seed": seed, "rows": rows}
        output.print_json(document | {"files": [str(file) for file in files]})
        return
    output.table(
        ["workload", "policy", "user", "done", "per min", "preempted", "nodes", "lost [h]"], _cells(means(rows))
    )
    output.say(f"Written: {', '.join(str(file) for file in files)}.")


def _cells(rows: "list[Row]") -> list[tuple[str, ...]]:
    return [
        (str(row["workload"]), str(row["policy"]), str(row["user"]), *(f"{float(row[name]):.3g}" for name in _COLUMNS))
        for row in rows
    ]
