"""The first tables: jobs, debts, outbox, history, counters, and the facts about the store."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision: str | None = None


def upgrade() -> None:
    _facts()
    _records()
    _story()


def _facts() -> None:
    op.create_table(
        "meta",
        sa.Column("instance", sa.Text, primary_key=True),
        sa.Column("format", sa.Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("last_number", sa.BigInteger, nullable=False),
        sa.Column("written_by", sa.Text, nullable=False),
    )
    op.create_table(
        "counters",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.BigInteger, nullable=False),
    )


def _records() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("key", sa.Text),
        sa.Column("submitted_at", sa.BigInteger, nullable=False),
        sa.Column("finished_at", sa.BigInteger),
        sa.Column("record", sa.Text, nullable=False),
        sa.UniqueConstraint("owner", "key", name="jobs_owner_key"),
    )
    op.create_index("jobs_state", "jobs", ["state"])
    op.create_table(
        "debts",
        sa.Column("job", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("component", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
    )


def _story() -> None:
    op.create_table(
        "outbox",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("cluster", sa.Text),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("command", sa.Text, nullable=False),
    )
    op.create_table(
        "history",
        sa.Column("sequence", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column("job", sa.Integer, sa.ForeignKey("jobs.id", ondelete="CASCADE", name="history_job"), nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("details", sa.Text, nullable=False),
    )
    op.create_index("history_of_job", "history", ["job", "sequence"])
