"""Fencing of writers in a database: the newest opener alone may write. It decides commits of unknown outcome."""

from sqlalchemy import Connection, bindparam, select, update

from koalapy.model.change import Change
from koalapy.store import schema
from koalapy.store.errors import StoreLocked
from koalapy.store.identity import StoreIdentity


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


_FACTS = select(schema.meta.c.epoch, schema.meta.c.commits).with_for_update()
_COUNT = update(schema.meta).values(
    epoch=bindparam("to_epoch"), commits=bindparam("commits_now"), last_number=bindparam("last")
)
