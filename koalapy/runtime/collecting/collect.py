"""Collects one job's files: lists them, plans, then fetches large ones one by one and small ones together."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from koalapy.model.commands import CollectOutput
from koalapy.model.identity import AttemptId, InstanceId
from koalapy.runtime.collecting.cluster_queues import Steps
from koalapy.runtime.collecting.plan import Item, Listed, check_paths, plan
from koalapy.runtime.collecting.transfer import Mover, Source
from koalapy.runtime.collecting.write_output import OutputDirectories, file_errors_translated
from koalapy.runtime.staging.transfers import Transfer


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


class JobCollection:
    """The execution of one CollectOutput. Files that one try has brought are not brought again by the next."""

    def __init__(
        self,
        instance: InstanceId,
        links: Mapping[str, Source],
        command: CollectOutput,
        transfer: Transfer,
        go_on: Callable[[], None],
    ) -> None:
        self._instance, self._command, self._transfer = instance, command, transfer
        self._mover = Mover(links, transfer, go_on)

    def steps(self) -> Steps[Collected]:
        """Return the steps, each of which waits for one cluster.

        They raise KoalaError, a transient one if a cluster is out of reach.
        """
        check_paths(self._command.paths)
        listed: list[Listed] = []
        for cluster, attempt in self._command.sources:
            yield cluster
            listed.append(self._listed(cluster, attempt))
        found = plan(self._command, listed)
        files = found.files
        self._transfer.begin("receiving", len(files), sum(item.found.size for item in files))
        with OutputDirectories(self._instance) as directories:
            directories.make_directories(found.items)
            left = self._mover.left(directories, files)
            for cluster, items in _by_cluster(left).items():
                yield cluster
                self._mover.bring_small(directories, items)
            with file_errors_translated():
                os.sync()
            for cluster, items in _by_cluster(left).items():
                yield cluster
                self._mover.bring_large(directories, items)
            directories.set_modes(found.items)
        return Collected(
            len(files), sum(item.found.size for item in files), found.missing, found.notes, _lack(found.missing)
        )

    def _listed(self, cluster: str, attempt: AttemptId) -> Listed:
        return cluster, attempt, self._mover.listed(cluster, attempt, self._command.paths)


def _by_cluster(items: Sequence[Item]) -> dict[str, list[Item]]:
    found: dict[str, list[Item]] = {}
    for item in items:
        found.setdefault(item.cluster, []).append(item)
    return found


def _lack(missing: Sequence[str]) -> str:
    return f"No component left a file {', '.join(missing)} in its working directory." if missing else ""
