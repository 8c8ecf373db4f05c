"""The journal: the engine's recent events and its decisions, kept so that a bug can be replayed elsewhere."""
