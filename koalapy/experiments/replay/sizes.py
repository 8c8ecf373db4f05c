"""The sizes of the clusters of a replay in processors. A grid file has none, since koalad measures them."""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from koalapy.experiments.workloads.lines import read_whole
from koalapy.model.errors import RequestError
from koalapy.model.textfile.words import listed, use_known

_PARTITION = re.compile(r"\s*Partition:\s+(\S+)\s+(\S+)")


def sizes(
    clusters: Collection[str], given: Mapping[str, int], known: Mapping[str, int], header: Mapping[str, str]
) -> dict[str, int]:
    """Return the size of every cluster: as `given`, else as `known`, else, for a single cluster, by the trace's header.

    Raises RequestError for a cluster without a size, and for a size of an unknown cluster.
    """
    check_known(given, clusters)
    found = {**known, **given}
    if len(clusters) == 1 and not found:
        found = {name: count for name in clusters if (count := _of_header(header))}
    if lacking := [name for name in clusters if name not in found]:
        options = " ".join(f"--size {name}=N" for name in lacking[:8])
        message = f"It is unknown how many processors {listed(lacking, 'and')} {_has(lacking)}."
        raise RequestError("no_size", message, f"Give the number: {options}.")
    return {name: found[name] for name in clusters}


def measured(path: Path) -> dict[str, int]:
    """Return the sizes that koalad has measured, from the output of `koala clusters --json`. Raises RequestError."""
    try:
        document = json.loads(read_whole(path))
        if document["schema"] != "koala.clusters/1":
            raise ValueError
        return {str(each["name"]): int(each["total"]) for each in document["clusters"] if each["total"]}
    except (ValueError, TypeError, KeyError) as error:
        message = f"{path} is not what `koala clusters --json` prints."
        raise RequestError("no_clusters", message, "Write it by `koala clusters --json > clusters.json`.") from error


def check_known(named: Iterable[str], clusters: Collection[str]) -> None:
    """Check that the grid has these clusters. Raises RequestError for one that it does not have."""
    for name in named:
        if name not in clusters:
            raise RequestError("no_such_cluster", f"The grid has no cluster {name}.", use_known(name, list(clusters)))


def sites(clusters: Collection[str], given: Mapping[str, str], comments: Iterable[str]) -> dict[str, str]:
    """Return the cluster of each site of a trace: as `given`, else the cluster with the site's name.

    A partition's number is a site too, if the trace's header gives the partition's name.
    """
    check_known(given.values(), clusters)
    found = {name: name for name in clusters} | dict(given)
    partitions = [(match[1], match[2]) for line in comments if (match := _PARTITION.match(line))]
    return {number: found[name] for number, name in partitions if name in found} | found


def _of_header(header: Mapping[str, str]) -> int | None:
    words = header.get("MaxProcs") or header.get("MaxNodes") or ""
    return int(words) if words.isdecimal() and int(words) else None


def _has(lacking: Collection[str]) -> str:
    return "has" if len(lacking) == 1 else "have"
