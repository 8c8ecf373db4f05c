"""The records of pilots, and the jobs and sweeps that name their clusters."""

from collections.abc import Iterable
from dataclasses import replace

from koalapy.core.due import PILOTS, DueSteps
from koalapy.model.identity import JobId
from koalapy.model.index import Index
from koalapy.model.job import Job
from koalapy.model.pilot import Pilot, first_record, job_of_pilot
from koalapy.model.states import JobState
from koalapy.model.sweep import Sweep
from koalapy.model.units import Instant
from koalapy.policies.pilots import PilotKeeper


class Pilots(Index):
    """The records of the pilots that are not over, by job, in the order of their opening.

    `unsaved`: the records that have changed in this step. `naming`: by pilot, the jobs and sweeps that name its
    cluster. `look_at`: when a pilot may end next; `keep_at`: when one may be opened next. `keepers`: by cluster, of the
    rules of the grid file; after a restart of koalad they begin anew.
    """

    kinds = (Job, Sweep)

    def __init__(self, due: DueSteps, pilots: Iterable[Pilot]) -> None:
        self._due = due
        self.records = {each.id: each for each in pilots}
        self.unsaved: dict[JobId, Pilot] = {}
        self.naming: dict[JobId, dict[JobId, None]] = {}
        self.look_at: Instant | None = None
        self.keep_at: Instant | None = None
        self.keepers: dict[str, PilotKeeper] = {}

    def inherit(self, before: "Pilots") -> None:
        """Take over what no store keeps from the core that this one replaces."""
        self.keepers = before.keepers

    def put(self, pilot: Pilot) -> Pilot:
        """Replace the record, or remove that of a pilot that has ended. Returns it.

        Raises ValueError for a transition that the table does not have.
        """
        before = self.records.get(pilot.id)
        if before == pilot:
            return pilot
        if before is not None and before.state is not pilot.state and not before.state.may_become(pilot.state):
            raise ValueError(f"pilot {pilot.id} cannot go from {before.state} to {pilot.state}")
        self.records[pilot.id] = self.unsaved[pilot.id] = pilot
        if pilot.state.final:
            del self.records[pilot.id]
        return pilot

    def take_changed(self) -> tuple[Pilot, ...]:
        """Return the records that have changed since the last call."""
        changed, self.unsaved = self.unsaved, {}
        return tuple(changed.values())

    # ---- the index

    def added(self, work: Job | Sweep) -> None:
        if isinstance(work, Job) and work.id not in self.records and (pilot := first_record(work)) is not None:
            self.put(pilot)
            self._due.wake(PILOTS)
        if isinstance(work, Sweep):
            self._due.wake(PILOTS)  # it may use the processors of held components
        for named in _named(work):
            self.naming.setdefault(named, {})[work.id] = None

    def became_final(self, work: Job | Sweep) -> None:
        if (record := self.records.get(work.id)) is not None:
            self.put(replace(record, failed=work.state is JobState.FAILED))
            self._due.wake(PILOTS)
        for pilot in _named(work):
            there = self.naming.get(pilot, {})
            there.pop(work.id, None)
            if not there:
                self.naming.pop(pilot, None)


def _named(work: Job | Sweep) -> list[JobId]:
    """Return the pilots whose clusters a job or sweep names."""
    clusters = {each.cluster for each in work.request.components if each.cluster is not None}
    return [pilot for each in clusters if (pilot := job_of_pilot(each)) is not None]
