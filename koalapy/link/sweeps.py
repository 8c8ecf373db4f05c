"""Translation of a KCM's messages about sweeps to events of the core. Pure.

A tag of another store is ignored. A sweep's number needs no such check, for a KCM serves one store only.
"""

from collections.abc import Callable, Iterable
from typing import Any

from koalapy_adapters.messages import fields, kcm

from koalapy.link.translate import Mapped, own_attempt
from koalapy.model.events import (
    Event,
    LaunchersSeen,
    LauncherSuspected,
    ParametersEnded,
    ParametersReturned,
    ParametersWanted,
)
from koalapy.model.identity import InstanceId, JobId
from koalapy.model.intervals import Intervals
from koalapy.model.parameters import ParameterResult


def event_of(instance: InstanceId, cluster: str, message: Any, mapped: Mapped) -> Event | None:
    """Return the event of a message about sweeps; None for any other message, or a tag of another store.

    Raises MessageError for a broken message.
    """
    translation = _TRANSLATIONS.get(type(message))
    try:
        return None if translation is None else translation(instance, cluster, message, mapped)
    except (TypeError, ValueError) as error:
        raise fields.MessageError(f"{type(message).__name__}: {error}") from error


def _ended(instance: InstanceId, cluster: str, message: kcm.ParametersEnded, mapped: Mapped) -> Event | None:
    attempt = own_attempt(instance, message.tag)
    if attempt is None:
        return None
    results = tuple(_result(row, mapped) for row in message.results)
    return ParametersEnded(cluster=cluster, sweep=JobId(message.sweep), attempt=attempt, results=results)


def _result(row: list[Any], mapped: Mapped) -> ParameterResult:
    """Return the result on koalad's clock. Its duration is exact; its instants are as exact as the clock offset."""
    result = ParameterResult(*row)
    lasted, ended_at = max(0, result.ended_at - result.started_at), mapped(result.ended_at)
    return result._replace(started_at=ended_at - lasted, ended_at=ended_at)


def _returned(instance: InstanceId, cluster: str, message: kcm.ParametersReturned, mapped: Mapped) -> Event:
    numbers, begun = _intervals(message.ranges), _intervals(message.begun)
    return ParametersReturned(cluster=cluster, sweep=JobId(message.sweep), numbers=numbers, begun=begun)


def _intervals(ranges: Iterable[list[int]]) -> Intervals:
    return Intervals.of((int(first), int(last)) for first, last in ranges)


def _wanted(instance: InstanceId, cluster: str, message: kcm.ParametersWanted, mapped: Mapped) -> Event:
    return ParametersWanted(cluster=cluster, sweep=JobId(message.sweep), wanted=message.wanted)


def _seen(instance: InstanceId, cluster: str, message: kcm.LaunchersSeen, mapped: Mapped) -> Event:
    theirs = [(own_attempt(instance, tag), running, newest_at) for tag, running, newest_at in message.launchers]
    ours = tuple((attempt, running, mapped(at)) for attempt, running, at in theirs if attempt is not None)
    return LaunchersSeen(cluster=cluster, launchers=ours)


def _suspected(instance: InstanceId, cluster: str, message: kcm.LauncherSuspected, mapped: Mapped) -> Event | None:
    attempt = own_attempt(instance, message.tag)
    return None if attempt is None else LauncherSuspected(cluster=cluster, attempt=attempt, host=message.host)


_TRANSLATIONS: dict[type, Callable[[InstanceId, str, Any, Mapped], Event | None]] = {
    kcm.ParametersEnded: _ended,
    kcm.ParametersReturned: _returned,
    kcm.ParametersWanted: _wanted,
    kcm.LaunchersSeen: _seen,
    kcm.LauncherSuspected: _suspected,
}
