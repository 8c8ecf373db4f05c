"""Faults of the test grid that need more than one call of the engine, and its repair.

A reset restores the grid to its state after `up`: everything runs, without jobs and leftover files.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal, TypeVar

from docker.models.containers import Container

from koalapy.testgrid import firewall, layout
from koalapy.testgrid.containers import Containers
from koalapy.testgrid.layout import USER, ContainersError

DISK = "/shared"  # beta's shared disk, which is small enough to fill
_BALLAST = f"{DISK}/ballast"

Which = Literal["all", "oldest", "newest"]
_OPTIONS: dict[Which, Sequence[str]] = {"all": (), "oldest": ("--oldest",), "newest": ("--newest",)}
SETTLE_TIMEOUT_S = 180
# More threads are no faster: the engine starts the commands one after the other.
WORKERS = 6
Answer = TypeVar("Answer")


def kill_command(containers: Containers, host: str, pattern: str, which: Which = "all", user: str = USER) -> None:
    """Kill the user's processes whose command lines match. Raises ContainersError if there is none."""
    containers.check(host, ["pkill", "-KILL", *_OPTIONS[which], "--uid", user, "--full", pattern])


def start_services(containers: Containers, host: str) -> None:
    """Start the services of the host that do not run. Raises ContainersError."""
    containers.check(host, ["/opt/testgrid/start"])


def fill_disk(containers: Containers, host: str = "beta") -> None:
    """Fill the host's shared disk to the last byte, for all users."""
    script = f"set +e; dd if=/dev/zero of={_BALLAST} bs=1M; dd if=/dev/zero of={_BALLAST}.rest bs=1; true"
    containers.check(host, ["bash", "-c", f"({script}) 2>/dev/null"])


def free_disk(containers: Containers, host: str = "beta") -> None:
    """Remove the files of `fill_disk`, if there are any."""
    containers.check(host, ["rm", "-f", _BALLAST, f"{_BALLAST}.rest"])


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
