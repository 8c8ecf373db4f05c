"""The Python client of koalad's HTTP API: all that `koala` can do."""

from koalapy.client.grid import Grid

__all__ = ["Grid"]
