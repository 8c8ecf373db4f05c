"""The loop around the engine, and what it keeps beside the store."""
