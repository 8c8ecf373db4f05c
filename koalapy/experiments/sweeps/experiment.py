"""The fairness experiment for `koala sim run`."""

from dataclasses import dataclass

from koalapy.experiments.plan import Options, Plan
from koalapy.experiments.sweeps.fairness import ABOUT, NAME, FairnessOutcome, rows_of, tasks

_SETS = 3


@dataclass(frozen=True, slots=True)
class Fairness:
    """An hour under each policy and each workload, several times each."""

    name: str = NAME
    about: str = ABOUT

    def plan(self, options: Options) -> Plan[FairnessOutcome]:
        from koalapy.experiments.sweeps.outcome import figure, table  # imports matplotlib

        options.refuse_loads_and_jobs(self.name)
        chosen = tasks(options.seed, options.sets or _SETS)
        return Plan(
            tasks=chosen, rows=rows_of, figure=lambda outcomes: figure(chosen, outcomes), table=table, unit="hours"
        )


CS_FAIRNESS = Fairness()
