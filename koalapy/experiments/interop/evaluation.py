"""An experiment of the SC'07 paper as described by its file, for `koala sim run`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from koalapy.experiments.interop import catalogue
from koalapy.experiments.interop.experiment import Experiment, with_loads
from koalapy.experiments.interop.run import Part, tasks
from koalapy.experiments.interop.series import lasting
from koalapy.experiments.interop.traces import check_traces
from koalapy.experiments.plan import Options, Plan, Row


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
        from koalapy.experiments.interop.figure import figure  # imports matplotlib
        from koalapy.experiments.interop.outcome import table

        loads = list(options.loads) if options.loads is not None else None
        experiment = with_loads(self.file, loads, options.sets)
        system = catalogue.system(experiment.system)
        check_traces(experiment.traces, system)
        return Plan(
            tasks=tasks(experiment, system, options.seed, options.jobs),
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
