"""What is heard of Launchers and their parameters, kept until the next step decides what follows."""

from collections.abc import Callable

from koalapy.model.events import (
    LaunchersSeen,
    LauncherSuspected,
    ParametersEnded,
    ParametersReturned,
    ParametersWanted,
)
from koalapy.model.records import Records
from koalapy.scavenging import parameters, suspicion
from koalapy.scavenging.heard import Heard

Told = LaunchersSeen | LauncherSuspected | ParametersEnded | ParametersReturned | ParametersWanted


def hear(records: Records, heard: Heard, event: Told) -> None:
    """Nothing of the wait queue depends on it."""
    _REACTIONS[type(event)](records, heard, event)


def _ended(records: Records, heard: Heard, event: ParametersEnded) -> None:
    fresh = parameters.ended(records, event)
    heard.failures.pop((event.sweep, event.cluster), None)
    suspicion.ran(records, heard, event, fresh)


def _returned(records: Records, heard: Heard, event: ParametersReturned) -> None:
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


_REACTIONS: dict[type, Callable[..., None]] = {
    ParametersEnded: _ended,
    ParametersReturned: _returned,
    ParametersWanted: _wanted,
    LaunchersSeen: _seen,
    LauncherSuspected: _suspected,
}
EVENTS = tuple(_REACTIONS)
