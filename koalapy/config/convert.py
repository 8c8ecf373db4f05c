"""Converts the grid file into the engine's settings, and into the configuration of each KCM."""

from typing import Any

from koalapy.config.connect import Pilot
from koalapy.config.hours import parse_hours
from koalapy.config.schema import Cluster, GridFile
from koalapy.config.site import Site
from koalapy.model import cluster as model
from koalapy.model.cluster import ClusterSettings
from koalapy.model.lease import Borrow, Delegation, Lend, is_temporary
from koalapy.model.request import Isolate
from koalapy.model.sent import RunLimits
from koalapy.model.settings import GRACE, Preempt, Race, Scavenging, Settings
from koalapy.model.units import SECOND, Duration

# Keys of a cluster in the grid file that its KCM gets unchanged.
_SAME = (
    "batch",
    "queue",
    "account",
    "qos",
    "reservation",
    "constraint",
    "parallel_environment",
    "processors_per_node",
    "exclusive",
    "slots",
    "shared",
    "python",
    "drmaa",
)


def engine_settings(grid: GridFile) -> Settings:
    """Return the engine's settings."""
    return Settings(
        clusters=tuple(_cluster_settings(name, cluster) for name, cluster in grid.clusters.items()),
        queue=grid.scheduling.queue,
        placement=grid.scheduling.placement,
        max_overtakes=grid.scheduling.max_overtakes,
        claim_timeout=grid.claim.timeout,
        barrier_timeout=grid.barrier.timeout,
        barrier_wait=grid.barrier.wait,
        held_limit=grid.barrier.processor_hours,
        fill=grid.barrier.fill,
        max_submission_failures=grid.retries.submission,
        max_completion_failures=grid.retries.completion,
        max_revocations=grid.retries.revoked,
        queue_after=grid.queue_after,
        orphan_timeout=grid.orphan_timeout,
        scavenging=Scavenging(**dict(grid.scavenging)),
        preempt=Preempt(**dict(grid.scheduling.preempt)),
        race=Race(**dict(grid.scheduling.race)),
        lend=_lend(grid.site),
        borrow=borrow_of(grid.site),
        run=_run(grid.site),
        delegation=_delegation(grid.site),
    )


def _lend(site: Site | None) -> Lend | None:
    if site is None or site.lend is None:
        return None
    found = site.lend
    return Lend(
        to=found.to, processors=found.processors, clusters=found.clusters, walltime=found.walltime,
        lost_after=found.lost_after, pass_on=found.pass_on, strangers=found.strangers,
        requests_per_minute=found.requests_per_minute,
        isolate=found.isolation, visible=found.visible, revoke_for=found.revoke_for, grace=found.grace,
        hours=tuple([parse_hours(each) for each in found.hours]), disk=found.disk,
    )  # fmt: skip


def borrow_of(site: Site | None) -> Borrow | None:
    """Return what the grid file has of borrowing; None without that section."""
    if site is None or site.borrow is None:
        return None
    return Borrow(**{**dict(site.borrow), "networks": tuple(site.borrow.networks.items())})


def _run(site: Site | None) -> RunLimits | None:
    if site is None or site.run is None:
        return None
    return RunLimits(**{name: value for name, value in dict(site.run).items() if name != "isolation"})


def _delegation(site: Site | None) -> Delegation:
    if site is None:
        return Delegation()
    rules, served = site.delegation, site.matchmaking
    return Delegation(
        policy=rules.policy, targets=rules.targets, dttl=rules.dttl, dispatching=served.policy, interval=served.interval
    )


def cluster_config(grid: GridFile, name: str) -> dict[str, Any]:
    """Return the fields of the message that configures a KCM: plain values, durations in seconds.

    Raises KeyError for a name that the grid does not have.
    """
    cluster = grid.clusters[name]
    return {
        "name": name,
        **{key: getattr(cluster, key) for key in _SAME},
        "native": list(cluster.native),
        "setup": list(cluster.setup),
        "relay": str(cluster.relay),
        "relay_network": list(cluster.relay_network or ()),
        "poll": _seconds(cluster.poll),
        "orphan_timeout": _seconds(grid.orphan_timeout),
        "grace": _seconds(GRACE),
        "floor": _seconds(cluster.scavenge.floor),
        "launchers_environment": cluster.scavenge.parallel_environment,
        "power_up": cluster.power_up is not False,
    }


def _cluster_settings(name: str, cluster: Cluster) -> ClusterSettings:
    return ClusterSettings(
        name=name,
        batch=cluster.batch,
        network=cluster.network,
        processors_per_node=cluster.processors_per_node,
        exclusive=cluster.exclusive,
        max_age=cluster.oldest,
        poll=cluster.poll,
        backlog=cluster.backlog,
        only_named=cluster.only_named,
        race=cluster.race,
        sweeps_only=isinstance(cluster.connection, Pilot) and cluster.connection.fills,
        scavenge=_scavenge(cluster),
        attributes=tuple(cluster.attributes.items()),
        isolation=cluster.isolation.visible
        if is_temporary(name) and cluster.isolation.method is not Isolate.NONE
        else None,
    )


def _scavenge(cluster: Cluster) -> model.Scavenge:
    written = dict(cluster.scavenge)
    return model.Scavenge(**written | {"hours": parse_hours(written["hours"]) if written["hours"] else None})


def _seconds(duration: Duration) -> float:
    return duration / SECOND
