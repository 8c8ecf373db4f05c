"""The JSON documents of the API, built from records. koalapy.answers has their types."""

from koalapy.api.documents.leases import lease, leases
from koalapy.api.documents.pilots import pilot

__all__ = [
    "lease",
    "leases",
    "pilot",
]
