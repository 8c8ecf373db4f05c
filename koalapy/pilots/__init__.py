"""Pilots: bound, drained, closed and kept. What a person wants of them comes as an event."""
