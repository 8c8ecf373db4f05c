"""The grid file's sections on sweeps: how they share idle nodes, and how many nodes of a cluster they may hold."""

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from koalapy.config.hours import HoursError, parse_hours
from koalapy.config.values import registered_word
from koalapy.model import settings
from koalapy.model.cluster import SCAVENGING_FLOOR
from koalapy.model.textfile.fields import Count, Flag, Line, Positive, Section, Span, Word, lasting, wrong
from koalapy.model.textfile.words import shown
from koalapy.model.units import MILLISECOND, MINUTE, Duration

SWEEP_POLICIES = ("fairshare", "idleness", "admission", "reclaim", "sweep_order")  # the groups of their entry points

_NO_TIME = Duration(0)
_SHORTEST_POLL = Duration(100 * MILLISECOND)
_NAME = WithJsonSchema({"type": "string"})


def _share(value: object) -> float:
    """Return a fraction, written as `0.25` or `25%`. Raises an error of the file for other values."""
    text = str(value).strip() if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    try:
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise wrong(f"is {shown(str(value))}, which is not a share", "Write it like 0.25 or 25%.") from None
    if not 0 <= share <= 1:
        raise wrong(f"is {shown(text)}, which is not between 0 and 1", "Write it like 0.25 or 25%.")
    return share


def _hours(text: str) -> str:
    try:
        return parse_hours(text).text
    except HoursError as error:
        raise wrong(str(error), error.advice) from error


_SHARE = {"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"type": "string", "pattern": r"^\d+(\.\d+)?%$"}]}
Share = Annotated[float, BeforeValidator(_share), WithJsonSchema(_SHARE)]
Hours = Annotated[Line, AfterValidator(_hours)]


class Scavenging(Section):
    """How sweeps share idle nodes."""

    policy: Annotated[str, registered_word("fairshare", "fair-share policy"), _NAME] = Field(
        default=settings.DEFAULT_SHARING, description="how idle nodes are shared"
    )
    idleness: Annotated[str, registered_word("idleness", "idleness policy"), _NAME] = Field(
        default=settings.DEFAULT_IDLENESS, description="what sweeps may have of a cluster"
    )
    admission: Annotated[str, registered_word("admission", "admission policy"), _NAME] = Field(
        default=settings.BY_HAND, description="how many sweeps are active at once"
    )
    reclaim: Annotated[str, registered_word("reclaim", "reclaim policy"), _NAME] = Field(
        default=settings.DEFAULT_RECLAIM, description="which Launcher goes first"
    )
    order: Annotated[str, registered_word("sweep_order", "order of parameters"), _NAME] = Field(
        default=settings.DEFAULT_ORDER, description="which parameters run next"
    )
    grace: Annotated[Span, lasting(_NO_TIME)] = Field(
        default=settings.GRACE, description="between being asked to go and being ended"
    )
    walltime: Annotated[Span, lasting(MINUTE)] = Field(
        default=settings.LAUNCHER_WALLTIME, description="of a Launcher's batch job"
    )
    max_runners: Positive | None = Field(default=None, description="sweeps that are active at once; no bound")
    nodes_per_runner: Positive = Field(
        default=settings.NODES_PER_RUNNER, description="what each should have for `dynamic` to admit another"
    )


class Scavenge(Section):
    """The nodes of a cluster that sweeps may hold."""

    off: Flag = Field(default=False, description="nothing")
    idle_share: Share = Field(default=0.0, description="of its nodes that must be idle, as 0.25 or 25%")
    max_nodes: Count | None = Field(default=None, description="nodes that they may hold; all")
    hours: Hours | None = Field(default=None, description="cron fields of the minutes when they may run; always")
    floor: Annotated[Span, lasting(_SHORTEST_POLL)] = Field(
        default=SCAVENGING_FLOOR, description="shortest poll while they hold nodes"
    )
    queue: Word | None = Field(default=None, description="queue or partition whose jobs the batch system preempts")
    qos: Word | None = Field(default=None, description="quality of service whose jobs it preempts")
    parallel_environment: Word | None = Field(default=None, description="Grid Engine's, for their batch jobs")
