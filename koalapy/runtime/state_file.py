"""A small JSON file of the state directory, which outlives koalad: what commands have changed in its grid."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from koalapy.model.errors import OurError


def save(path: Path, document: Mapping[str, Any]) -> None:
    """Replace the file as a whole. Raises OurError; then the former file is still there."""
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
