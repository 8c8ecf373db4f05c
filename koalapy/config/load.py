"""Reads the text of a grid file into its values."""

from collections.abc import Collection, Mapping
from typing import Any

from pydantic_core import PydanticCustomError

from koalapy.config.schema import Cluster, GridFile, check_clusters
from koalapy.model.errors import RequestError
from koalapy.model.textfile.document import Document, Plain, read_document
from koalapy.model.textfile.validation import json_schema_of, validate
from koalapy.model.textfile.words import shown


def read_grid(
    text: str | bytes,
    source: str,
    batch_systems: Collection[str],
    *,
    queueing: Collection[str] | None = None,
    placement: Collection[str] | None = None,
    policies: Mapping[str, Collection[str]] | None = None,
) -> GridFile:
    """Return the grid file's values. Raises RequestError, which names file, place and key.

    `source`: the file's name for messages. The other arguments are the registered names; policies are not checked if
    theirs is None. `policies`: further groups by name: those of sweeps (see SWEEP_POLICIES), and of preemption.
    """
    context = {"batch_systems": batch_systems, "queueing": queueing, "placement": placement, "policies": policies}
    return validate(GridFile, read_document(text, source), context)


def read_cluster(name: str, values: Mapping[str, str], batch_systems: Collection[str]) -> Cluster:
    """Return a cluster that a command describes: its values by key (as `scavenge.hours`), written as in a grid file.

    Raises RequestError, which names the key.
    """
    sections: dict[str, Any] = {}
    origins: dict[tuple[str | int, ...], str] = {}
    for key, value in values.items():
        section, dot, below = key.partition(".")
        place = sections.setdefault(section, {}) if dot else sections
        if not isinstance(place, dict) or isinstance(place.get(below or section), dict):
            raise RequestError("bad_key", f"The key {shown(key)} is given twice.", "Give each key once.")
        place[below or section] = _value(value)
        origins["clusters", name, *key.split(".", 1)] = f"-o {key}"
    document = Document("the command", {"grid": "any", "clusters": {name: sections}}, origins=origins)
    context = {"batch_systems": batch_systems, "queueing": None, "placement": None, "policies": None}
    return validate(GridFile, document, context).clusters[name]


def _value(text: str) -> Any:
    """Return a value as a file would have it: a list or mapping in brackets, or plain text. Raises RequestError."""
    if text.startswith(("[", "{")):
        return read_document(f"value: {text}", "the command").data["value"]
    return Plain(text)


def with_clusters(grid: GridFile, added: Mapping[str, Cluster]) -> GridFile:
    """Return the grid file with these clusters too.

    Raises RequestError for a name, or a place on a head node, that a cluster of the grid has already.
    """
    for name in added:
        if name in grid.clusters:
            advice = "Choose another name; `koala clusters` lists those there are."
            raise RequestError("cluster_exists", f"The grid has a cluster {name} already.", advice)
    together = {**grid.clusters, **added}
    try:
        check_clusters(together)
    except PydanticCustomError as error:
        context = error.context or {}
        where = ".".join(("clusters", *map(str, context["at"])))
        raise RequestError(str(context["code"]), f"{where} {context['what']}.", str(context["advice"])) from error
    return grid.model_copy(update={"clusters": together})


def json_schema() -> dict[str, Any]:
    """Return the grid file's JSON Schema, for editors. It lacks the rules that only koalapy can check."""
    return json_schema_of(GridFile)
