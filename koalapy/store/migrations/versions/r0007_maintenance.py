"""The last run of each maintenance task is kept; jobs are found by the instant of their end."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision: str | None = "0006"


def upgrade() -> None:
    op.create_table(
        "maintenance",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("task", sa.Text, nullable=False),
        sa.Column("began", sa.BigInteger, nullable=False),
        sa.Column("ended", sa.BigInteger),
        sa.Column("well", sa.Integer, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
    )
    op.create_index("jobs_finished", "jobs", ["finished_at"])


def downgrade() -> None:
    op.drop_index("jobs_finished", "jobs")
    op.drop_table("maintenance")
