"""What jobs used that are pruned is summed up by day, user and cluster; what was pruned before stays as it is."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision: str | None = "0007"


def upgrade() -> None:
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


def downgrade() -> None:
    op.drop_table("usage_days")
