"""A cluster speaks for itself only: what it says of attempts that are elsewhere is passed over, and counted."""

from collections.abc import Mapping
from dataclasses import dataclass

from koalapy.model.events import (
    ComponentGone,
    ComponentLingers,
    ComponentReported,
    ComponentSeen,
    ComponentSubmitted,
    Event,
    LaunchersSeen,
    LauncherSuspected,
    ParametersEnded,
    SubmissionFailed,
)
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.records import Records

OfAttempt = (
    ComponentSubmitted
    | SubmissionFailed
    | ComponentSeen
    | ComponentReported
    | ComponentGone
    | ComponentLingers
    | LauncherSuspected
)


@dataclass(frozen=True, slots=True)
class Foreign:
    """What one cluster has said since koalad's start of what is not its own: how often, and the last of it."""

    count: int
    last: str


class Speaking:
    """Looks at each event before it is handled. An attempt of the past, of which nothing is kept, is nobody's."""

    def __init__(self) -> None:
        self._foreign: dict[str, Foreign] = {}

    @property
    def foreign(self) -> Mapping[str, Foreign]:
        """By cluster; those that spoke for themselves only are not in it."""
        return self._foreign

    def heed(self, records: Records, event: Event) -> Event | None:
        """The event, or what is left of it without what its cluster has no say in; None if that is nothing."""
        if isinstance(event, OfAttempt):
            return event if self._may(records, event.cluster, event.attempt, type(event).__name__) else None
        if isinstance(event, ParametersEnded):
            return event if self._may_end(records, event) else None
        if isinstance(event, LaunchersSeen):
            own = tuple(each for each in event.launchers if self._may(records, event.cluster, each[0], "LaunchersSeen"))
            return event if len(own) == len(event.launchers) else LaunchersSeen(cluster=event.cluster, launchers=own)
        return event

    def _may_end(self, records: Records, event: ParametersEnded) -> bool:
        """Only a Launcher of the sweep, on this cluster, can have run its parameters."""
        if not self._may(records, event.cluster, event.attempt, "ParametersEnded"):
            return False
        found = records.component(event.attempt)
        if found is None or (found[0].glide is not None and found[0].glide.sweep == event.sweep):
            return True
        self.note(event.cluster, f"ParametersEnded of sweep {event.sweep} by attempt {event.attempt}")
        return False

    def _may(self, records: Records, cluster: str, attempt: AttemptId, what: str) -> bool:
        if is_elsewhere(records, cluster, attempt):
            self.note(cluster, f"{what} of attempt {attempt}")
            return False
        return True

    def note_parameters(self, cluster: str, sweep: JobId, count: int) -> None:
        """Results of so many parameters that were never out there."""
        self.note(cluster, f"results of {count} parameters of sweep {sweep}")

    def note(self, cluster: str, what: str) -> None:
        """It said this of what is not its own."""
        before = self._foreign.get(cluster)
        self._foreign[cluster] = Foreign(before.count + 1 if before is not None else 1, what)


def is_elsewhere(records: Records, cluster: str, attempt: AttemptId) -> bool:
    """Whether the attempt, or the debt that it left, is known to be on another cluster than this."""
    if (debt := records.debts.get(attempt)) is not None:
        return debt.cluster != cluster
    found = records.component(attempt)
    return found is not None and found[1].cluster not in (cluster, None)  # None: it is left out of this try
