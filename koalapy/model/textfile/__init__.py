"""Files that people write: marked YAML, types of their fields, and validation whose errors name file, line and key."""
