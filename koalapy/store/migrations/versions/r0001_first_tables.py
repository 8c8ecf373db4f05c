"""The first tables: work and what belongs to it, the outbox, usage, and what koalad knows of itself."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision: str | None = None


def upgrade() -> None:
    _create_state()
    _create_jobs()
    _create_what_jobs_leave()
    _create_usage()
    _create_leases()


def _create_state() -> None:
    op.create_table(
        "meta",
        sa.Column("instance", sa.Text, primary_key=True),
        sa.Column("format", sa.Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("last_number", sa.BigInteger, nullable=False),
        sa.Column("written_by", sa.Text, nullable=False),
        sa.Column("commits", sa.BigInteger, nullable=False, server_default="0"),
    )
    op.create_table(
        "counters",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "learned",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_table(
        "neighbours",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_table(
        "requests_seen",
        sa.Column("site", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("round", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "maintenance",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("task", sa.Text, nullable=False),
        sa.Column("began", sa.BigInteger, nullable=False),
        sa.Column("ended", sa.BigInteger),
        sa.Column("well", sa.Integer, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
    )


def _create_jobs() -> None:
    op.create_table(
        "identities",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("owner", sa.Text),
        sa.Column("key", sa.Text),
        sa.UniqueConstraint("owner", "key", name="identities_owner_key"),
    )
    op.create_table(
        "work",
        sa.Column("id", sa.Integer, _identity("work_identity"), primary_key=True, autoincrement=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("submitted_at", sa.BigInteger, nullable=False),
        sa.Column("finished_at", sa.BigInteger),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_index("work_state", "work", ["state"])
    op.create_index("work_finished", "work", ["finished_at"])
    op.create_table(
        "attempts",
        sa.Column("job", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("component", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("superseded", sa.Integer, nullable=False),
        sa.Column("pending_cancel", sa.Integer, nullable=False),
        sa.Column("owner_kind", sa.Text),
        sa.Column("owner", sa.Integer),
        sa.Column("let_go", sa.Integer, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_index("attempts_pending_cancel", "attempts", ["pending_cancel"])
    op.create_index("attempts_of_owner", "attempts", ["owner_kind", "owner", "let_go"])
    op.create_table(
        "pilots",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_table(
        "outbox",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("cluster", sa.Text),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("command", sa.Text, nullable=False),
    )


def _create_what_jobs_leave() -> None:
    op.create_table(
        "history",
        sa.Column("sequence", _count(), primary_key=True),
        sa.Column("job", sa.Integer, _identity("history_identity"), nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("details", sa.Text, nullable=False),
    )
    op.create_index("history_of_job", "history", ["job", "sequence"])
    sweep = sa.ForeignKey("work.id", ondelete="CASCADE", name="results_sweep")
    op.create_table(
        "results",
        sa.Column("sequence", _count(), primary_key=True),
        sa.Column("sweep", sa.Integer, sweep, nullable=False),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("job", sa.Integer, nullable=False),
        sa.Column("component", sa.Integer, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("results", sa.Text, nullable=False),
        sa.Column("lowest", sa.BigInteger, nullable=False),
        sa.Column("highest", sa.BigInteger, nullable=False),
    )
    op.create_index("results_of_sweep", "results", ["sweep", "sequence"])
    op.create_index("results_of_parameter", "results", ["sweep", "highest", "lowest"])


def _create_usage() -> None:
    op.create_table(
        "usage",
        sa.Column("job", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("component", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("charged", sa.Integer, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("processors", sa.Integer, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("started_at", sa.BigInteger, nullable=False),
        sa.Column("released_at", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger, nullable=False),
        sa.Column("batch_id", sa.Text, nullable=False),
        sa.Column("accounted", sa.Integer, nullable=False),
    )
    op.create_index("usage_ended", "usage", ["ended_at"])
    op.create_table(
        "usage_days",
        sa.Column("day", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("cluster", sa.Text, primary_key=True),
        sa.Column("held", sa.BigInteger, nullable=False),
        sa.Column("run", sa.BigInteger, nullable=False),
        sa.Column("lost", sa.BigInteger, nullable=False),
        sa.Column("scavenged", sa.BigInteger, nullable=False),
        sa.Column("estimated", sa.BigInteger, nullable=False),
        sa.Column("attempts", sa.BigInteger, nullable=False),
    )


def _create_leases() -> None:
    op.create_table(
        "leases",
        sa.Column("neighbour", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("lent", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_table(
        "ended_leases",
        sa.Column("neighbour", sa.Text, primary_key=True),
        sa.Column("lent", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("asked_at", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("began_at", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger, nullable=False),
        sa.Column("processors", sa.Integer, nullable=False),
        sa.Column("charge", sa.BigInteger, nullable=False),
        sa.Column("measured", sa.BigInteger, nullable=False),
        sa.Column("reported", sa.Integer, nullable=False),
        sa.Column("job", sa.Integer),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("beyond", sa.Text, nullable=False),
        sa.Column("links", sa.Integer, nullable=False),
        sa.Column("site", sa.Text, nullable=False),
        sa.Column("request", sa.BigInteger, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("code", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
    )
    op.create_index("ended_leases_ended", "ended_leases", ["ended_at"])
    op.create_table(
        "lease_days",
        sa.Column("day", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("neighbour", sa.Text, primary_key=True),
        sa.Column("lent", sa.BigInteger, nullable=False),
        sa.Column("borrowed", sa.BigInteger, nullable=False),
        sa.Column("measured", sa.BigInteger, nullable=False),
        sa.Column("leases", sa.BigInteger, nullable=False),
    )


def _identity(name: str) -> sa.ForeignKey:
    return sa.ForeignKey("identities.id", ondelete="CASCADE", name=name)


def _count() -> sa.types.TypeEngine[int]:
    """A type that counts by itself: on SQLite only an INTEGER does."""
    return sa.BigInteger().with_variant(sa.Integer, "sqlite")
