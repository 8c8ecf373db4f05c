"""The scheduling pass over the wait queue."""
