"""The catalogue of the experiments of `koala sim run`, by name: some are code, others are described by a file."""

from dataclasses import dataclass

from koalapy.experiments.dcs import batch
from koalapy.experiments.interop import catalogue as files
from koalapy.experiments.plan import Experiment, Options, Plan, Row
from koalapy.experiments.sweeps import fairness
from koalapy.experiments.sweeps.makespan import CS_MAKESPAN
from koalapy.model.errors import RequestError
from koalapy.model.textfile.words import use_known

_HOURS = 3  # of each policy and workload


@dataclass(frozen=True, slots=True)
class DcsBatch:
    """A batch on DAS-2 in every case, several times each."""

    name: str = "dcs-batch"
    about: str = "A batch of 40 jobs of four components on the clusters of DAS-2, under FCFS and FPFS (DCS, section 4)."

    def plan(self, options: Options) -> Plan[batch.BatchOutcome]:
        from koalapy.experiments.dcs.outcome import figure, table  # imports matplotlib

        options.refuse_logs(self.name)
        chosen, rows = batch.tasks(options), batch.rows_of
        return Plan(
            tasks=chosen, rows=rows, figure=lambda outcomes: figure(chosen, outcomes), table=table, unit="batches"
        )


@dataclass(frozen=True, slots=True)
class Fairness:
    """An hour under each policy and each workload, several times each."""

    name: str = fairness.NAME
    about: str = fairness.ABOUT

    def plan(self, options: Options) -> Plan[fairness.FairnessOutcome]:
        from koalapy.experiments.sweeps.outcome import figure, table  # imports matplotlib

        options.refuse_loads_and_jobs(self.name)
        chosen, rows = fairness.tasks(options.seed, options.sets or _HOURS), fairness.rows_of
        return Plan(
            tasks=chosen, rows=rows, figure=lambda outcomes: figure(chosen, outcomes), table=table, unit="hours"
        )


@dataclass(frozen=True, slots=True)
class Busy:
    """Jobs beside those of each log at every load, several times each, in all ways to wait."""

    name: str = "busy"
    about: str = "Jobs of one to three components on clusters that others fill: waiting for processors, or in queues."

    def plan(self, options: Options) -> Plan[Row]:
        from koalapy.experiments.busy import tasks  # imports numpy
        from koalapy.experiments.busy.outcome import figure, summary, table  # imports matplotlib

        return Plan(
            tasks=tasks.tasks(options),
            rows=list,
            figure=figure,
            table=table,
            unit="runs",
            more=lambda rows: {"summary": summary(rows)},
            notes=lambda _: tasks.notes(options.logs),
        )


BUSY, DCS_BATCH, CS_FAIRNESS = Busy(), DcsBatch(), Fairness()
_CODE: tuple[Experiment, ...] = (BUSY, CS_FAIRNESS, CS_MAKESPAN, DCS_BATCH)


def experiments() -> list[Experiment]:
    """Return all experiments that come with koalapy. Raises RequestError for a file that cannot be read."""
    return [*_CODE, *(files.Evaluation(files.experiment(name)) for name in files.experiments())]


def experiment(name: str) -> Experiment:
    """Return an experiment by its name, or by the path of its file. Raises RequestError if there is none."""
    code: dict[str, Experiment] = {each.name: each for each in _CODE}
    if name in code:
        return code[name]
    known = files.experiments()
    if name not in known and not files.is_path(name):
        advice = use_known(name, [*code, *known])
        raise RequestError("no_experiment", f"There is no experiment {name}.", advice)
    return files.Evaluation(files.experiment(name))
