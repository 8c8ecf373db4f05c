"""A store's facts about itself, and the fencing of its writers: the newest opener alone may write.

The facts are its name, how often it was opened and written to, and its last outbox number. By them the fence decides
commits of unknown outcome.
"""

import os
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, select, update

import koalapy
from koalapy.model.change import Change
from koalapy.model.identity import InstanceId, instance_id
from koalapy.store import schema
from koalapy.store.contract import StoreLocked
from koalapy.store.upgrade import make_current

_FACTS = select(schema.meta.c.epoch, schema.meta.c.commits).with_for_update()
_COUNT = update(schema.meta).values(
    epoch=bindparam("to_epoch"), commits=bindparam("commits_now"), last_number=bindparam("last")
)


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


class WriterFence:
    """The right of one opener to write.

    The row of facts is locked until the transaction ends, so no later opener can write in between.
    """

    def __init__(self, facts: StoreIdentity, where: str) -> None:
        self.epoch, self.last_number = facts.epoch, facts.last_number
        self._commits = facts.commits
        self._where = where
        self._unsure: Change | None = None  # a commit was tried, and its outcome is unknown

    def begin_commit(self, connection: Connection, change: Change) -> bool:
        """Lock the facts, and return whether the change is still to be written.

        The result is False if the store has it already, and only the answer to its commit was lost.

        Raises StoreLocked if there is a later opener.
        """
        epoch, commits = connection.execute(_FACTS).one()
        goal = change.epoch_jump.epoch if change.epoch_jump else self.epoch
        if self._unsure is change and (epoch, commits) == (goal, self._commits + 1):
            return False
        self._refuse_unless_ours(epoch)
        self._unsure, self._commits = change, commits
        connection.execute(_COUNT, {"to_epoch": goal, "commits_now": commits + 1, "last": self._last_after(change)})
        return True

    def end_commit(self, change: Change) -> None:
        """Record that the transaction with this change is committed."""
        self.last_number = self._last_after(change)
        self.epoch = change.epoch_jump.epoch if change.epoch_jump else self.epoch
        self._commits, self._unsure = self._commits + 1, None

    def check(self, connection: Connection) -> None:
        """Check that there is no later opener. Raises StoreLocked if there is one.

        It is not for an opener that has a commit in doubt.
        """
        self._refuse_unless_ours(connection.execute(_FACTS).one().epoch)

    def _refuse_unless_ours(self, epoch: int) -> None:
        if epoch != self.epoch:
            raise taken_over(self._where)

    def _last_after(self, change: Change) -> int:
        numbers = [entry.number for entry in change.sent]
        jumped = change.epoch_jump.last_number if change.epoch_jump else 0
        return max(self.last_number, jumped, *numbers)


def taken_over(where: str) -> StoreLocked:
    return StoreLocked(
        "store_taken_over",
        f"Another koalad has taken over the store {where}.",
        "Leave the jobs to it; this koalad must end.",
    )
