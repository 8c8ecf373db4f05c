"""What clusters tell of components, passed on to whoever follows each part of a job's life."""

from collections.abc import Callable

from koalapy.coallocation import claim, finishing, reports, sightings, stopping
from koalapy.information.kis import Information
from koalapy.model.events import (
    ComponentGone,
    ComponentLingers,
    ComponentReported,
    ComponentSeen,
    ComponentSubmitted,
    Event,
    FilesMoved,
    FilesStaged,
    OutputCollected,
    OutputKept,
    SubmissionFailed,
)
from koalapy.model.records import Records
from koalapy.model.settings import Settings
from koalapy.model.units import Instant


def hear(records: Records, settings: Settings, clusters: Information, now: Instant, event: Event) -> bool:
    """One of EVENTS; whether the scheduling pass must look again, since processors may have come free by it."""
    return _REACTIONS[type(event)](records, settings, clusters, now, event)


def _files(records: Records, _: Settings, __: Information, now: Instant, event: FilesMoved | FilesStaged) -> bool:
    claim.files_moved(records, now, event)
    return False


def _submitted(records: Records, _: Settings, __: Information, now: Instant, event: ComponentSubmitted) -> bool:
    claim.submitted(records, now, event)
    return False


def _not_submitted(
    records: Records, settings: Settings, clusters: Information, now: Instant, event: SubmissionFailed
) -> bool:
    claim.submission_failed(records, settings, now, event, clusters)
    return True


def _seen(records: Records, _: Settings, clusters: Information, now: Instant, event: ComponentSeen) -> bool:
    sightings.seen(records, now, event, clusters)
    return False


def _reported(records: Records, _: Settings, clusters: Information, now: Instant, event: ComponentReported) -> bool:
    reports.reported(records, now, event, clusters)
    return event.phase == "ended"


def _gone(records: Records, _: Settings, __: Information, now: Instant, event: ComponentGone) -> bool:
    stopping.gone(records, now, event)
    return True


def _lingers(records: Records, _: Settings, __: Information, now: Instant, event: ComponentLingers) -> bool:
    stopping.lingers(records, event)
    return False


def _collected(records: Records, _: Settings, __: Information, now: Instant, event: OutputCollected) -> bool:
    finishing.collected(records, now, event)
    return False


def _kept(records: Records, _: Settings, __: Information, now: Instant, event: OutputKept) -> bool:
    finishing.kept(records, now, event)
    return False


_REACTIONS: dict[type, Callable[..., bool]] = {
    FilesMoved: _files,
    FilesStaged: _files,
    ComponentSubmitted: _submitted,
    SubmissionFailed: _not_submitted,
    ComponentSeen: _seen,
    ComponentReported: _reported,
    ComponentGone: _gone,
    ComponentLingers: _lingers,
    OutputCollected: _collected,
    OutputKept: _kept,
}
EVENTS = tuple(_REACTIONS)
