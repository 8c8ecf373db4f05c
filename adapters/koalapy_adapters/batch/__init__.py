"""Batch systems, a module each: the dialect of its commands as pure functions (see `protocol`)."""
