"""The fairness experiment, for whoever runs experiments."""

from dataclasses import dataclass

from koalapy.experiments.plan import Options, Plan
from koalapy.experiments.sweeps.fairness import ABOUT, NAME, Outcome, courses, rows_of

_SETS = 3


@dataclass(frozen=True, slots=True)
class Fairness:
    """An hour under each policy and each workload, several times over."""

    name: str = NAME
    about: str = ABOUT

    def plan(self, options: Options) -> Plan[Outcome]:
        from koalapy.experiments.sweeps.outcome import figure, table  # and with them matplotlib

        options.refuse_loads_and_jobs(self.name)
        chosen = courses(options.seed, options.sets or _SETS)
        return Plan(
            courses=chosen, rows=rows_of, figure=lambda outcomes: figure(chosen, outcomes), table=table, unit="hours"
        )


CS_FAIRNESS = Fairness()
