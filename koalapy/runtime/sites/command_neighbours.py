"""The neighbours that were added by command, in a file of the state directory, which outlives koalad."""

import json
from collections.abc import Mapping
from pathlib import Path

from koalapy.model.errors import RequestError
from koalapy.runtime import state_file

FILE = "neighbours.json"

Values = Mapping[str, Mapping[str, str]]  # by neighbour its values by key, as a grid file has them


def load(state_directory: Path) -> Values:
    """Return the file's contents; without a file there are none. Raises RequestError if it cannot be read."""
    path = state_directory / FILE
    try:
        found = json.loads(path.read_text())["neighbours"]
        return {str(name): {str(key): str(each) for key, each in values.items()} for name, values in found.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"{path} with the neighbours that were added by command cannot be read: {error}."
        raise RequestError(
            "unreadable_neighbours", message, "Correct it, or remove it and join these sites again."
        ) from error


def save(state_directory: Path, values: Values) -> None:
    """Replace the file. Raises as `state_file.save`."""
    state_file.save(state_directory / FILE, {"neighbours": values})
