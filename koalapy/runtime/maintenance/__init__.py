"""Maintenance by cron: when tasks run, what they do, and how their last runs went."""
