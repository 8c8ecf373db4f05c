"""The wait queue and the scheduling pass."""
