"""The facts count the commits, so that one whose answer was lost is not made twice."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision: str | None = "0001"


def upgrade() -> None:
    op.add_column("meta", sa.Column("commits", sa.BigInteger, nullable=False, server_default="0"))
