"""Waits until the test grid can be used: each cluster has run a job, and each head node accepts a login."""

import base64
import time

import paramiko

from koalapy.testgrid import layout, state
from koalapy.testgrid.containers import Containers, Executed
from koalapy.testgrid.layout import Cluster, ContainersError
from koalapy.testgrid.repair import on_each

PAUSE_S = 0.3
TRY_TIMEOUT_S = 30


def run_jobs(containers: Containers, timeout_s: float) -> None:
    """Run a job on all nodes of each cluster as the grid's user. Raises ContainersError after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    by_name = {cluster.name: cluster for cluster in layout.CLUSTERS}
    on_each(layout.HEADS, lambda head: _run_job(containers, by_name[head], deadline, timeout_s))


def exchange_keys(containers: Containers) -> dict[str, str]:
    """Install our public key on every head node, and return the host keys by address.

    The keys are transferred by the engine's API, so that no first connection has to be trusted.
    """
    public = state.public_key(state.identity_file())
    return dict(on_each(layout.HEADS, lambda head: exchange_keys_with(containers, head, public)))


def log_in(host_keys: dict[str, str]) -> None:
    """Log in at every address like koalapy, with the key and the known hosts. Raises if a login fails."""
    for address, host_key in host_keys.items():
        _log_in(address, host_key)


def _run_job(containers: Containers, cluster: Cluster, deadline: float, timeout_s: float) -> None:
    status, output = _try_job(containers, cluster)
    while status != 0:
        if time.monotonic() > deadline:
            words = output + containers.exec(cluster.name, ["/opt/testgrid/settle", "0"])[1]
            raise ContainersError(
                "not_ready",
                f"The cluster {cluster.name} ran no job within {timeout_s:.0f} s: {words.strip()}",
                f"Look at 'docker logs {layout.container_name(cluster.name)}', then 'koala testgrid down' and 'up'.",
            )
        time.sleep(PAUSE_S)
        status, output = _try_job(containers, cluster)


def _try_job(containers: Containers, cluster: Cluster) -> Executed:
    """Run a job on all nodes, after the nodes that the batch system has excluded are put back into service."""
    containers.exec(cluster.name, ["/opt/testgrid/resume"])
    return containers.exec(cluster.name, ["timeout", str(TRY_TIMEOUT_S), "/opt/testgrid/try-job"], layout.USER)


def exchange_keys_with(containers: Containers, head: str, public: str) -> tuple[str, str]:
    """Install a public key on one head node, and return the head's address and host key."""
    # The start script makes the host key, and the container may have started only now.
    script = """
        until [ -e /etc/ssh/testgrid_keys ] && [ -e /etc/ssh/ssh_host_ed25519_key.pub ]; do sleep 0.1; done
        grep -qxF "$0" /etc/ssh/testgrid_keys || echo "$0" >>/etc/ssh/testgrid_keys
        cat /etc/ssh/ssh_host_ed25519_key.pub"""
    line = ""
    while not line:  # under load the engine may lose the output of a very short command
        line = containers.check(head, ["timeout", "60", "bash", "-c", script, public])
    kind, key = line.split()[:2]
    return containers.address(head), f"{kind} {key}"


def _log_in(address: str, host_key: str) -> None:
    with paramiko.SSHClient() as client:
        key = paramiko.Ed25519Key(data=base64.b64decode(host_key.split()[1]))
        client.get_host_keys().add(address, "ssh-ed25519", key)
        try:
            client.connect(
                address,
                username=layout.USER,
                key_filename=str(state.identity_file()),
                timeout=10,
                allow_agent=False,
                look_for_keys=False,
            )
        except (OSError, paramiko.SSHException) as error:
            raise ContainersError(
                "no_login",
                f"The head node at {address} lets nobody in over SSH: {error}.",
                "The engine must run on this machine, so that its containers' addresses can be reached.",
            ) from error
