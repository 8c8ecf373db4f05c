"""The experiments and systems that come with koalapy, and those in files of the user."""

from pathlib import Path

from koalapy.common.data import data_path
from koalapy.experiments.interop.experiment import Experiment, read_experiment
from koalapy.experiments.interop.system import System, read_system
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
