"""How koalad is, what it owes and what it recovered, as JSON."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from koalapy import __version__
from koalapy.api.documents.document import Document
from koalapy.api.documents.unknown import unknown_tag
from koalapy.model.job import Debt
from koalapy.model.states import JobState
from koalapy.model.units import format_instant
from koalapy.runtime.unknown import Survey
from koalapy.views.recovery import Line, Recovered
from koalapy.views.sweeps import RunnerReport

_FIRST_TAGS = 5


def status(
    facts: Mapping[str, Any],
    debts: Iterable[Debt],
    trouble: Iterable[str],
    found: Recovered,
    surveys: Iterable[Survey] = (),
    asks: Iterable[Document] = (),
    runners: Iterable[RunnerReport] = (),
) -> Document:
    """`facts`: pid, grid, grid_file, grid_file_changed and state of koalad.

    `surveys`: the last ones, of the clusters that were looked at. `asks`: logins that wait for a person.

    `runners`: of the sweeps that are not over.
    """
    tags = [tag for survey in surveys for tag in survey.tags]
    return {
        "schema": "koala.status/1",
        "version": __version__,
        **facts,
        "debts": [debt(each) for each in debts],
        "troubles": list(trouble),
        "asks": list(asks),
        "runners": runners_at_work(list(runners)),
        "recovery": recovery(found),
        "unknown_tags": {"count": len(tags), "first": [unknown_tag(each) for each in tags[:_FIRST_TAGS]]},
    }


def runners_at_work(reports: Sequence[RunnerReport]) -> Document:
    """How many there are, and of the nodes that they have."""
    active = [each for each in reports if each.job.state.active]
    return {
        "active": len(active),
        "waiting": len(reports) - len(active),
        "nodes": sum(place.nodes for each in reports for place in each.places),
    }


def recovery(found: Recovered) -> Document:
    """What there was when koalad started, what is still open of it, and a line for each thing found or cleaned up."""
    return {
        "at": format_instant(found.at),
        "jobs": {str(state): found.jobs.get(state, 0) for state in JobState if not state.final},
        "jobs_at_barrier": found.at_barrier,
        "attempts": found.attempts,
        "attempts_unheard": found.unheard,
        "commands": found.commands,
        "commands_unconfirmed": found.unconfirmed,
        "debts": found.debts,
        "lines": [recovery_line(each) for each in found.lines],
        "lines_dropped": found.dropped,
    }


def recovery_line(line: Line) -> Document:
    return {
        "at": format_instant(line.at),
        "kind": line.kind,
        "text": line.text,
        "job": line.job,
        "attempt": str(line.attempt) if line.attempt else None,
        "cluster": line.cluster,
    }


def debt(debt: Debt) -> Document:
    """A batch job that is to be cancelled when its cluster can be reached, or its batch system does what it is told."""
    return {
        "attempt": str(debt.attempt),
        "cluster": debt.cluster,
        "batch_id": debt.batch_id or None,
        "since": format_instant(debt.since),
        "reason": str(debt.stuck) if debt.stuck else None,
    }
