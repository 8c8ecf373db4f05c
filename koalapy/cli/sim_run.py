"""`koala sim run`: the papers' experiments, in the simulated world."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from rich.progress import track

from koalapy.cli import output
from koalapy.cli.options import Json
from koalapy.cli.signals import interruptible
from koalapy.common.extras import need_extra
from koalapy.model.errors import RequestError

Item = TypeVar("Item")
Name = Annotated[
    str, typer.Argument(metavar="EXPERIMENT", help="Its name (see koala sim list), or the path of its file.")
]
Loads = Annotated[str | None, typer.Option("--loads", metavar="P,P…", help="Loads in percent, instead of its own.")]
Sets = Annotated[int | None, typer.Option("--sets", min=1, max=1000, help="Number of job sets, instead of its own.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="The seed of all random numbers.")]
Jobs = Annotated[int | None, typer.Option("--jobs", min=1, help="Run only the first N jobs of each set, as a trial.")]
Logs = Annotated[
    list[Path] | None,
    typer.Option("--log", metavar="FILE", help="A log of other users' jobs, for busy; repeat it."),
]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory for table and figure.")]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Number of processes. Default: one for each processor.")
]


def run_experiment(
    name: Name,
    loads: Loads = None,
    sets: Sets = None,
    seed: Seed = 1,
    jobs: Jobs = None,
    log: Logs = None,
    out: Out = Path("results"),
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Run an experiment: a table (CSV) and a figure (PNG, SVG). The same seed gives the same bytes."""
    with output.errors_reported():
        need_extra("experiments", "An experiment")
        from koalapy.experiments.catalogue import experiment
        from koalapy.experiments.files import check, write
        from koalapy.experiments.plan import Options, outcomes

        chosen = experiment(name)
        options = Options(seed=seed, sets=sets, loads=_percentages(loads), jobs=jobs, logs=tuple(log or ()))
        plan = chosen.plan(options)
        check(out)
        found: list[Any] = []
        with interruptible():
            found.extend(_shown(outcomes(plan.tasks, workers or os.cpu_count() or 1), len(plan.tasks), plan.unit))
            rows = plan.rows(found)
            files = write(chosen.name, rows, plan.figure(found), out, plan.more(found))
    for note in plan.notes(found):
        output.print_message(note)
    if as_json:
        document = {"schema": "koala.experiment/1", "experiment": chosen.name, "seed": seed, "rows": rows}
        document["notes"] = list(plan.notes(found))
        output.print_json(document | {"files": [str(file) for file in files]})
    else:
        output.table(*plan.table(rows))
        output.print_message(f"Written: {', '.join(str(file) for file in files)}.")


def _percentages(loads: str | None) -> list[int] | None:
    if loads is None:
        return None
    try:
        return [int(load) for load in loads.split(",")]
    except ValueError:
        raise RequestError(
            "bad_loads", f"--loads {loads} is not a list of percentages.", "Write --loads 50,80."
        ) from None


def _shown(items: Iterable[Item], total: int, what: str = "sets") -> Iterator[Item]:
    """Yield the items, and show the progress: a bar on a terminal, else plain lines."""
    if output.errors.is_terminal:
        yield from track(items, description=what.capitalize(), total=total, console=output.errors.console)
        return
    for number, item in enumerate(items, 1):
        output.print_message(f"{number} of {total} {what}")
        yield item
