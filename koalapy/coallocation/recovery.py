"""Attempts that lived when koalad started: the first sign of each goes into its job's story."""

from collections.abc import Iterable

from koalapy.model.events import ComponentGone, ComponentReported, ComponentSeen, ComponentSubmitted, Event
from koalapy.model.identity import AttemptId
from koalapy.model.job import Job
from koalapy.model.records import Records
from koalapy.model.units import Instant

MISSING = "missing"  # the batch system does not list it: no sign


class Unheard:
    """Those of which nothing has been heard since the start."""

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._attempts = {job.attempt_of(each): None for job in jobs for each in job.live}

    def hear(self, records: Records, now: Instant, event: Event) -> None:
        """Call it before the event is handled: what is told is what the attempt was, and as what it is found."""
        if not self._attempts or not isinstance(event, _SIGNS) or event.attempt not in self._attempts:
            return
        if isinstance(event, ComponentReported):
            self._found(records, now, event, event.phase, "wrapper")
        elif isinstance(event, ComponentSeen) and event.state != MISSING:
            self._found(records, now, event, event.state, "batch system")
        elif not isinstance(event, ComponentSeen):
            del self._attempts[event.attempt]

    def _found(
        self, records: Records, now: Instant, event: ComponentReported | ComponentSeen, found: str, by: str
    ) -> None:
        del self._attempts[event.attempt]
        known = records.component(event.attempt)
        if known is None or known[1].gone:
            return
        job, component = known
        records.note_component(
            now, job, component, "component_found",
            batch_id=event.batch_id or component.batch_id, found=found, by=by, was=str(component.state),
        )  # fmt: skip

    @property
    def attempts(self) -> list[AttemptId]:
        return list(self._attempts)


_SIGNS = (ComponentReported, ComponentSeen, ComponentSubmitted, ComponentGone)
