"""A record of the store that cannot be read."""

from dataclasses import dataclass

from koalapy.model.identity import JobId


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that is set aside.

    `key` names its row among those of its kind; `job`: the job, sweep or Launcher that it belongs to, if known.
    """

    kind: str  # one of koalapy.store.unreadable.KINDS
    key: str
    job: JobId | None
    why: str

    @property
    def may_hide_job(self) -> bool:
        """Return whether the job of the record may be set aside with it."""
        return self.kind in ("job", "sweep", "attempt")

    @property
    def name(self) -> str:
        """The name as `koala repair` takes it."""
        return f"{self.kind}/{self.key}"

    @property
    def repair_advice(self) -> str:
        """A sentence: what is not done while the record cannot be read, and how to repair it."""
        held = "Nothing is done with the job and its batch jobs until it is repaired"
        effect = held if self.may_hide_job else "Repair it"
        return f"{effect}: `koala down`, then `koala repair {self.name}`; see docs/store.md."
