"""The JSON documents: versioned schemas, stable field names, instants as RFC 3339 with microseconds."""

from koalapy.api.documents.clusters import clusters
from koalapy.api.documents.disk import disk
from koalapy.api.documents.document import Document
from koalapy.api.documents.explanation import explanation
from koalapy.api.documents.jobs import (
    changed,
    checked,
    fetched,
    job_with_events,
    jobs,
    submitted,
    submitted_many,
)
from koalapy.api.documents.logins import login
from koalapy.api.documents.maintenance import maintenance, maintenance_run
from koalapy.api.documents.reasons import error
from koalapy.api.documents.requests import job_mapping
from koalapy.api.documents.status import status
from koalapy.api.documents.unknown import cleaned, unknown
from koalapy.api.documents.unreadable import unreadable
from koalapy.api.documents.usage import usage

__all__ = [
    "Document",
    "changed",
    "checked",
    "cleaned",
    "clusters",
    "disk",
    "error",
    "explanation",
    "fetched",
    "job_mapping",
    "job_with_events",
    "jobs",
    "login",
    "maintenance",
    "maintenance_run",
    "status",
    "submitted",
    "submitted_many",
    "unknown",
    "unreadable",
    "usage",
]
