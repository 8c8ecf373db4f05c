"""An experiment as described by its file: systems, architectures, loads, variants, and the contents of its figure."""

from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from koalapy.common.registry import registered
from koalapy.experiments.interop.architectures import ARCHITECTURES
from koalapy.experiments.interop.architectures.simulation import Options
from koalapy.experiments.interop.series import COLUMNS as SERIES_COLUMNS
from koalapy.experiments.interop.tally import COLUMNS
from koalapy.experiments.interop.traces import Day, Traces
from koalapy.model.errors import RequestError
from koalapy.model.textfile.document import read_document
from koalapy.model.textfile.fields import (
    Between,
    Flag,
    Line,
    Number,
    Section,
    Span,
    Version,
    Word,
    as_list,
    lasting,
    wrong,
)
from koalapy.model.textfile.validation import validate
from koalapy.model.textfile.words import use_known
from koalapy.model.units import MINUTE, Duration

Percent = Annotated[Number, Between(1, 1000)]


def _known(words: list[str], what: str) -> BeforeValidator:
    return BeforeValidator(lambda value: _checked(value, words, what))


def _checked(value: object, words: list[str], what: str) -> str:
    if value not in words:
        raise wrong(f"is not {what}", f"Known: {', '.join(words)}.")
    return str(value)


def _registered(group: str, what: str) -> BeforeValidator:
    """Check that a name is registered under an entry point group; this reads the group only when a file is checked."""
    return BeforeValidator(lambda value: _checked(value, sorted(registered(group)), what))


Architecture = Annotated[str, _known(list(ARCHITECTURES), "an architecture")]
ARRAY = BeforeValidator(as_list)


class Panel(Section):
    """One diagram of the figure: a column for every architecture, or several columns of one."""

    title: Line = Field(description="the title of its axis")
    columns: Annotated[list[Word], ARRAY] = Field(description="of the table")
    log: Flag = Field(default=False, description="a logarithmic axis")
    only: Annotated[list[Architecture], ARRAY] = Field([], description="the architectures that it shows, all if none")
    beside: Word | None = Field(None, description="a column that is the same for all architectures, drawn once")


class Settings(Section):
    """Settings of the architectures; see `Options`."""

    threshold: Percent = Field(
        default=100, description="of a site's load, in percent, above which requests are delegated"
    )
    matchmaking_interval: Span = Field(default=Duration(5 * MINUTE), description="between two matchmaking cycles")
    delegation_interval: Span = Field(default=MINUTE, description="between two delegation cycles")
    dttl: Annotated[Number, Between(0, 30)] = Field(
        default=4, description="links over which a request may be delegated"
    )
    max_passes: Annotated[Number, Between(0, 1_000_000)] = Field(
        default=1000, description="matchmaking cycles in which a request that does not fit is passed"
    )
    reports: Flag = Field(default=True, description="neighbours send each other how many processors are free")
    delegation: Annotated[str, _registered("koalapy.delegation", "a delegation policy")] = Field(
        default="fcfs", description="its order"
    )
    targets: Annotated[str, _registered("koalapy.targets", "a target policy")] = Field(
        default="nearest", description="whom to ask first"
    )
    binding: Annotated[tuple[Span, Span], BeforeValidator(lambda value: tuple(as_list(value)))] = Field(
        default=(Duration(0), Duration(0)), description="least and most time to bind another site's processors"
    )
    job_managers: Annotated[str, _known(["user", "cluster"], "an owner of job managers")] = Field(
        default="user", description="of fcondor: one for each user, or for each cluster"
    )


class Variant(Section):
    """One variant: settings beside the defaults. `value` stands in the table's last column, `varied`."""

    value: Line = Field(description="its name in the table and the figure")
    settings: Settings = Field(default=Settings(), description="beside the defaults")
    architectures: Annotated[list[Architecture], ARRAY] = Field(
        [], description="those that run with it, all of the experiment's if none"
    )


