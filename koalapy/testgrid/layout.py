"""The clusters, hosts and addresses that the compose file defines.

The clusters' settings for a grid file are here. The hosts and the last numbers of their addresses are read from the
compose file.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

from koalapy.common.data import data_path
from koalapy.model.errors import ClusterError

NAME = os.environ.get("KOALA_TESTGRID") or "testgrid"  # several test grids may exist side by side
PROJECT = f"koala-{NAME}"
USER = "koala"
SHARED = "/shared"
NETWORKS: tuple["Network", ...] = ("cluster", "access")
PBS_IMAGE = os.environ.get(
    "KOALA_TESTGRID_PBS_IMAGE", ""
)  # an image with OpenPBS; without one that cluster does not exist
PROFILES = ("pbs",) if PBS_IMAGE else ()
DEBIANS = ("bookworm", "trixie")  # the releases that the images are built from
# Each image with one of its services: building it for every service would repeat the work.
IMAGES = {
    "koala-testgrid-slurm": "alpha",
    "koala-testgrid-slurm-trixie": "delta",
    "koala-testgrid-sge": "gamma",
    "koala-testgrid-pbs": "epsilon",
}
Network = Literal["cluster", "access"]
MAIN = ("alpha", "beta", "gamma")  # the clusters of the main job, its tests and benchmarks
# Settings with which beta is a Torque cluster in a grid file: Slurm emulates Torque's commands there.
TORQUE: dict[str, str | int] = {"batch": "torque", "shared": f"{SHARED}/{USER}/torque", "processors_per_node": 4}


class ContainersError(ClusterError):
    """A failure of the container engine, of compose, or of a command in a container."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster, and its settings in the grid file except those that differ from user to user.

    `has_shared_disk`: its nodes have homes of their own, and each user has a directory below SHARED.
    """

    name: str
    batch: str
    settings: Mapping[str, str] = field(default_factory=dict)
    has_shared_disk: bool = False

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(host for host in hosts() if host.startswith(f"{self.name}-"))


CLUSTERS = (
    Cluster("alpha", "slurm", {"queue": "batch"}),
    Cluster("beta", "slurm", {"queue": "batch"}, has_shared_disk=True),
    Cluster("gamma", "sge", {"queue": "all.q", "parallel_environment": "mpi", "drmaa": "auto"}),
    Cluster("delta", "slurm", {"queue": "batch"}),
    *([Cluster("epsilon", "pbs", {"queue": "workq"})] if PBS_IMAGE else []),
)
HEADS = tuple(cluster.name for cluster in CLUSTERS)


def directory() -> Path:
    """Return the build context, which contains the compose file."""
    return data_path("containers")


def container_name(host: str) -> str:
    return f"{PROJECT}-{host}"


def network_name(network: Network) -> str:
    """Return the network's name, which is the same in compose versions 1 and 2."""
    return f"{PROJECT}_{network}"


def hosts() -> tuple[str, ...]:
    """Return all head and compute nodes, in the order of the compose file."""
    return tuple(_services())


def networks_of(host: str) -> dict[Network, int]:
    """Return the networks of the host, each with the last number of the host's address there."""
    attached = _services()[host]["networks"]
    return {name: int(attached[name]["ipv4_address"].rpartition(".")[2]) for name in NETWORKS if name in attached}


def images() -> dict[str, str]:
    """Return the images that are needed here, each with one of its services."""
    return {image: service for image, service in IMAGES.items() if service in hosts()}


@cache
def _services() -> dict[str, Any]:
    services = yaml.safe_load((directory() / "compose.yml").read_text())["services"]
    return {name: each for name, each in services.items() if set(each.get("profiles", PROFILES)) <= set(PROFILES)}
