"""The last run of a maintenance task, as the store keeps it."""

from dataclasses import dataclass

from koalapy.model.units import Instant


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceRun:
    """One run of a maintenance task. `name` is the entry's.

    `ended`: None while the task runs, and for a run that koalad's end interrupted. `message` is a sentence for people.
    `well`: whether no action is needed.
    """

    name: str
    task: str
    began: Instant
    ended: Instant | None = None
    well: bool = False
    message: str = ""
