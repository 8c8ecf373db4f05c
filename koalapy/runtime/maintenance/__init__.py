"""Maintenance by cron: the times of the tasks, their work, and the results of their last runs."""
