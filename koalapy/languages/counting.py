"""The limits of a sweep's size."""

MOST_PARAMETERS = 1_000_000_000
MOST_NAMES = 1_000
