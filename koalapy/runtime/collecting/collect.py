"""Collects one job's files: lists them, plans, then fetches large ones one by one and small ones together."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from koalapy.model.commands import CollectOutput
from koalapy.model.identity import InstanceId
from koalapy.runtime.collecting.cluster_queues import Steps
from koalapy.runtime.collecting.download import Download
from koalapy.runtime.collecting.plan import Item, Listed, check_paths, plan
from koalapy.runtime.collecting.write_output import OutputDirectories, file_errors_translated


@dataclass(frozen=True, slots=True)
class Collected:
    """The files that were collected: their number, their size in bytes, and notes on what was left out.

    `missing`: names that no component has; of a sweep, some of the names that parameters do not have. `lack`: a
    sentence on them, '' if nothing is missing.
    """

    files: int
    size: int
    missing: tuple[str, ...]
    notes: tuple[str, ...]
    lack: str = ""


def collect_job(instance: InstanceId, command: CollectOutput, download: Download) -> Steps[Collected]:
    """Collect the files of one job in steps, each of which waits for one cluster.

    Files that one try has brought are not brought again by the next. Raises KoalaError from a step, a transient one if
    a cluster is out of reach.
    """
    check_paths(command.paths)
    listed: list[Listed] = []
    for cluster, attempt in command.sources:
        yield cluster
        listed.append((cluster, attempt, download.listed(cluster, attempt, command.paths)))
    found = plan(command, listed)
    files, size = found.files, sum(item.found.size for item in found.files)
    download.transfer.begin("receiving", len(files), size)
    with OutputDirectories(instance) as directories:
        directories.make_directories(found.items)
        left = _by_cluster(download.left(directories, files))
        for cluster, items in left.items():
            yield cluster
            download.bring_small(directories, items)
        with file_errors_translated():
            os.sync()
        for cluster, items in left.items():
            yield cluster
            download.bring_large(directories, items)
        directories.set_modes(found.items)
    return Collected(len(files), size, found.missing, found.notes, _lack(found.missing))


def _by_cluster(items: Sequence[Item]) -> dict[str, list[Item]]:
    found: dict[str, list[Item]] = {}
    for item in items:
        found.setdefault(item.cluster, []).append(item)
    return found


def _lack(missing: Sequence[str]) -> str:
    return f"No component left a file {', '.join(missing)} in its working directory." if missing else ""
