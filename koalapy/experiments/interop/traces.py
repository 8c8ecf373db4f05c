"""The part of an experiment's file on logs of real grids, which replace the model's streams."""

from collections.abc import Mapping
from datetime import date
from typing import Annotated

from pydantic import BeforeValidator, Field

from koalapy.experiments.interop.system import System
from koalapy.model.errors import RequestError
from koalapy.model.textfile.fields import Flag, Line, Section, Word, as_line, wrong
from koalapy.model.textfile.words import use_known


def _as_day(value: object) -> date:
    text = as_line(value)
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise wrong(f"is {text[:40]}, which is not a day", "Write year, month and day: 2005-11-01.") from None


def _as_trace(value: object) -> object:
    return {"file": value} if isinstance(value, str) else value


Day = Annotated[date, BeforeValidator(_as_day)]


class Trace(Section):
    """The log of one site's jobs: of a cluster, or of the clusters below the site. A path alone is valid too."""

    file: Line = Field(description="SWF or GWF, also .gz, .xz or .bz2; relative to the experiment's file")
    names: dict[Word, Word] = Field({}, description="the log's own names of clusters, to the system's")
    lenient: Flag = Field(False, description="leave out lines that are wrong, and jobs of other sites, and count them")
    starts: Day | None = Field(None, description="the day of its time zero, if it has none")


Traces = dict[Word, Annotated[Trace, BeforeValidator(_as_trace)]]


def check_traces(traces: Mapping[str, Trace], system: System) -> None:
    """Check the sites of the traces. Raises RequestError for an unknown site, and for a name of no cluster."""
    for site, trace in traces.items():
        below = clusters_of(system, site)
        if not below:
            advice = use_known(site, list(system.parents))
            raise RequestError("no_such_site", f"traces: {system.name} has no site {site}.", advice)
        for name in trace.names.values():
            if name not in below:
                message = f"traces, {site}, names: {name} is not a cluster of {site}."
                raise RequestError("no_such_cluster", message, use_known(name, list(below)))


def clusters_of(system: System, site: str) -> tuple[str, ...]:
    """Return the site itself if it is a cluster, else all clusters below it; none if the system has no such site."""
    return tuple(cluster for cluster in system.clusters if site in _and_above(system, cluster))


def _and_above(system: System, cluster: str) -> list[str]:
    path: list[str] = []
    above: str | None = cluster
    while above is not None:
        path.append(above)
        above = system.parents[above]
    return path
