"""Checkers of the promises, called after every event of a world; each checks only what has changed."""
