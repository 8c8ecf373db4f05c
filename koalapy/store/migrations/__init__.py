"""Scripts of Alembic, which bring a store to the newest schema; `upgrade` runs them.

A migration must not rewrite the table of jobs on SQLite (alembic's batch mode): to drop the old table would delete the
history of its jobs too. Columns are added.
"""
