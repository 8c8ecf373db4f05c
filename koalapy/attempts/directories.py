"""The directory of an attempt: which cluster's KCM removes it. That of an attempt on a pilot outlives the pilot."""

from koalapy.core.core import Core
from koalapy.model.attempt import Attempt
from koalapy.model.commands import ForgetAttempt
from koalapy.model.pilot import job_of_pilot


def host_cluster_of(core: Core, cluster: str) -> str:
    """Return the cluster whose processors a pilot holds, and whose shared directory it has; "" for no pilot."""
    number = job_of_pilot(cluster)
    pilot = None if number is None else core.pilots.records.get(number)
    return "" if pilot is None else pilot.host_cluster


def cluster_with_directory(core: Core, attempt: Attempt) -> str | None:
    """Return the cluster in the grid that can remove the attempt's directory; None if there is none any more."""
    known = core.information.clusters
    return next((each for each in (attempt.cluster, attempt.host_cluster) if each in known), None)


def remove_directory(core: Core, attempt: Attempt) -> None:
    """Order that the attempt's directory be removed. Where no cluster in the grid can, it stays."""
    cluster = cluster_with_directory(core, attempt)
    if cluster is not None:
        core.records.command(ForgetAttempt(cluster=cluster, attempt=attempt.id))
