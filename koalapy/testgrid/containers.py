"""The running containers: commands in them, and the faults that tests inject.

Under load the engine may lose either end of a short command's output. Therefore a shell starts the command once the
output is being read, and ends once all output has arrived.
"""

import shlex
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from secrets import token_hex
from typing import Any, NamedTuple

import docker
from docker import APIClient
from docker.errors import APIError, DockerException, NotFound
from docker.models.containers import Container
from docker.models.networks import Network as EngineNetwork
from docker.utils.socket import frames_iter

from koalapy.testgrid import layout
from koalapy.testgrid.layout import ContainersError, Network

_OUTSIDE = """
read -r go
eval "set -- $TESTGRID_ARGV"; end=$TESTGRID_END; unset TESTGRID_ARGV TESTGRID_END
"$@" </dev/null 2>&1
status=$?
echo "$end$status."
read -r over
exit $status
"""


class Executed(NamedTuple):
    exit_status: int
    output: str  # standard output and error, as they arrived


class Containers:
    """The test grid's containers, by host name (`alpha`, `alpha-c1`, …), through the engine's API."""

    def __init__(self, client: docker.DockerClient | None = None) -> None:
        self.client = client or connect()

    def exec(self, host: str, argv: Sequence[str], user: str = "root", login: bool = False) -> Executed:
        """Run a command and wait for its end; with `login`, in the user's login environment and home.

        Raises ContainersError if the engine cannot run it.
        """
        if login:
            argv = ["bash", "-lc", 'cd; exec "$0" "$@"', *argv]
        environment = {"HOME": "/root" if user == "root" else f"/home/{user}", "USER": user}
        try:
            container = str(self._container(host).id)
            status, output = run(self.client.api, container, argv, user, environment)
        except APIError as error:
            raise _refused(host, error) from error
        return Executed(status, output.decode(errors="replace"))

    def check(self, host: str, argv: Sequence[str], user: str = "root", login: bool = False) -> str:
        """Return the output of a command that must succeed. Raises ContainersError if it fails."""
        status, output = self.exec(host, argv, user, login)
        if status != 0:
            raise ContainersError(
                "command_failed",
                f"'{' '.join(argv)}' on {host} ended with {status}: {_last_line(output)}",
                f"Look at 'docker logs {layout.container_name(host)}'.",
            )
        return output

    def pause(self, host: str) -> None:
        """Freeze every process, like a machine that hangs: connections stay, but nothing answers."""
        self._container(host).pause()

    def unpause(self, host: str) -> None:
        self._container(host).unpause()

    def stop(self, host: str) -> None:
        """Stop the container within two seconds, like a machine that is shut down."""
        self._container(host).stop()

    def kill(self, host: str) -> None:
        """Kill the container at once, like a machine that loses power."""
        self._container(host).kill()

    def start(self, host: str) -> None:
        self._container(host).start()

    def kill_process(self, host: str, name: str, signum: int = signal.SIGKILL, user: str | None = None) -> None:
        """Send a signal to all processes of that name, of one user or all. Raises ContainersError if there is none."""
        by_user = ["--uid", user] if user else []
        self.check(host, ["pkill", f"-{int(signum)}", "--exact", *by_user, name])

    def disconnect(self, host: str, network: Network = "cluster") -> None:
        """Disconnect the host from a network. The other ends of its connections get no notice."""
        self._network(network).disconnect(layout.container_name(host), force=True)

    def connect(self, host: str, network: Network = "cluster") -> None:
        """Connect the host again, with its former address and the names of the other hosts."""
        address = self.expected_address(host, network)
        self._network(network).connect(layout.container_name(host), ipv4_address=address, aliases=[host])
        if self._container(host).status == "running":
            self.check(host, ["/opt/testgrid/name-hosts", *self.names(host)])

    def names(self, host: str) -> list[str]:
        """Return the hosts that the host's hosts file names, each as NAME:ADDRESS."""
        return list(self._container(host).attrs["HostConfig"]["ExtraHosts"])

    def address(self, host: str, network: Network = "access") -> str:
        """Return the address of the host in the network. Raises ContainersError if it is not connected."""
        addresses = addresses_of(self._container(host))
        if network not in addresses:
            raise ContainersError(
                "not_connected", f"{host} is not connected to the network {network}.", "Run 'koala testgrid reset'."
            )
        return addresses[network]

    def expected_address(self, host: str, network: Network) -> str:
        """Return the address that the compose file gives to the host, connected or not."""
        return f"{self.prefix(network)}.{layout.networks_of(host)[network]}"

    def prefix(self, network: Network) -> str:
        """Return the first three numbers of the network's addresses."""
        subnet: str = self._network(network).attrs["IPAM"]["Config"][0]["Subnet"]
        return subnet.rpartition(".")[0]

    def gateway(self, network: Network) -> str:
        """Return this machine's address in the network, for an engine on this machine."""
        address: str = self._network(network).attrs["IPAM"]["Config"][0]["Gateway"]
        return address

    def all(self) -> dict[str, Container]:
        """Return the existing containers by host, running or not."""
        label = f"com.docker.compose.project={layout.PROJECT}"
        found = self.client.containers.list(all=True, filters={"label": label}, ignore_removed=True)
        return {each.labels["com.docker.compose.service"]: each for each in found}

    def _container(self, host: str) -> Container:
        try:
            return self.client.containers.get(layout.container_name(host))
        except NotFound:
            raise ContainersError(
                "no_container", f"The test grid has no container '{host}'.", "Run 'koala testgrid up'."
            ) from None

    def _network(self, network: Network) -> EngineNetwork:
        try:
            return self.client.networks.get(layout.network_name(network))
        except NotFound:
            raise ContainersError(
                "no_network", f"The test grid has no network '{network}'.", "Run 'koala testgrid up'."
            ) from None


