"""Starts, stops and resets the test grid, and reports its state."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, ImageNotFound
from docker.models.containers import Container

from koalapy.testgrid import compose, layout, networks, ready, repair, state
from koalapy.testgrid.containers import Containers, addresses_of
from koalapy.testgrid.layout import ContainersError
from koalapy.testgrid.running import Running

READY_TIMEOUT_S = 240.0
_OURS: dict[str, Any] = {"label": f"com.docker.compose.project={layout.PROJECT}"}

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Status:
    """The state of the test grid. `hosts`: each container's state: `running`, `paused`, `exited` or `missing`."""

    up: bool
    grid_file: Path | None
    addresses: dict[str, str]  # of the head nodes with an address
    hosts: dict[str, str]


def up(report: Report = lambda _: None, timeout_s: float = READY_TIMEOUT_S) -> Running:
    """Build and start what is missing. Return when every cluster has run a job on all its nodes.

    If the test grid is up, this is quick. Its jobs and files stay; `reset` removes them. Raises ContainersError.
    """
    containers = Containers()
    with state.reserved("up"):
        if _as_composed(containers):
            report("The containers are running.")
        else:
            _compose_up(containers, report)
        mended = repair.mend(containers)
        host_keys = ready.exchange_keys(containers)
        state.write_known_hosts(host_keys)
        if mended or not _was_ready(containers):
            report("Waiting until each cluster has run a job…")
            ready.run_jobs(containers, timeout_s)
            _mark_ready(containers)
        ready.log_in(host_keys)
        path = state.write_grid_file({head: containers.address(head) for head in layout.HEADS})
    return Running(path, layout.HEADS, containers)


def down(images: bool = False) -> None:
    """Remove containers, networks and volumes, and with `images` the images. Anything may be missing already.

    Raises ContainersError, after all else is removed, if the engine keeps a network.
    """
    containers = Containers()
    with state.reserved("up"):
        _unpause(containers)
        try:
            compose.down(_environment(containers))
        except ContainersError:
            if not _only_networks(containers.client):
                raise
        state.forget()
        _remove_rest(containers.client)
        if images:
            _remove_images(containers, keep=None)


def reset(containers: Containers | None = None) -> None:
    """Undo faults, cancel all jobs, remove users' files, and wait until all nodes are idle. Raises ContainersError."""
    repair.reset(containers or Containers())


def status() -> Status:
    containers = Containers()
    found = containers.all()
    hosts = {host: found[host].status if host in found else "missing" for host in layout.hosts()}
    addresses = {head: addresses_of(found[head]) for head in layout.HEADS if head in found}
    grid_file = state.grid_file() if state.grid_file().exists() else None
    return Status(
        up=grid_file is not None and set(hosts.values()) == {"running"},
        grid_file=grid_file,
        addresses={head: there["access"] for head, there in addresses.items() if "access" in there},
        hosts=hosts,
    )


def _compose_up(containers: Containers, report: Report) -> None:
    with state.engine_reserved():
        environment = _environment(containers)
        if not _has_images(containers, environment["KOALA_TESTGRID_TAG"]):
            compose.build(environment, report)
        report("Starting the containers…")
        # Compose can neither start nor replace a container that is paused.
        _unpause(containers)
        compose.up(environment)
        _remove_images(containers, keep=environment["KOALA_TESTGRID_TAG"])


def _environment(containers: Containers) -> dict[str, str]:
    return compose.environment(compose.tag(layout.directory()), networks.prefixes(containers.client))


def _as_composed(containers: Containers) -> bool:
    """Return whether every container exists, from the images of the present build context."""
    tag = compose.tag(layout.directory())
    found = containers.all()
    return all(host in found and _image(found[host]).endswith(f":{tag}") for host in layout.hosts())


def _image(container: Container) -> str:
    return str(container.attrs["Config"]["Image"])


def _has_images(containers: Containers, tag: str) -> bool:
    try:
        for name in layout.images():
            containers.client.images.get(f"{name}:{tag}")
    except ImageNotFound:
        return False
    return True


def _unpause(containers: Containers) -> None:
    for container in containers.all().values():
        if container.status == "paused":
            container.unpause()


def _remove_images(containers: Containers, keep: str | None) -> None:
    """Remove the images of other build contexts, except those that a container's configuration names.

    The container may be of another test grid, which could not be started again without its image's name.
    """
    used = {_image(each) for each in containers.client.containers.list(all=True, ignore_removed=True)}
    for image in containers.client.images.list():
        for name in image.tags:
            repository, _, tag = name.rpartition(":")
            if repository in layout.IMAGES and tag != keep and name not in used:
                _remove_image(containers, name)


def _remove_image(containers: Containers, name: str) -> None:
    """Remove an image, unless another container uses it."""
    try:
        containers.client.images.remove(name)
    except APIError as error:
        if error.status_code != 409:
            raise


# A file marks that a cluster has run a job. A restart of its head node removes the file.
_MARK = "/run/testgrid-ready"


def _was_ready(containers: Containers) -> bool:
    return all(repair.on_each(layout.HEADS, lambda head: containers.exec(head, ["test", "-e", _MARK])[0] == 0))


def _mark_ready(containers: Containers) -> None:
    repair.on_each(layout.HEADS, lambda head: containers.check(head, ["touch", _MARK]))


def _only_networks(client: docker.DockerClient) -> bool:
    """Return whether all containers are removed, so that the rest can be removed without compose."""
    return not client.containers.list(all=True, filters=_OURS)


def _remove_rest(client: docker.DockerClient) -> None:
    """Remove volumes and networks. Raises ContainersError, after all others, for a network that the engine keeps.

    After disconnects and kills, an engine may wrongly count a removed container as connected.
    """
    for volume in client.volumes.list(filters=_OURS):
        volume.remove()
    kept = [str(network.name) for network in client.networks.list(filters=_OURS) if not _is_removed(network)]
    if kept:
        raise ContainersError(
            "network_kept",
            f"The container engine does not let go of {', '.join(kept)}: it takes what is gone for plugged in there.",
            "All else is removed, and the test grid can come up again; restart the engine to be rid of the network.",
        )


def _is_removed(network: Any) -> bool:
    try:
        network.remove()
    except APIError as error:
        if error.status_code == 404:
            return True
        if error.status_code != 403:
            raise
        return False
    return True
