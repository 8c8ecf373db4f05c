"""How large a sweep may be."""

MOST_PARAMETERS = 1_000_000_000
MOST_NAMES = 1_000
