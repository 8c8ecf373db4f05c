"""Errors of the store.

StoreError                koalapy's own: the database refused or could not do it.
├── StoreFull             There is no room left; nothing of the change was kept.
├── StoreLocked           Another koalad holds the store, or has taken it over.
├── StoreConflict         The change contradicts what the store holds; a mistake of its author.
│   └── RecordInvalid     A value of the change cannot be in any record.
└── StoreUnreadable       This is not a store of koalapy, a damaged one, or one of a newer koalapy.
    └── RecordUnreadable  One record of the store is damaged, or of a newer koalapy.
"""

from koalapy.model.errors import OurError


class StoreError(OurError):
    """A failure of the store. If `commit` raises it, nothing of the change is in the store."""


class StoreFull(StoreError):
    """There is no room for the change, which may be committed again when there is."""


class StoreLocked(StoreError):
    """This opener may not write (any more)."""


class StoreConflict(StoreError):
    """A contradiction between a change and the store.

    The change has a key of another job of the owner, an outbox number in use, or results of a sweep that does not
    exist. To commit the same change again is in vain.
    """

    lasting = True


class RecordInvalid(StoreConflict):
    """A value of a wrong type or out of bounds, which was found before any request to the database."""


class StoreUnreadable(StoreError):
    """The contents of the database cannot be understood, and were left as they are."""


class RecordUnreadable(StoreUnreadable):
    """One record that is damaged, or has a form that this version does not know. `why`: half a sentence."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(
            "record_unreadable",
            f"A {name} record of the store cannot be read ({why}).",
            "Use the koalapy that wrote it, which may be newer than this one, repair it, or restore a backup.",
        )
        self.why = why
