"""koalapy: run one job across all the clusters you have accounts on."""

import importlib
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from koalapy.client import Grid
    from koalapy.client.calls import NotReachable
    from koalapy.model.errors import ClusterError, KoalaError, OurError, RequestError, TransientError

__all__ = [
    "ClusterError",
    "Grid",
    "KoalaError",
    "NotReachable",
    "OurError",
    "RequestError",
    "TransientError",
    "__version__",
]

_ERRORS = "koalapy.model.errors"
_MODULES = dict.fromkeys(("KoalaError", "OurError", "RequestError", "ClusterError", "TransientError"), _ERRORS) | {
    "Grid": "koalapy.client",
    "NotReachable": "koalapy.client.calls",
}


def __getattr__(name: str) -> object:
    """Import a public name when it is first used: importing one module of koalapy must not import the client.

    Raises AttributeError for any other name.
    """
    if name not in _MODULES:
        raise AttributeError(f"module 'koalapy' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """The public names, for tab completion."""
    return __all__
