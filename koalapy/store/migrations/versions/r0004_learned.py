"""What koalad has learned of its clusters: one row for each thing learned."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision: str | None = "0003"


def upgrade() -> None:
    op.create_table(
        "learned",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("record", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Nothing but forecasts goes by it: an older koalapy learns anew."""
    op.drop_table("learned")
