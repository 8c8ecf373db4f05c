"""The JSON documents of the API, built from records. koalapy.answers has their types."""

from koalapy.api.documents.clusters import cleaned, cluster_change, clusters, login, reloaded, unknown
from koalapy.api.documents.koalad import disk, maintenance, maintenance_run, status, unreadable, usage
from koalapy.api.documents.leases import lease, leases
from koalapy.api.documents.pilots import pilot
from koalapy.api.documents.sites import line, lines, site_check, sites

__all__ = [
    "cleaned",
    "cluster_change",
    "clusters",
    "disk",
    "lease",
    "leases",
    "line",
    "lines",
    "login",
    "maintenance",
    "maintenance_run",
    "pilot",
    "reloaded",
    "site_check",
    "sites",
    "status",
    "unknown",
    "unreadable",
    "usage",
]
