"""The terms of a replay: the clusters and their sizes, the pairs of policies, and the jobs of the trace."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from koalapy.common.locations import Locations
from koalapy.common.registry import registered
from koalapy.config import engine_settings
from koalapy.koalad.gridfile import read_grid_file
from koalapy.model.cluster import ClusterSettings
from koalapy.model.errors import RequestError
from koalapy.model.settings import Settings
from koalapy.model.textfile.words import use_known
from koalapy.model.units import parse_duration

if TYPE_CHECKING:  # numpy is imported on use: other commands start without it
    from koalapy.experiments.replay.jobs import Grace, Terms

_SYSTEM_LINE = re.compile(r"^system:", re.MULTILINE)
_MOST_PROCESSORS, _MOST_OVERTAKES = 10_000_000, 1_000_000
_MOST_GRACE = 1000  # in per cent


class WrittenOptions(NamedTuple):
    """The options as they were written. `sites`: None if jobs may run on any cluster."""

    sizes: Sequence[str]
    sites: Sequence[str] | None
    most: int | None
    lenient: bool
    grace: str | None


def read_clusters(name: str | None, measured: Path | None) -> tuple[Settings, dict[str, int]]:
    """Return the engine's settings of a grid file or a system, and the known sizes of its clusters, by name.

    `measured`: a file of `koala clusters --json`. Raises RequestError.
    """
    from koalapy.experiments.interop import catalogue
    from koalapy.experiments.replay import sizes

    more = sizes.measured(measured) if measured is not None else {}
    if name is not None and _is_system(name, list(catalogue.systems())):
        system = catalogue.system(name)
        clusters = tuple(ClusterSettings(name=cluster, batch="slurm") for cluster in system.clusters)
        return Settings(clusters=clusters), {cluster: system.processors[cluster] for cluster in system.clusters} | more
    path = Locations.of(name).grid_file
    if path is None:
        message = f"There is neither a file nor a system {name}."
        raise RequestError("no_grid_file", message, "Give the path of a grid file with --grid.")
    file = read_grid_file(path)
    return engine_settings(file), {name: each.slots for name, each in file.clusters.items() if each.slots} | more


def rows_of_policies(
    settings: Settings, queue: str | None, placement: str | None, overtakes: str | None
) -> list[Settings]:
    """Return the settings with every queueing policy, bound of overtakes and placement policy. FCFS has no bound.

    Raises RequestError for an unregistered policy, and for bounds that are invalid or that no policy has.
    """
    queues = _chosen(queue, settings.queue, "queueing")
    placements = _chosen(placement, settings.placement, "placement")
    bounds = [settings.max_overtakes] if overtakes is None else _bounds(overtakes)
    if overtakes is not None and queues == ["fcfs"]:
        message = "--max-overtakes changes nothing: under fcfs nobody passes anybody."
        raise RequestError("no_bound", message, "Add another policy, as with --queue fcfs,fpfs, or leave it out.")
    queued = [(name, bound) for name in queues for bound in (bounds[:1] if name == "fcfs" else bounds)]
    return [
        replace(settings, queue=name, max_overtakes=bound, placement=other)
        for (name, bound), other in product(queued, placements)
    ]


def without_equal_placements(rows: list[Settings], terms: "Terms") -> list[Settings]:
    """Return the rows, but only one of those that differ only in placement if there is no placement to choose."""
    if len(terms.sizes) > 1 and terms.sites is None:
        return rows
    return list({(each.queue, each.max_overtakes): each for each in reversed(rows)}.values())[::-1]


def terms_of(trace: Path, settings: Settings, known: dict[str, int], options: WrittenOptions) -> "Terms":
    """Return the terms of a replay. Raises RequestError for invalid options, and for a cluster of unknown size."""
    from koalapy.experiments.replay.jobs import Terms, header
    from koalapy.experiments.replay.sizes import sites, sizes

    names = [cluster.name for cluster in settings.clusters]
    by_name, comments = header(trace)
    counts = processors_of(options.sizes)
    return Terms(
        sizes=sizes(names, counts, known, by_name),
        sites=None if options.sites is None else sites(names, dict(_assigned(options.sites, "--site")), comments),
        most=options.most,
        lenient=options.lenient,
        grace=_grace(options.grace),
    )


def processors_of(written: Sequence[str]) -> dict[str, int]:
    """Return the sizes of `--size NAME=N`, by name. Raises RequestError."""
    return {name: _count(name, words) for name, words in _assigned(written, "--size")}


def _is_system(name: str, known: Sequence[str]) -> bool:
    path = Path(name)
    if not path.is_file():
        return name in known
    return name.endswith((".yaml", ".yml")) and bool(_SYSTEM_LINE.search(path.read_text(errors="replace")))


def _chosen(words: str | None, default: str, what: str) -> list[str]:
    if words is None:
        return [default]
    names = list(dict.fromkeys(word.strip() for word in words.split(",")))
    known = list(registered(f"koalapy.{what}"))
    for name in names:
        if name not in known:
            raise RequestError("no_such_policy", f"There is no {what} policy {name!r}.", use_known(name, known))
    return names


def _assigned(written: Sequence[str], option: str) -> Iterator[tuple[str, str]]:
    for each in written:
        name, sign, value = each.partition("=")
        if not (name and sign and value):
            raise RequestError("bad_option", f"{option} {each} is not NAME=VALUE.", f"Write {option} NAME=VALUE.")
        yield name, value


def _bounds(words: str) -> list[int]:
    found = [word.strip() for word in words.split(",")]
    if not all(word.isascii() and word.isdecimal() and int(word) <= _MOST_OVERTAKES for word in found):
        message = f"--max-overtakes {words} is not a list of whole numbers from 0 to {_MOST_OVERTAKES:,}."
        raise RequestError("bad_option", message, "Write --max-overtakes 20,200.")
    return list(dict.fromkeys(map(int, found)))


def _grace(words: str | None) -> "Grace":
    from koalapy.experiments.replay.jobs import Grace

    if words is None:
        return Grace()
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
