"""Views: pure functions from the engine's records to what a person or client reads. No thread, clock or file."""
