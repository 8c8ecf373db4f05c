"""One parameter's result is found without reading all others. What was recorded before may be of any of them."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision: str | None = "0004"


def upgrade() -> None:
    op.add_column("results", sa.Column("lowest", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("results", sa.Column("highest", sa.BigInteger, nullable=False, server_default=str((1 << 63) - 1)))
    op.create_index("results_of_parameter", "results", ["sweep", "highest", "lowest"])


def downgrade() -> None:
    op.drop_index("results_of_parameter", "results")
    op.drop_column("results", "highest")
    op.drop_column("results", "lowest")
