"""Files written by people: marked YAML, types of their fields, and validation whose errors name file, place and key."""

MAX_BYTES = 10_000_000  # of a file
