"""The interface of an experiment: independent tasks, and the rows, table and figure that their outcomes give."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeVar

from koalapy.experiments.workers import spread
from koalapy.model.errors import RequestError

if TYPE_CHECKING:  # listing the experiments needs no matplotlib
    from matplotlib.figure import Figure

Row = dict[str, str | int | float]
Outcome = TypeVar("Outcome")
Came = TypeVar("Came", covariant=True)


class Task(Protocol[Came]):
    """One part of an experiment. It can be sent to another process."""

    def outcome(self) -> Came:
        """Return the outcome; the same seed gives the same one in every process."""
        ...


class Table(NamedTuple):
    """A table to print."""

    headings: Sequence[str]
    lines: Sequence[tuple[str, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the command line; None: the experiment's own value. `loads` are in percent, `jobs` per set.

    `logs`: files with the jobs of other users, for an experiment that needs them.
    """

    seed: int = 1
    sets: int | None = None
    loads: Sequence[int] | None = None
    jobs: int | None = None
    logs: Sequence[Path] = ()

    def refuse_logs(self, experiment: str) -> None:
        """Refuse `logs` for an experiment that needs none. Raises RequestError."""
        if self.logs:
            raise RequestError("no_such_option", f"{experiment} does not know --log.", "Leave it out.")

    def refuse_loads_and_jobs(self, experiment: str) -> None:
        """Refuse `loads`, `jobs` and `logs` for an experiment with workloads of its own. Raises RequestError."""
        self.refuse_logs(experiment)
        if self.loads is not None or self.jobs is not None:
            message = f"{experiment} has the paper's own workloads, and knows neither --loads nor --jobs."
            raise RequestError("no_such_option", message, "Leave them out.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Generic[Outcome]):
    """One run of an experiment. `unit`: the word for its tasks, in the plural.

    `more`: further tables, by the suffix of their files' names after the experiment's. `notes`: sentences for the user.
    """

    tasks: Sequence[Task[Outcome]]
    rows: Callable[[Sequence[Outcome]], list[Row]]
    figure: Callable[[Sequence[Outcome]], "Figure"]
    table: Callable[[Sequence[Row]], Table]
    unit: str = "sets"
    more: Callable[[Sequence[Outcome]], Mapping[str, list[Row]]] = lambda _: {}
    notes: Callable[[Sequence[Outcome]], Sequence[str]] = lambda _: ()


class Experiment(Protocol):
    """An experiment. `name` is also the name of its files; `about` is a sentence."""

    @property
    def name(self) -> str: ...

    @property
    def about(self) -> str: ...

    def plan(self, options: Options) -> Plan[Any]:
        """Return the plan of a run. Raises RequestError for options that the experiment does not have."""
        ...


def outcomes(tasks: Sequence[Task[Outcome]], workers: int) -> Iterator[Outcome]:
    """Run the tasks in up to `workers` processes, and yield their outcomes in the order of the tasks."""
    return spread(_outcome, tasks, workers)


def _outcome(task: Task[Outcome]) -> Outcome:
    return task.outcome()
