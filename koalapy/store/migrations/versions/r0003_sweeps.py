"""Sweeps: what became of their parameters, and which jobs are their Launchers."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision: str | None = "0002"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("sweep", sa.Integer))
    op.create_index("jobs_sweep", "jobs", ["sweep"])
    op.create_table(
        "results",
        sa.Column("sequence", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True),
        sa.Column(
            "sweep", sa.Integer, sa.ForeignKey("jobs.id", ondelete="CASCADE", name="results_sweep"), nullable=False
        ),
        sa.Column("cluster", sa.Text, nullable=False),
        sa.Column("job", sa.Integer, nullable=False),
        sa.Column("component", sa.Integer, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("results", sa.Text, nullable=False),
    )
    op.create_index("results_of_sweep", "results", ["sweep", "sequence"])
