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
    """The grid file's values. Raises RequestError, which names file, line and key.

    `source` is the file's name as its owner knows it. The other arguments are the registered names; policies are not
    checked if None is given. `policies`: those of sweeps, by the name of their group (see SWEEP_POLICIES).
    """
    context = {"batch_systems": batch_systems, "queueing": queueing, "placement": placement, "policies": policies}
    return validate(GridFile, read_document(text, source), context)


def json_schema() -> dict[str, Any]:
    """The grid file's JSON Schema, for editors; it lacks the rules that only koalapy can check."""
    return json_schema_of(GridFile)