def connect() -> docker.DockerClient:
    """Connect to the engine that `DOCKER_HOST` names, else to this machine's.

    Raises ContainersError if there is none.
    """
    try:
        client = docker.from_env(timeout=300)
        client.ping()
    except DockerException as error:
        raise ContainersError(
            "no_engine",
            "No Docker engine can be reached.",
            f"Install and start one ('sh {layout.directory() / 'install-engine'}' on Debian), or join its group.",
        ) from error
    return client


def addresses_of(container: Container) -> dict[Network, str]:
    """Return the container's addresses in the networks that it is connected to now."""
    attached = container.attrs["NetworkSettings"]["Networks"]
    named = {network: attached.get(layout.network_name(network)) for network in layout.NETWORKS}
    return {network: there["IPAddress"] for network, there in named.items() if there and there["IPAddress"]}


def _refused(host: str, error: APIError) -> ContainersError:
    """Return the error with the engine's reason, such as that the container is paused."""
    words = str(error.explanation or error).replace(layout.container_name(host), host)
    paused = f"{host} is paused." if "paused" in words else f"The engine refuses a command on {host}: {words}."
    return ContainersError("refused", paused, "Run 'koala testgrid reset'.")


def _last_line(output: str) -> str:
    return output.strip().rpartition("\n")[2] or "it printed nothing"


def run(
    api: APIClient, container: str, argv: Sequence[str], user: str, environment: Mapping[str, str]
) -> tuple[int, bytes]:
    """Return the exit status, and the output including standard error. Raises docker.errors.APIError."""
    end = token_hex(16)
    variables = {**environment, "TESTGRID_ARGV": shlex.join(argv), "TESTGRID_END": end}
    made = api.exec_create(container, ["sh", "-c", _OUTSIDE], stdin=True, user=user, environment=variables)
    with _streams(api, made["Id"]) as plug:
        output, status = _output(plug, end.encode())
    if status is None:
        status = api.exec_inspect(made["Id"])["ExitCode"]
        assert status is not None, "it has ended"
    return status, output


def _output(plug: Any, end: bytes) -> tuple[bytes, int | None]:
    """Return the command's output and exit status. The status is None if the surrounding shell was killed too."""
    output, looked = bytearray(), 0
    plug.sendall(b"\n")
    for _, data in frames_iter(plug, tty=False):  # type: ignore[no-untyped-call]
        output += data
        at = output.find(end, looked)
        if at >= 0 and b"." in output[at + len(end) :]:
            plug.sendall(b"\n")  # lets the surrounding shell end
            return bytes(output[:at]), int(output[at + len(end) :].split(b".")[0])
        looked = max(0, len(output) - len(end)) if at < 0 else at
    return bytes(output), None


@contextmanager
def _streams(api: APIClient, exec_id: str) -> Iterator[Any]:
    holder: Any = api.exec_start(exec_id, socket=True)
    plug = getattr(holder, "_sock", holder)
    plug.settimeout(None)
    try:
        yield plug
    finally:
        holder.close()
        plug.close()  # otherwise it stays open until it is garbage-collected
