"""Connections to a head node, each a module: `ssh`, `local`, `docker` and `command`. Grid side only, never pushed."""
