"""A record of the store that cannot be read."""

from dataclasses import dataclass

from koalapy.model.identity import JobId


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that is set aside.

    `key` names its row among those of its kind; `job`: the job that it belongs to, if known.
    """

    kind: str  # one of koalapy.store.unreadable.KINDS
    key: str
    job: JobId | None
    why: str

    @property
    def name(self) -> str:
        """The name as `koala repair` takes it."""
        return f"{self.kind}/{self.key}"
