"""Errors of the store.

StoreError             koalapy's own: the database refused or could not do it
├── StoreFull          no room left; nothing of the change was kept
├── StoreLocked        another koalad holds the store, or has taken it over
├── StoreConflict      the change contradicts what the store holds; a mistake of its author
└── StoreUnreadable    not a store of koalapy, a damaged one, or one of a newer koalapy
"""

from koalapy.model.errors import OurError


class StoreError(OurError):
    """What the store could not do. If `commit` raises it, nothing of the change is in the store."""


class StoreFull(StoreError):
    """There is no room for the change; it may be committed again when there is."""


class StoreLocked(StoreError):
    """This opener may not write (any more)."""


class StoreConflict(StoreError):
    """A key that another job of the owner has, an outbox number still in use, history of a job that is not there."""


class StoreUnreadable(StoreError):
    """What lies there cannot be understood; it was left as it is."""
