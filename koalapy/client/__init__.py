"""The Python client of koalad's HTTP API, with which `koala` itself works."""

from koalapy.client.grid import Grid

__all__ = ["Grid"]
