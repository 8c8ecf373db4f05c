"""An experiment of the SC'07 paper, as its file describes it, for whoever runs experiments."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from koalapy.simulation.experiments.plan import Options, Plan, Row
from koalapy.simulation.interop import shelf
from koalapy.simulation.interop.experiment import Experiment, with_loads
from koalapy.simulation.interop.run import courses


@dataclass(frozen=True, slots=True)
class Evaluation:
    """`file` is what was read of it."""

    file: Experiment

    @property
    def name(self) -> str:
        return self.file.experiment

    @property
    def about(self) -> str:
        return self.file.about

    def plan(self, options: Options) -> Plan[list[Row]]:
        from koalapy.simulation.interop.outcome import figure, table  # and with them matplotlib

        loads = list(options.loads) if options.loads is not None else None
        experiment = with_loads(self.file, loads, options.sets)
        return Plan(
            courses=courses(experiment, shelf.system(experiment.system), options.seed, options.jobs),
            rows=_rows,
            figure=lambda outcomes: figure(experiment, _rows(outcomes)),
            table=table,
        )


def _rows(outcomes: Sequence[list[Row]]) -> list[Row]:
    return list(chain.from_iterable(outcomes))
