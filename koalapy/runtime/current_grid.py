"""The grid as koalad knows it now: the values of its grid file, and the clusters that were added by command."""

import json
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from koalapy.config import Cluster, GridFile
from koalapy.config.difference import PLACE
from koalapy.model.errors import OurError, RequestError
from koalapy.model.lease import is_temporary
from koalapy.model.pilot import job_of_pilot
from koalapy.model.textfile.words import listed, nearest

COMMANDED = "clusters.json"


class CurrentGrid:
    """A holder of the present values, which any thread may read. `file` is replaced as a whole, and never changed."""

    def __init__(self, file: GridFile) -> None:
        self.file = file


def no_such_cluster(cluster: str, known: Collection[str]) -> RequestError:
    """Return the error for a cluster that the grid does not have, for every request that names a cluster.

    Its advice covers a mistyped name, a cluster removed from the grid file while it had jobs, and an ended pilot.
    """
    if job_of_pilot(cluster) is not None:
        advice = "`koala pilots --all` lists them. What jobs wrote there lies on the cluster whose processors it held."
        return RequestError("no_such_cluster", f"The pilot {cluster} is not in the grid: it is over.", advice)
    meant = nearest(cluster, known)
    back = "If it was taken out of the grid file, put it back there."
    advice = f"Did you mean {meant}?" if meant is not None else f"{back} The grid has {listed(known)}."
    return RequestError("no_such_cluster", f"The cluster {cluster} is not in the grid file.", advice)


@dataclass(frozen=True, slots=True)
class CommandClusters:
    """The clusters that were added by command, and those that are being drained, in a file that outlives koalad.

    `added`: by cluster its values by key, as the command had them. `places`: those of all clusters at koalad's last
    start or change, so that a cluster that comes back elsewhere is recognised; see PLACE.
    """

    added: dict[str, dict[str, str]] = field(default_factory=dict)
    draining: tuple[str, ...] = ()
    places: dict[str, list[Any]] = field(default_factory=dict)


def place_of(cluster: Cluster) -> list[Any]:
    """Return the values that show whether a cluster of the same name is the same cluster, as JSON has them."""
    values = cluster.model_dump(mode="json")
    return [values[key] for key in PLACE]


def places_of(grid: GridFile) -> dict[str, list[Any]]:
    return {name: place_of(cluster) for name, cluster in grid.clusters.items() if not is_temporary(name)}


def load_commanded(state_directory: Path) -> CommandClusters:
    """Return the contents of the file; without a file there are none. Raises RequestError if it cannot be read."""
    path = state_directory / COMMANDED
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


def save_commanded(state_directory: Path, contents: CommandClusters) -> None:
    """Replace the file. Raises as `replace_file`."""
    added, draining = [*contents.added.items()], [*contents.draining]
    replace_file(state_directory / COMMANDED, {"added": added, "draining": draining, "places": contents.places})


def replace_file(path: Path, document: Mapping[str, Any]) -> None:
    """Replace a small JSON file of the state directory. Raises OurError; then the former file is still there."""
    new = path.with_name(f"{path.name}.new")
    try:
        with open(new, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(json.dumps(document, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror}. Nothing was changed."
        raise OurError("not_written", message, "Make room there, then try again.") from error
