"""A target of the contract: one batch system, the connection to it, and its properties."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from koalapy.common.registry import registered
from koalapy.config.convert import cluster_config
from koalapy.config.load import read_grid
from koalapy.config.schema import GridFile
from koalapy.runtime.cluster_link.connect import connection_of
from koalapy_adapters.connections.protocol import Connection

# What a batch system may refuse the moment it is asked; those that it does not, it may keep waiting or let run.
QUEUE, ACCOUNT, PROCESSORS, WALLTIME = "queue", "account", "processors", "walltime"
LOWEST = "lowest"  # it takes the lowest priority, and starts such a job before others all the same
REFUSALS = (QUEUE, ACCOUNT, PROCESSORS, WALLTIME, LOWEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A batch system under test. `settings`: those of a cluster, as in a grid file.

    `neighbour`: the settings that differ for another user. Without a neighbour, the same user submits other people's
    jobs, which then have names that are no tags.
    """

    name: str
    head: str  # targets of one head node are tried one after the other, since each counts what is free there
    settings: Callable[[], Mapping[str, Any]]  # asked when the target's turn has come
    neighbour: Mapping[str, Any] = field(default_factory=dict)
    refuses: frozenset[str] = frozenset({QUEUE, PROCESSORS})
    array: str = ""  # the `native` line that makes an array of a job, or a shell command that submits one
    restart: str = ""  # a shell command that has the batch system start the job {id} again
    operator: Mapping[str, Any] = field(default_factory=dict)  # who may do that, as `neighbour`
    remembers_s: float = 300.0  # after which a job that has ended is surely listed no longer


@dataclass(frozen=True, slots=True)
class Login:
    """One user's access to the batch system: a connection, and the cluster's configuration as a KCM gets it."""

    connection: Connection
    config: dict[str, Any]


def login(target: Target, other: Mapping[str, Any] | None = None) -> Login:
    """Return a user's login.

    `other`: settings of a neighbour or operator, who has a shared directory of his own. Raises RequestError if a grid
    file may not have them.
    """
    own = target.settings()
    if other:
        own = {key: value for key, value in own.items() if key != "shared"}
    settings = {"poll": "1s", **own, **(other or {})}
    if not str(settings["connect"]).startswith("ssh:"):
        settings = {key: value for key, value in settings.items() if key not in ("identity", "known_hosts")}
    grid = _grid(settings)
    (name,) = grid.clusters
    return Login(connection_of(grid.clusters[name]), cluster_config(grid, name))


def _grid(settings: Mapping[str, Any]) -> GridFile:
    document = {"grid": "contract", "clusters": {"here": dict(settings)}}
    return read_grid(yaml.safe_dump(document), "the target's settings", registered("koalapy.batch_systems"))
