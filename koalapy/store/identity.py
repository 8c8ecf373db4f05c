"""A store's facts about itself: its name, how often it was opened and written to, and its last outbox number."""

import os
from typing import NamedTuple

from sqlalchemy import Connection, select, update

import koalapy
from koalapy.model.identity import InstanceId, instance_id
from koalapy.store import schema
from koalapy.store.upgrade import make_current


class StoreIdentity(NamedTuple):
    instance: InstanceId
    epoch: int
    last_number: int
    commits: int


def new_instance() -> InstanceId:
    return instance_id(os.urandom(8))


def open_identity(connection: Connection, where: str) -> StoreIdentity:
    """Make or migrate the store and count this opening, all in the caller's transaction. Returns its facts.

    Raises StoreUnreadable as `make_current` does.
    """
    make_current(connection, where)
    if connection.scalar(select(schema.meta.c.epoch)) is None:
        connection.execute(schema.meta.insert(), _first_row())
    connection.execute(update(schema.meta).values(epoch=schema.meta.c.epoch + 1, written_by=koalapy.__version__))
    meta = schema.meta.c
    row = connection.execute(select(meta.instance, meta.epoch, meta.last_number, meta.commits)).one()
    return StoreIdentity(InstanceId(row.instance), row.epoch, row.last_number, row.commits)


def _first_row() -> dict[str, object]:
    return {
        "instance": new_instance(),
        "format": schema.FORMAT,
        "epoch": 0,
        "last_number": 0,
        "written_by": koalapy.__version__,
    }
