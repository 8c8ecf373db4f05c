"""Brings the test grid back to how it was after `up`: everything runs, no jobs, no leftovers."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from docker.models.containers import Container

from koalapy.testgrid import firewall, layout
from koalapy.testgrid.containers import Containers
from koalapy.testgrid.errors import ContainersError

SETTLE_TIMEOUT_S = 180
# More at once does not end sooner: the engine starts the commands one after the other.
WORKERS = 6

Answer = TypeVar("Answer")


def reset(containers: Containers) -> None:
    """All of it: everything runs as composed, nothing of anybody's is on it, every node is idle."""
    mend(containers)
    clean(containers)


def mend(containers: Containers) -> bool:
    """Unpauses, starts and reconnects what is not as it should be, opens its firewalls, and says whether it had to.

    Raises if a container is missing.
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
    """Cancels everybody's jobs, removes what people left on any host, and waits until all nodes are idle.

    The jobs go first, so that nothing starts where it has just been tidied.
    """
    on_each(layout.HEADS, lambda head: containers.check(head, ["/opt/testgrid/cancel"]))
    on_each(layout.hosts(), lambda host: containers.check(host, ["/opt/testgrid/tidy", *containers.names(host)]))
    on_each(layout.HEADS, lambda head: _settle(containers, head))


def on_each(hosts: Iterable[str], action: Callable[[str], Answer]) -> list[Answer]:
    """Does it for several hosts at once; raises the first error after all have ended."""
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
    """The networks it is in; while it does not run, those have no addresses yet."""
    names = container.attrs["NetworkSettings"]["Networks"]
    return [network for network in layout.NETWORKS if layout.network_name(network) in names]


def _settle(containers: Containers, head: str) -> None:
    status, output = containers.exec(head, ["/opt/testgrid/settle", str(SETTLE_TIMEOUT_S)])
    if status != 0:
        raise ContainersError(
            "not_settled",
            f"The nodes of {head} did not become idle within {SETTLE_TIMEOUT_S} s.",
            f"Run 'koala testgrid down' and 'up' again. The batch system says:\n{output.strip()}",
        )
