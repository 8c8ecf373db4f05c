"""The journal: what the engine was given of late and what it decided, kept so that a bug can be replayed elsewhere."""
