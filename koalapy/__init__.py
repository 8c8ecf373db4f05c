"""koalapy: run one job across all the clusters you have accounts on."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from koalapy.client import Grid

__all__ = ["Grid", "__version__"]


def __getattr__(name: str) -> Any:
    """`koalapy.Grid`, imported only when it is asked for: importing a room must not import the client."""
    if name == "Grid":
        from koalapy.client import Grid

        return Grid
    raise AttributeError(name)
