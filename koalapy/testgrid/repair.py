"""Restores the test grid to its state after `up`: everything runs, without jobs and leftover files."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from docker.models.containers import Container

from koalapy.testgrid import firewall, layout
from koalapy.testgrid.containers import Containers
from koalapy.testgrid.errors import ContainersError

SETTLE_TIMEOUT_S = 180
# More threads are no faster: the engine starts the commands one after the other.
WORKERS = 6

Answer = TypeVar("Answer")


def reset(containers: Containers) -> None:
    """Undo faults, cancel all jobs, remove users' files, and wait until all nodes are idle. Raises ContainersError."""
    mend(containers)
    clean(containers)


def mend(containers: Containers) -> bool:
    """Unpause, start and reconnect containers as needed, and open the firewalls. Return whether anything changed.

    Raises ContainersError if a container is missing.
    """
    found = containers.all()
    mended = False
    for host in layout.hosts():
        if host not in found:
            raise ContainersError(
                "no_container", f"The test grid has no container '{host}'.", "Run 'koala testgrid up'."
            )
        mended |= _mend(containers, host, found[host])
    return firewall.open_all(containers) or mended


def clean(containers: Containers) -> None:
    """Cancel all jobs, remove users' files on every host, and wait until all nodes are idle.

    Jobs are cancelled first, so that none starts on a cleaned host. Raises ContainersError.
    """
    on_each(layout.HEADS, lambda head: containers.check(head, ["/opt/testgrid/cancel"]))
    on_each(layout.hosts(), lambda host: containers.check(host, ["/opt/testgrid/tidy", *containers.names(host)]))
    on_each(layout.HEADS, lambda head: _settle(containers, head))


def on_each(hosts: Iterable[str], action: Callable[[str], Answer]) -> list[Answer]:
    """Call `action` for several hosts at once, and return the results. Raises the first error after all have ended."""
    with ThreadPoolExecutor(max_workers=WORKERS) as pool:
        return list(pool.map(action, hosts))


def _mend(containers: Containers, host: str, container: Container) -> bool:
    status = container.status
    if status == "paused":
        container.unpause()
    elif status != "running":
        container.start()
    unplugged = [network for network in layout.networks_of(host) if network not in _attached(container)]
    for network in unplugged:
        containers.connect(host, network)
    return status != "running" or bool(unplugged)


def _attached(container: Container) -> list[str]:
    """Return the networks of the container, which have no addresses while it does not run."""
    names = container.attrs["NetworkSettings"]["Networks"]
    return [network for network in layout.NETWORKS if layout.network_name(network) in names]


def _settle(containers: Containers, head: str) -> None:
    status, output = containers.exec(head, ["/opt/testgrid/settle", str(SETTLE_TIMEOUT_S)])
    if status != 0:
        raise ContainersError(
            "not_settled",
            f"The nodes of {head} did not become idle within {SETTLE_TIMEOUT_S} s.",
            f"Run 'koala testgrid down' and 'up' again. The batch system's output:\n{output.strip()}",
        )
