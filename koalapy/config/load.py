"""Reads the text of a grid file into its values."""

from collections.abc import Collection, Mapping
from typing import Any

from koalapy.config.schema import GridFile
from koalapy.model.textfile.document import read_document
from koalapy.model.textfile.schema import json_schema_of
from koalapy.model.textfile.validation import validate


def read_grid(
    text: str | bytes,
    source: str,
    batch_systems: Collection[str],
    *,
    queueing: Collection[str] | None = None,
    placement: Collection[str] | None = None,
    policies: Mapping[str, Collection[str]] | None = None,
) -> GridFile:
    """Return the grid file's values. Raises RequestError, which names file, line and key.

    `source`: the file's name for messages. The other arguments are the registered names; policies are not checked if
    theirs is None. `policies`: those of sweeps, by the name of their group (see SWEEP_POLICIES).
    """
    context = {"batch_systems": batch_systems, "queueing": queueing, "placement": placement, "policies": policies}
    return validate(GridFile, read_document(text, source), context)


def json_schema() -> dict[str, Any]:
    """Return the grid file's JSON Schema, for editors. It lacks the rules that only koalapy can check."""
    return json_schema_of(GridFile)
