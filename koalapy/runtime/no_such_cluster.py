"""The error for a cluster that the grid file does not name, for every request that names a cluster."""

from collections.abc import Collection

from koalapy.model.errors import RequestError
from koalapy.model.pilot import job_of_pilot
from koalapy.model.textfile.words import listed, nearest


def no_such_cluster(cluster: str, known: Collection[str]) -> RequestError:
    """Return the error.

    Its advice covers a mistyped name, a cluster removed from the grid file while it had jobs, and a pilot that is over.
    """
    if job_of_pilot(cluster) is not None:
        advice = "`koala pilots --all` lists them. What jobs wrote there lies on the cluster whose processors it held."
        return RequestError("no_such_cluster", f"The pilot {cluster} is not in the grid: it is over.", advice)
    meant = nearest(cluster, known)
    back = "If it was taken out of the grid file, put it back there."
    advice = f"Did you mean {meant}?" if meant is not None else f"{back} The grid has {listed(known)}."
    return RequestError("no_such_cluster", f"The cluster {cluster} is not in the grid file.", advice)
