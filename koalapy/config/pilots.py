"""A pilot or a lease as a cluster of the grid; a pilot has much of the cluster on which its job runs."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from koalapy.config import connect
from koalapy.config.connect import Leased
from koalapy.config.convert import cluster_config
from koalapy.config.load import with_clusters
from koalapy.config.scavenging import Scavenge
from koalapy.config.schema import Cluster, GridFile, Isolation
from koalapy.model.identity import JobId
from koalapy.model.lease import LeasedCluster
from koalapy.model.pilot import Pilot, PilotRule, pilot_cluster, pilot_request
from koalapy.model.request import ComponentRequest, Isolate, PilotOptions

# Keys that hold inside an allocation as they do around it. The others are about batch jobs and logins.
_KEPT = ("setup", "relay", "relay_network", "network", "poll", "shared", "python")


def pilot_rules(grid: GridFile, owner: str) -> tuple[tuple[str, PilotRule], ...]:
    """Return the rules of the pilots that koalapy opens by itself, by cluster. `owner`: to whom they belong."""
    return tuple([(name, _rule(grid, name, owner)) for name in grid.pilots if name in grid.clusters])


def _rule(grid: GridFile, cluster: str, owner: str) -> PilotRule:
    rule = grid.pilots[cluster]
    component = ComponentRequest(
        processors=rule.size,
        executable="",
        walltime=rule.walltime,
        processors_per_node=None if rule.nodes is None else rule.size // rule.nodes,
    )
    options = with_isolation(grid, PilotOptions(idle=rule.idle, shared=True, automatic=True), cluster)
    request = pilot_request(component, options)
    return PilotRule(least=rule.least, most=rule.most, waiting=rule.when.waiting, request=request, owner=owner)


def with_isolation(grid: GridFile, options: PilotOptions, cluster: str) -> PilotOptions:
    """Return options with the isolation that the grid file has for the pilots of this cluster."""
    if cluster not in grid.clusters:
        return options
    found = grid.clusters[cluster].isolation
    return replace(options, isolate=found.method, visible=found.visible)


def with_temporary(grid: GridFile, clusters: Iterable[Pilot | LeasedCluster]) -> GridFile:
    """Return the grid with the clusters of these pilots and leases, except pilots on clusters that it does not have."""
    found = {}
    for each in clusters:
        if isinstance(each, LeasedCluster):
            found[each.name] = leased(each)
        elif each.host_cluster in grid.clusters:
            found[each.name] = inside(grid.clusters[each.host_cluster], each.id, each.options, each.fills is not None)
    return with_clusters(grid, found)


def inside(host: Cluster, job: JobId, options: PilotOptions, fills: bool = False) -> Cluster:
    """Return the cluster inside the allocation that this job holds on the cluster `host`.

    Sweeps are placed there if it is shared or a filler, and if its programs are not isolated: a Launcher is not.
    """
    values: dict[str, Any] = {key: getattr(host, key) for key in _KEPT if key in host.model_fields_set}
    values |= {"batch": "allocation", "connect": (connect.Pilot(job, fills).text,), "only_named": not options.shared}
    no_sweeps = not (options.shared or fills) or options.isolate is not Isolate.NONE
    values["isolation"] = Isolation(method=options.isolate, visible=options.visible)
    return Cluster.model_construct(**values, scavenge=Scavenge(off=no_sweeps))


def lent_config(grid: GridFile, cluster: str, job: JobId, options: PilotOptions) -> dict[str, Any]:
    """Return the fields by which this lender's KCM on a lease knows its cluster; see `cluster_config`.

    `cluster`: that on which the job of the lease's pilot runs. The shared directory is not the lease's own. Launchers
    of the borrower's sweeps are taken if no program is isolated.
    """
    name, host = pilot_cluster(job), grid.clusters[cluster]
    alone = grid.model_copy(update={"clusters": {name: inside(host, job, options)}})
    return cluster_config(alone, name) | {"launchers": options.isolate is Isolate.NONE}


def leased(lease: LeasedCluster) -> Cluster:
    """Return the cluster that a lease of another site is.

    Its lender has started the KCM there, which knows the directory and the rest. Sweeps are placed there if it was
    requested for one.
    """
    values: dict[str, Any] = {
        "batch": "allocation", "connect": (Leased(lease.lender, lease.number).text,), "network": lease.network,
    }  # fmt: skip
    if lease.isolation is not None:
        values["isolation"] = Isolation(method=Isolate.AUTO, visible=lease.isolation)
    return Cluster.model_construct(**values, scavenge=Scavenge(off=not lease.sweeps))
