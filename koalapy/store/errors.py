"""Errors of the store.

StoreError             koalapy's own: the database refused or could not do it
├── StoreFull          no room left; nothing of the change was kept
├── StoreLocked        another koalad holds the store, or has taken it over
├── StoreConflict      the change contradicts what the store holds; a mistake of its author
│   └── RecordInvalid  a value of the change cannot be in any record
└── StoreUnreadable    not a store of koalapy, a damaged one, or one of a newer koalapy
    └── RecordUnreadable  one record of it
"""

from koalapy.model.errors import OurError


class StoreError(OurError):
    """What the store could not do. If `commit` raises it, nothing of the change is in the store."""


class StoreFull(StoreError):
    """There is no room for the change; it may be committed again when there is."""


class StoreLocked(StoreError):
    """This opener may not write (any more)."""


class StoreConflict(StoreError):
    """A key that another job of the owner has, an outbox number still in use, history of a job that is not there.

    To commit the same change again is in vain.
    """

    lasting = True


class RecordInvalid(StoreConflict):
    """A value of a wrong type or out of bounds. It was found before the database was asked for anything."""


class StoreUnreadable(StoreError):
    """What lies there cannot be understood; it was left as it is."""


class RecordUnreadable(StoreUnreadable):
    """One record that is damaged, or has a form that this version does not know. `why`: half a sentence."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(
            "record_unreadable",
            f"A {name} record of the store cannot be read ({why}).",
            "Use the koalapy that wrote it, which may be newer than this one, repair it, or restore a backup.",
        )
        self.why = why
