"""`koala sim run`: the papers' experiments, in the simulated world."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from koalapy.cli import output
from koalapy.cli.fairness import run_fairness
from koalapy.cli.options import Json
from koalapy.cli.progress import shown
from koalapy.cli.signals import interruptible
from koalapy.model.errors import RequestError

if TYPE_CHECKING:  # numpy and matplotlib are imported where they are needed: other commands start without them
    from koalapy.simulation.interop.run import Row

FAIRNESS = "cs-fairness"

Name = Annotated[str, typer.Argument(metavar="EXPERIMENT", help="Its name (koala sim list), or the path of its file.")]
Loads = Annotated[str | None, typer.Option("--loads", metavar="P,P…", help="Loads in percent, instead of its own.")]
Sets = Annotated[int | None, typer.Option("--sets", min=1, max=1000, help="How many sets of jobs, instead of its own.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="From which all of it follows.")]
Jobs = Annotated[int | None, typer.Option("--jobs", min=1, help="At most so many jobs of each set.")]
Out = Annotated[Path, typer.Option("--out", metavar="DIR", help="Where its table and figure go.")]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Processes. Default: one a processor.")]


def run_experiment(
    name: Name,
    loads: Loads = None,
    sets: Sets = None,
    seed: Seed = 1,
    jobs: Jobs = None,
    out: Out = Path("results"),
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Run an experiment: a table (CSV) and a figure (PNG, SVG). The same seed gives the same bytes."""
    with output.told():
        _need_matplotlib()
        if name == FAIRNESS:
            _refuse_loads(loads, jobs)
            return run_fairness(sets, seed, out, workers or os.cpu_count() or 1, as_json)
        from koalapy.simulation.interop import shelf
        from koalapy.simulation.interop.experiment import with_loads
        from koalapy.simulation.interop.outcome import write
        from koalapy.simulation.interop.run import courses, run

        experiment = with_loads(shelf.experiment(name), _percentages(loads), sets)
        chosen = courses(experiment, shelf.system(experiment.system), seed, jobs)
        rows: list[Row] = []
        with interruptible():
            for some in shown(run(chosen, workers or os.cpu_count() or 1), len(chosen)):
                rows.extend(some)
        files = write(experiment, rows, out)
    if as_json:
        document = {"schema": "koala.experiment/1", "experiment": experiment.experiment, "seed": seed, "rows": rows}
        output.print_json(document | {"files": [str(file) for file in files]})
    else:
        _print_means(rows)
        output.say(f"Written: {', '.join(str(file) for file in files)}.")
    return None


def _refuse_loads(loads: str | None, jobs: int | None) -> None:
    if loads is not None or jobs is not None:
        message = f"{FAIRNESS} has the paper's own workloads, and knows neither --loads nor --jobs."
        raise RequestError("no_such_option", message, "Leave them out.")


def _need_matplotlib() -> None:
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        message = "Experiments draw their figures with matplotlib, which is not installed."
        raise RequestError(
            "no_matplotlib", message, "Install koalapy with its extra: pip install 'koalapy[sim]'."
        ) from None


def _percentages(loads: str | None) -> list[int] | None:
    if loads is None:
        return None
    try:
        return [int(load) for load in loads.split(",")]
    except ValueError:
        raise RequestError("bad_loads", f"{loads} is no list of percentages.", "Write --loads 50,80.") from None


def _print_means(rows: "list[Row]") -> None:
    """For people: each architecture at each load, with half of the 95 % confidence interval."""
    from koalapy.simulation.interop.outcome import mean

    keys = list(dict.fromkeys((row["load"], row["varied"], row["architecture"]) for row in rows))
    table = []
    for load, varied, architecture in keys:
        alike = [
            row for row in rows if (row["load"], row["varied"], row["architecture"]) == (load, varied, architecture)
        ]
        share, _ = mean([100 * float(row["finished"]) / max(1, float(row["jobs"])) for row in alike])
        cells = [_with_error(mean([float(row[name]) for row in alike])) for name in ("goodput", "wait_s", "slowdown")]
        table.append((str(load), str(varied), str(architecture), f"{share:.1f}", *cells))
    output.table(["load %", "varied", "architecture", "finished %", "goodput [y]", "wait [s]", "slowdown"], table)


def _with_error(found: tuple[float, float]) -> str:
    value, half = found
    return f"{value:.4g} ± {half:.2g}" if half else f"{value:.4g}"
