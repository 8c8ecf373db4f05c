"""The catalogue of the experiments of `koala sim run`, by name: some are code, others are described by a file."""

from koalapy.experiments.dcs.experiment import DCS_BATCH
from koalapy.experiments.interop import catalogue as files
from koalapy.experiments.interop.evaluation import Evaluation
from koalapy.experiments.plan import Experiment
from koalapy.experiments.sweeps.experiment import CS_FAIRNESS
from koalapy.experiments.sweeps.makespan import CS_MAKESPAN
from koalapy.model.errors import RequestError
from koalapy.model.textfile.words import use_known

_CODE: tuple[Experiment, ...] = (CS_FAIRNESS, CS_MAKESPAN, DCS_BATCH)


def experiments() -> list[Experiment]:
    """Return all experiments that come with koalapy. Raises RequestError for a file that cannot be read."""
    return [*_CODE, *(Evaluation(files.experiment(name)) for name in files.experiments())]


def experiment(name: str) -> Experiment:
    """Return an experiment by its name, or by the path of its file. Raises RequestError if there is none."""
    code: dict[str, Experiment] = {each.name: each for each in _CODE}
    if name in code:
        return code[name]
    known = files.experiments()
    if name not in known and not files.is_path(name):
        advice = use_known(name, [*code, *known])
        raise RequestError("no_experiment", f"There is no experiment {name}.", advice)
    return Evaluation(files.experiment(name))
