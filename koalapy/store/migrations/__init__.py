"""Alembic's scripts, which bring a store to the newest schema; `upgrade` runs them.

A migration must not rewrite the table of jobs on SQLite (alembic's batch mode): to drop the old table would take the
history of its jobs along. Columns are added.
"""
