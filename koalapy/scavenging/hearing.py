"""What is heard of Launchers and their parameters, kept until the next step decides what follows."""

from collections.abc import Callable

from koalapy.model.events import (
    LaunchersSeen,
    LauncherSuspected,
    ParametersEnded,
    ParametersReturned,
    ParametersWanted,
)
from koalapy.model.intervals import NONE
from koalapy.model.records import Records
from koalapy.scavenging import parameters, suspicion
from koalapy.scavenging.heard import Heard
from koalapy.scavenging.launchers import runner_of

Told = LaunchersSeen | LauncherSuspected | ParametersEnded | ParametersReturned | ParametersWanted


def hear(records: Records, heard: Heard, event: Told) -> int:
    """Nothing of the wait queue depends on it. How many results are of parameters that were never out there."""
    return _REACTIONS[type(event)](records, heard, event) or 0


def _ended(records: Records, heard: Heard, event: ParametersEnded) -> int:
    fresh, foreign = parameters.ended(records, event, heard.fed.get((event.sweep, event.cluster), NONE))
    heard.failures.pop((event.sweep, event.cluster), None)
    suspicion.ran(records, heard, event, fresh)
    return foreign


def _returned(records: Records, heard: Heard, event: ParametersReturned) -> None:
    """Whoever has them in hand all the same may still tell of their end."""
    if (sweep := parameters.sweep_of(records, event.sweep)) is not None:
        out = runner_of(sweep).out_on(event.cluster)
        there = heard.fed.get((event.sweep, event.cluster), NONE)
        heard.fed[event.sweep, event.cluster] = there | (event.numbers & out)
    parameters.returned(records, event)


def _wanted(records: Records, heard: Heard, event: ParametersWanted) -> None:
    if parameters.sweep_of(records, event.sweep) is not None:
        heard.wanted[event.sweep, event.cluster] = event.wanted


def _seen(records: Records, heard: Heard, event: LaunchersSeen) -> None:
    for attempt, running, pulled_at in event.launchers:
        if records.component(attempt) is not None:
            heard.doing[attempt] = running, pulled_at


def _suspected(records: Records, heard: Heard, event: LauncherSuspected) -> None:
    suspicion.suspected(records, heard, event)


_REACTIONS: dict[type, Callable[..., int | None]] = {
    ParametersEnded: _ended,
    ParametersReturned: _returned,
    ParametersWanted: _wanted,
    LaunchersSeen: _seen,
    LauncherSuspected: _suspected,
}
EVENTS = tuple(_REACTIONS)
