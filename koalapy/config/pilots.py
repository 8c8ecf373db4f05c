"""A pilot as a cluster of the grid: what it has of the cluster on which its job runs."""

from typing import Any

from koalapy.config.connect import Pilot
from koalapy.config.scavenging import Scavenge
from koalapy.config.schema import Cluster
from koalapy.model.identity import JobId

# Keys that hold inside an allocation as they do around it. The others are about batch jobs and logins.
_KEPT = ("setup", "relay", "relay_network", "network", "poll", "shared", "python")


def inside(around: Cluster, job: JobId, shared: bool) -> Cluster:
    """Return the cluster inside the allocation that this job holds on the cluster `around` it.

    `shared`: jobs that do not name it, and sweeps, are placed there too.
    """
    values: dict[str, Any] = {key: getattr(around, key) for key in _KEPT if key in around.model_fields_set}
    values |= {"batch": "allocation", "connect": (Pilot(job).text,), "only_named": not shared}
    return Cluster.model_construct(**values, scavenge=Scavenge(off=not shared))
