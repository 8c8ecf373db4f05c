"""What attempts used, one row an attempt, written as their try ends. What ended before is not entered."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision: str | None = "0005"


def upgrade() -> None:
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


def downgrade() -> None:
    op.drop_index("usage_ended", "usage")
    op.drop_table("usage")
