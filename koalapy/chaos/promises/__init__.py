"""The promises, watched after every event of a world: incremental, each by its name."""
