"""The networks and volumes that remain when the engine refuses to remove one: compose stops there."""

from typing import Any

import docker
from docker.errors import APIError

from koalapy.testgrid import layout
from koalapy.testgrid.errors import ContainersError

_OURS: dict[str, Any] = {"label": f"com.docker.compose.project={layout.PROJECT}"}


def only_networks(client: docker.DockerClient) -> bool:
    """Whether all containers are gone, so that what remains can be removed by itself."""
    return not client.containers.list(all=True, filters=_OURS)


def remove(client: docker.DockerClient) -> None:
    """Volumes and networks. Raises ContainersError, after all others, for a network that the engine keeps.

    An engine that lost count while containers were unplugged and killed believes that one of them is still there.
    """
    for volume in client.volumes.list(filters=_OURS):
        volume.remove()
    kept = [str(network.name) for network in client.networks.list(filters=_OURS) if not _removed(network)]
    if kept:
        raise ContainersError(
            "network_kept",
            f"The container engine does not let go of {', '.join(kept)}: it takes what is gone for plugged in there.",
            "All else is removed, and the test grid can come up again; restart the engine to be rid of the network.",
        )


def _removed(network: Any) -> bool:
    try:
        network.remove()
    except APIError as error:
        if error.status_code == 404:
            return True
        if error.status_code != 403:
            raise
        return False
    return True