class Experiment(Section):
    koala: Version = Field(default=1, description="the version of this format")
    experiment: Word = Field(description="name of the experiment")
    about: Line = Field(description="what the experiment shows, in one sentence")
    system: Word = Field(description="a file of configs/systems, or a path")
    architectures: Annotated[list[Architecture], ARRAY] = Field(description="architectures to compare")
    loads: Annotated[list[Percent], ARRAY] = Field(description="loads of all grids, in percent")
    fixed: dict[Word, Percent] = Field(default={}, description="grids whose load does not follow `loads`")
    sets: Annotated[Number, Between(1, 1000)] = Field(default=10, description="number of sets of jobs")
    days: Annotated[Number, Between(1, 3650)] = Field(default=1, description="days on which jobs arrive")
    cool_down: Flag = Field(default=False, description="go on after the last arrival until all jobs have ended")
    variants: Annotated[list[Variant], ARRAY] = Field(
        [Variant(value="-", architectures=[])], description="variants beside the load"
    )
    varied: Line = Field(default="varied", description="label of the axis for the variants")
    along: Word = Field(default="load", description="the figure's horizontal axis: load, varied or hour")
    series: Annotated[Span, lasting(MINUTE)] | None = Field(
        None, description="time between two samples, for the axis hour"
    )
    traces: Traces = Field({}, description="logs by site, in place of the model, its loads and its sets")
    trace_from: Day | None = Field(None, description="first day; by default that of the first job")
    panels: Annotated[list[Panel], ARRAY] = Field(description="panels of the figure")

    @model_validator(mode="after")
    def _something(self) -> Self:
        for name in ("architectures", "loads", "variants", "panels"):
            if not getattr(self, name):
                raise wrong("is empty", "Write at least one.", at=(name,))
        if self.along not in ("load", "varied", "hour"):
            raise wrong(f"is {self.along}", "Write load, varied or hour.", at=("along",))
        if self.along == "hour" and self.series is None:
            raise wrong("is hour, but there is no series", "Add `series: 1h`.", at=("along",))
        known = SERIES_COLUMNS if self.along == "hour" else COLUMNS
        for number, panel in enumerate(self.panels):
            for column in (*panel.columns, *([panel.beside] if panel.beside is not None else [])):
                if column not in known:
                    at = ("panels", number, "columns")
                    raise wrong(f"has {column}, which the table does not have", use_known(column, list(known)), at=at)
        return self

    def options(self, variant: Variant) -> Options:
        settings = variant.settings
        return Options(
            threshold=settings.threshold / 100,
            matchmaking_interval=settings.matchmaking_interval,
            delegation_interval=settings.delegation_interval,
            dttl=settings.dttl,
            max_passes=settings.max_passes,
            reports=settings.reports,
            delegation=settings.delegation,
            targets=settings.targets,
            binding=settings.binding,
            job_managers=settings.job_managers,
            cool_down=self.cool_down,
            series=self.series,
        )


def read_experiment(text: str, source: str) -> Experiment:
    """Return the experiment in a file. Raises RequestError, which names file, place and key."""
    return validate(Experiment, read_document(text, source), {})


def with_loads(experiment: Experiment, loads: list[int] | None, sets: int | None) -> Experiment:
    """Return the experiment with other loads and another number of sets. Raises RequestError if out of range."""
    if experiment.traces and (loads is not None or sets is not None):
        message = f"{experiment.experiment} runs traces, which have one load and are one set."
        raise RequestError("has_traces", message, "Leave out --loads and --sets.")
    if loads is not None and (not loads or not all(1 <= load <= 1000 for load in loads)):
        raise RequestError("bad_loads", "A load is a whole percentage from 1 to 1000.", "Write --loads 50,80.")
    changes = {"loads": list(dict.fromkeys(loads))} if loads is not None else {}
    return experiment.model_copy(update=changes | ({"sets": sets} if sets is not None else {}))
