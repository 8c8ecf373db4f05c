"""Execution of actions: commands of the batch system, and operations that block, in threads."""
