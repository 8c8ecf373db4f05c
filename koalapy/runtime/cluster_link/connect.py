"""Makes the connection that a grid file names for a cluster.

Modules for a kind of connection are imported when one is made: `koala` starts without paramiko and docker.
"""

from typing import TYPE_CHECKING

from koalapy_adapters.connections.asking import Asker
from koalapy_adapters.connections.command import CommandConnection
from koalapy_adapters.connections.failover import FailoverConnection
from koalapy_adapters.connections.local import LocalConnection
from koalapy_adapters.connections.protocol import Connection

from koalapy.common.extras import need_extra
from koalapy.config.connect import Command, Docker, Leased, Pilot, Ssh
from koalapy.config.schema import Cluster
from koalapy.model.errors import RequestError

if TYPE_CHECKING:
    from koalapy_adapters.connections.ssh import SshConnection


def connection_of(cluster: Cluster, asker: Asker | None = None) -> Connection:
    """Return the connection of a cluster, not yet open.

    `asker` passes on a login's questions; without one, no question is answered. Raises RequestError for docker://
    without koalapy's extra `docker`, and for a pilot, which only its koalad reaches.
    """
    named = cluster.connection
    if isinstance(named, Ssh):
        ways = [_ssh(cluster, each, asker) for each in cluster.connections if isinstance(each, Ssh)]
        return ways[0] if len(ways) == 1 else FailoverConnection(ways)
    if isinstance(named, Docker):
        need_extra("docker", "A docker:// connection")
        from koalapy_adapters.connections.docker import DockerConnection

        return DockerConnection(named.container, named.user)
    if isinstance(named, Command):
        return CommandConnection(named.argv)
    if isinstance(named, Leased):
        message = f"{named.lender}~{named.number} is a lease, which only its koalad reaches."
        raise RequestError("lease", message, "`koala leases` lists it.")
    if isinstance(named, Pilot):
        message = f"Job {named.job} is a pilot, which only its koalad reaches."
        raise RequestError("pilot", message, "`koala pilots` lists it.")
    return LocalConnection()


def may_ask(cluster: Cluster) -> bool:
    """Return whether a login there can ask a person something that koalad passes on."""
    return isinstance(cluster.connection, Ssh)


def _ssh(cluster: Cluster, named: Ssh, asker: Asker | None) -> "SshConnection":
    from koalapy_adapters.connections.ssh import SshConnection

    return SshConnection(
        named.host,
        named.user,
        named.port,
        identity=cluster.identity,
        known_hosts=cluster.known_hosts,
        config=cluster.ssh_config,
        asker=asker,
    )
