"""The JSON documents of the API, built from records. koalapy.answers has their types."""

from koalapy.api.documents.clusters import cleaned, cluster_change, clusters, login, reloaded, unknown
from koalapy.api.documents.errors import error
from koalapy.api.documents.jobs import (
    changed,
    checked,
    explanation,
    fetched,
    job_with_history,
    jobs,
    port,
    submitted,
    submitted_many,
    terminal,
    tree,
)
from koalapy.api.documents.koalad import disk, maintenance, maintenance_run, status, unreadable, usage
from koalapy.api.documents.leases import lease, leases
from koalapy.api.documents.matching import ads, matched
from koalapy.api.documents.pilots import pilot
from koalapy.api.documents.sites import line, lines, site_check, sites

__all__ = [
    "ads",
    "changed",
    "checked",
    "cleaned",
    "cluster_change",
    "clusters",
    "disk",
    "error",
    "explanation",
    "fetched",
    "job_with_history",
    "jobs",
    "lease",
    "leases",
    "line",
    "lines",
    "login",
    "maintenance",
    "maintenance_run",
    "matched",
    "pilot",
    "port",
    "reloaded",
    "site_check",
    "sites",
    "status",
    "submitted",
    "submitted_many",
    "terminal",
    "tree",
    "unknown",
    "unreadable",
    "usage",
]
