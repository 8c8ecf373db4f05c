"""The clusters that were added by command, and those that are being drained, in a file of the state directory.

The file outlives koalad. It also has the places of all clusters at koalad's last start or change, so that a cluster
that comes back elsewhere is recognised.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from koalapy.config import Cluster, GridFile
from koalapy.config.difference import PLACE
from koalapy.model.errors import RequestError
from koalapy.model.lease import is_held
from koalapy.runtime import state_file

FILE = "clusters.json"


@dataclass(frozen=True, slots=True)
class CommandClusters:
    """The contents of the file. `added`: by cluster its values by key, as the command had them; `places`: see PLACE."""

    added: dict[str, dict[str, str]] = field(default_factory=dict)
    draining: tuple[str, ...] = ()
    places: dict[str, list[Any]] = field(default_factory=dict)


def place_of(cluster: Cluster) -> list[Any]:
    """Return the values that show whether a cluster of the same name is the same cluster, as JSON has them."""
    values = cluster.model_dump(mode="json")
    return [values[key] for key in PLACE]


def places_of(grid: GridFile) -> dict[str, list[Any]]:
    return {name: place_of(cluster) for name, cluster in grid.clusters.items() if not is_held(name)}


def load(state_directory: Path) -> CommandClusters:
    """Return the file's contents; without a file there are none. Raises RequestError if it cannot be read."""
    path = state_directory / FILE
    try:
        found = json.loads(path.read_text())
        added = {str(name): {str(key): str(each) for key, each in values.items()} for name, values in found["added"]}
        return CommandClusters(added, tuple(map(str, found["draining"])), dict(found["places"]))
    except FileNotFoundError:
        return CommandClusters()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"{path} with the clusters that were added by command cannot be read: {error}."
        advice = "Correct it, or remove it and add these clusters again."
        raise RequestError("unreadable_clusters", message, advice) from error


def save(state_directory: Path, contents: CommandClusters) -> None:
    """Replace the file. Raises as `state_file.save`."""
    added, draining = [*contents.added.items()], [*contents.draining]
    state_file.save(state_directory / FILE, {"added": added, "draining": draining, "places": contents.places})
