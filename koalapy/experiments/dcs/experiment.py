"""The DCS experiment for `koala sim run`."""

from dataclasses import dataclass

from koalapy.experiments.dcs.batch import BatchOutcome, rows_of, tasks
from koalapy.experiments.plan import Options, Plan


@dataclass(frozen=True, slots=True)
class DcsBatch:
    """A batch on DAS-2 in every case, several times each."""

    name: str = "dcs-batch"
    about: str = "A batch of 40 jobs of four components on the clusters of DAS-2, under FCFS and FPFS (DCS, section 4)."

    def plan(self, options: Options) -> Plan[BatchOutcome]:
        from koalapy.experiments.dcs.outcome import figure, table  # imports matplotlib

        chosen = tasks(options)
        return Plan(
            tasks=chosen, rows=rows_of, figure=lambda outcomes: figure(chosen, outcomes), table=table, unit="batches"
        )


DCS_BATCH = DcsBatch()
