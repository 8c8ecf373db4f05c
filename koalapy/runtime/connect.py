"""Makes the connection that a grid file names for a cluster."""

from koalapy_adapters.connections.command import CommandConnection
from koalapy_adapters.connections.docker import DockerConnection
from koalapy_adapters.connections.local import LocalConnection
from koalapy_adapters.connections.protocol import Connection
from koalapy_adapters.connections.ssh import SshConnection

from koalapy.config.connect import Command, Docker, Ssh
from koalapy.config.schema import Cluster


def connection_of(cluster: Cluster) -> Connection:
    """Nothing is connected yet."""
    named = cluster.connection
    if isinstance(named, Ssh):
        return SshConnection(named.host, named.user, named.port, cluster.identity, cluster.known_hosts)
    if isinstance(named, Docker):
        return DockerConnection(named.container, named.user)
    if isinstance(named, Command):
        return CommandConnection(named.argv)
    return LocalConnection()
