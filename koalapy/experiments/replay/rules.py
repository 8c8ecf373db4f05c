"""The rules of a replay, by its options: sizes of clusters, which no grid file has, the clusters of sites, grace."""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from koalapy.experiments.workloads.lines import read_whole
from koalapy.model.errors import RequestError
from koalapy.model.request import WhenBusy
from koalapy.model.textfile.words import listed, use_known
from koalapy.model.units import Duration, parse_duration

_PARTITION = re.compile(r"\s*Partition:\s+(\S+)\s+(\S+)")
_MOST_PROCESSORS = 10_000_000
_MOST_GRACE = 1000  # in per cent


class Grace(NamedTuple):
    """The time for which a job may exceed its request: a constant, and a part of the request (0.1 is 10 per cent)."""

    time: Duration = Duration(0)
    part: float = 0.0

    def of(self, requested: Duration) -> Duration:
        return Duration(self.time + round(self.part * requested))


NO_GRACE = Grace()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRules:
    """The rules that jobs must meet. `sites`: the cluster for the jobs of each site of the trace; None: any.

    `most`: the maximum number of jobs; None: no maximum. `lenient`: jobs that cannot be replayed are left out and
    counted. `grace`: how long jobs of a log may exceed their requests. `when_busy`: of all jobs.
    """

    sizes: Mapping[str, int]
    sites: Mapping[str, str] | None = None
    most: int | None = None
    lenient: bool = False
    grace: Grace = NO_GRACE
    when_busy: WhenBusy = WhenBusy.WAIT


def rules_of(
    clusters: Collection[str],
    known: Mapping[str, int],
    header: tuple[Mapping[str, str], Iterable[str]],
    size: Iterable[str],
    site: Iterable[str] | None,
    *,
    most: int | None,
    lenient: bool,
    grace: str | None,
) -> ReplayRules:
    """Return the rules of a replay on these clusters, by its options as they are written.

    `known`: sizes by cluster. `header`: see jobs.header. `site`: None if jobs may run on any cluster. Raises
    RequestError for invalid options, and for a cluster of unknown size.
    """
    by_name, comments = header
    return ReplayRules(
        sizes=sizes(clusters, processors_of(size), known, by_name),
        sites=None if site is None else sites(clusters, dict(_assigned(site, "--site")), comments),
        most=most,
        lenient=lenient,
        grace=_grace_of(grace),
    )


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


# ---- as options are written


def processors_of(written: Iterable[str]) -> dict[str, int]:
    """Return the sizes of `--size NAME=N`, by name. Raises RequestError."""
    return {name: _count(name, words) for name, words in _assigned(written, "--size")}


def _assigned(written: Iterable[str], option: str) -> Iterator[tuple[str, str]]:
    """Yield name and value of each `NAME=VALUE` of an option. Raises RequestError."""
    for each in written:
        name, sign, value = each.partition("=")
        if not (name and sign and value):
            raise RequestError("bad_option", f"{option} {each} is not NAME=VALUE.", f"Write {option} NAME=VALUE.")
        yield name, value


def _grace_of(words: str | None) -> Grace:
    """Return the grace of `--grace TIME` or `--grace N%`. Raises RequestError."""
    if words is None:
        return NO_GRACE
    try:
        if words.endswith("%"):
            percent = float(words[:-1])
            if not 0 <= percent <= _MOST_GRACE:
                raise ValueError
            return Grace(part=percent / 100)
        return Grace(time=parse_duration(words))
    except ValueError:
        message = f"--grace {words} is neither a duration nor a percentage from 0 to {_MOST_GRACE}."
        raise RequestError("bad_option", message, "Write --grace 2m, or --grace 10%.") from None


def _count(name: str, words: str) -> int:
    if not (words.isascii() and words.isdecimal() and len(words) < 10 and 0 < int(words) <= _MOST_PROCESSORS):
        raise RequestError(
            "bad_size", f"--size {name}={words} is not a number of processors.", f"Write --size {name}=64."
        )
    return int(words)
