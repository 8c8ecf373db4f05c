"""Migrations, one file for each version, never changed once released."""
