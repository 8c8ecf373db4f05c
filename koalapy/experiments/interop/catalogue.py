"""The experiments and systems that come with koalapy, and those in files of the user, for `koala sim run`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from koalapy.common.data import data_path
from koalapy.experiments.interop.experiment import Experiment, read_experiment, with_loads
from koalapy.experiments.interop.run import Part, tasks
from koalapy.experiments.interop.series import lasting
from koalapy.experiments.interop.system import System, read_system
from koalapy.experiments.interop.traces import check_traces
from koalapy.experiments.plan import Options, Plan, Row
from koalapy.model.errors import RequestError
from koalapy.model.textfile.words import use_known


def experiments() -> dict[str, Path]:
    """Return the shipped experiments by name."""
    return {path.stem: path for path in sorted(data_path("configs/experiments").glob("*.yaml"))}


def experiment(name: str) -> Experiment:
    """Return an experiment by its name, or by the path of its file. Raises RequestError if there is none."""
    path = _found(name, experiments(), "experiment")
    return _rooted(read_experiment(_read(path), str(path)), path.parent)


def system(name: str) -> System:
    """Return a system by its name, or by the path of its file. Raises RequestError if there is none."""
    path = _found(name, systems(), "system")
    return read_system(_read(path), str(path))


def systems() -> dict[str, Path]:
    """Return the shipped systems by name."""
    return {path.stem: path for path in sorted(data_path("configs/systems").glob("*.yaml"))}


def is_path(name: str) -> bool:
    return "/" in name or name.endswith((".yaml", ".yml"))


def _rooted(experiment: Experiment, directory: Path) -> Experiment:
    """Return the experiment with complete paths of its traces, which are relative to its file."""
    traces = {
        site: trace.model_copy(update={"file": str(directory / trace.file)})
        for site, trace in experiment.traces.items()
    }
    return experiment.model_copy(update={"traces": traces})


def _found(name: str, known: dict[str, Path], what: str) -> Path:
    if name in known:
        return known[name]
    if is_path(name):
        return Path(name)
    raise RequestError(f"no_{what}", f"There is no {what} {name}.", use_known(name, list(known)))


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise RequestError("unreadable", f"{path} cannot be read: {why}.", "Check its name.") from error


@dataclass(frozen=True, slots=True)
class Evaluation:
    """An experiment that is described by a file. `file`: its contents."""

    file: Experiment

    @property
    def name(self) -> str:
        return self.file.experiment

    @property
    def about(self) -> str:
        return self.file.about

    def plan(self, options: Options) -> Plan[Part]:
        from koalapy.experiments.interop.outcome import (
            figure,  # imports matplotlib
            table,
        )

        options.refuse_logs(self.name)
        loads = list(options.loads) if options.loads is not None else None
        experiment = with_loads(self.file, loads, options.sets)
        chosen = system(experiment.system)
        check_traces(experiment.traces, chosen)
        return Plan(
            tasks=tasks(experiment, chosen, options.seed, options.jobs),
            rows=rows_of,
            figure=lambda parts: figure(experiment, rows_of(parts), lasting(series_of(parts))),
            table=table,
            unit="runs",
            more=_more,
            notes=lambda parts: [*dict.fromkeys(note for part in parts for note in part.notes), *_cut(parts)],
        )


def rows_of(parts: Sequence[Part]) -> list[Row]:
    return list(chain.from_iterable(part.rows for part in parts))


def series_of(parts: Sequence[Part]) -> list[Row]:
    return list(chain.from_iterable(part.series for part in parts))


def _cut(parts: Sequence[Part]) -> list[str]:
    """Return a warning if not all jobs were run: the first ones arrive at night, when the model has few jobs."""
    cuts = [part.cut for part in parts if part.cut is not None]
    if not cuts:
        return []
    hours = f"{min(cut.hours for cut in cuts):.3g} to {max(cut.hours for cut in cuts):.3g}"
    jobs = f"{cuts[0].kept:,} of up to {max(cut.all for cut in cuts):,} jobs"
    return [
        f"WARNING: --jobs ran {jobs} of a set, those of the first {hours} hours, in which fewer jobs come than later. "
        "The loads in the table are those of whole sets: compare nothing here with them. Leave out --jobs for that."
    ]


def _more(parts: Sequence[Part]) -> Mapping[str, list[Row]]:
    series = series_of(parts)
    return {"hours": series} if series else {}
