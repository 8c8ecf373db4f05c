"""Collects a sweep's files, page by page of its results. A cluster whose files are missing delays no other."""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from koalapy.model.commands import CollectOutput, OutputKind
from koalapy.model.errors import KoalaError
from koalapy.model.identity import AttemptId, InstanceId
from koalapy.model.parameters import ParameterResult, ResultBatch
from koalapy.model.request import Request
from koalapy.runtime.collecting.cluster_queues import Steps
from koalapy.runtime.collecting.collect import Collected
from koalapy.runtime.collecting.download import Download
from koalapy.runtime.collecting.plan import Item
from koalapy.runtime.collecting.sweep_plan import Names, Wanted, asked, is_wild, plan
from koalapy.runtime.collecting.sweep_totals import Tally
from koalapy.runtime.collecting.write_output import OutputDirectories, file_errors_translated
from koalapy.runtime.transfers import batches

_MOST_NAMES = 1 << 17  # bytes of names in one ListFiles
_MOST_WILD = 100  # patterns in one ListFiles: each searches the whole working directory
_OF_SOME = ("no_such_attempt", "too_many_files", "output_damaged")  # errors of single files, not of the rest
_OF_ITS_CLUSTER = ("no_such_cluster", "bad_listing")
_PASSING = ("transient", "cluster")

Batches = Callable[[], Iterable[ResultBatch]]
PAGE = 2_000  # parameters of one attempt
_HELD = 20_000  # results of all attempts together; beyond this the largest page is yielded


class Page(NamedTuple):
    cluster: str
    attempt: AttemptId
    results: tuple[ParameterResult, ...]


class SweepCollection:
    """The execution of one CollectOutput for parameters. `batches`: returns their results.

    Files that were transferred are not requested again by later tries of its steps.
    """

    def __init__(self, instance: InstanceId, command: CollectOutput, request: Request, batches: Batches) -> None:
        self._instance, self._command, self._request, self._batches = instance, command, request, batches
        self._names = Names(command, request)
        assert request.parameters is not None
        self._count = request.parameters.count
        self._settled = Marked(self._count)
        self._stuck: dict[str, Page] = {}  # by cluster: the page at which the cluster was lost
        self._tally = Tally()

    def steps(self, download: Download) -> Steps[Collected]:
        """Return the steps, each of which waits for one cluster.

        Raises KoalaError from a step. The steps bring the files of all other clusters before a transient one for those
        out of reach.
        """
        self._download = download
        download.transfer.begin("receiving", 0, 0)
        stuck, self._stuck = self._stuck, {}
        lost = yield from self._lost_of(stuck.values())
        if not stuck or len(lost) < len(stuck):
            lost = yield from self._lost_of(pages(self._batches()))
        with file_errors_translated():
            os.sync()
        if lost:
            raise min(lost.values(), key=lambda error: error.reason.whose not in _PASSING)
        return self._tally.home(self._command.job, self._settled.count)

    def _lost_of(self, found: Iterable[Page]) -> Steps[dict[str, KoalaError]]:
        """Bring the files of these pages. Returns the clusters that do not deliver theirs, with the error of each."""
        lost: dict[str, KoalaError] = {}
        for page in found:
            self._download.transfer.go_on()
            self._download.transfer.parameters(self._settled.count, self._count)
            if page.cluster in lost:
                continue
            yield page.cluster
            try:
                self._bring_page(page)
            except KoalaError as error:
                if error.reason.whose not in _PASSING and error.reason.code not in _OF_ITS_CLUSTER:
                    raise
                lost[page.cluster], self._stuck[page.cluster] = error, page
        return lost

    def _bring_page(self, page: Page) -> None:
        fresh = [result for result in page.results if result.number not in self._settled]
        tally = Tally()
        wanted = (each for result in fresh for each in self._wanted_of(page.cluster, result, tally))
        for request in batches(wanted, (_size_of_name, _MOST_NAMES), (is_wild, _MOST_WILD)):
            self._bring_some(page, request, tally)
        self._tally.take(tally)
        for result in fresh:
            self._settled.mark(result.number)

    def _wanted_of(self, cluster: str, result: ParameterResult, tally: Tally) -> Sequence[Wanted]:
        well = result.succeeded
        if not well and self._command.kind is not OutputKind.ENDED_PARAMETERS:
            tally.failed.add(str(result.number))
            return ()
        try:
            return self._names.of(result.number, cluster, well)
        except ValueError as error:
            tally.missing.add(f"those of parameter {result.number}, since {error}")
            return ()

    def _bring_some(self, page: Page, wanted: Sequence[Wanted], tally: Tally) -> None:
        """Bring these files, in halves if they are too many at once.

        A file of one parameter that cannot be had counts as missing.
        """
        try:
            self._bring_listed(page, wanted, tally)
        except KoalaError as error:
            if error.reason.code not in _OF_SOME:
                raise
            if error.reason.code == "no_such_attempt" or len(wanted) == 1:
                for each in wanted:
                    _miss(tally, each, error.reason.message)
                return
            half = len(wanted) // 2
            self._bring_some(page, wanted[:half], tally)
            self._bring_some(page, wanted[half:], tally)

    def _bring_listed(self, page: Page, wanted: Sequence[Wanted], tally: Tally) -> None:
        listed = self._download.listed(page.cluster, page.attempt, [asked(each) for each in wanted])
        found = plan(page.cluster, page.attempt, wanted, listed)
        self._bring_items(found.items, found.files, tally)
        for each in found.absent:
            _miss(tally, each)
        for each, what in found.refused:
            if each.path == what.path:
                _miss(tally, each, f"it {what.why}")
            else:
                tally.left.add(f"{what.path} of parameter {each.number} {what.why}")

    def _bring_items(self, items: Sequence[Item], files: Sequence[Item], tally: Tally) -> None:
        size = sum(item.found.size for item in files)
        self._download.transfer.more(len(files), size)
        with OutputDirectories(self._instance) as directories:
            directories.make_directories(items)
            left = self._download.left(directories, files)
            self._download.bring_small(directories, left)
            self._download.bring_large(directories, left)
            directories.set_modes(items)
        tally.files += len(files)
        tally.size += size


def _size_of_name(wanted: Wanted) -> int:
    return len(json.dumps(asked(wanted))) + 2


def _miss(tally: Tally, wanted: Wanted, why: str = "") -> None:
    if not wanted.needed:
        return
    if wanted.pattern:
        tally.nothing.add(f"{wanted.path} (parameter {wanted.number})")
    else:
        about = f": {why.rstrip('.')}" if why else ""
        tally.missing.add(f"{wanted.path} (parameter {wanted.number}{about})")


class Marked:
    """A set of numbers from 1 to `most`, with one bit for each."""

    def __init__(self, most: int) -> None:
        self._bits = bytearray(most // 8 + 1)
        self.count = 0

    def __contains__(self, number: int) -> bool:
        return bool(self._bits[number >> 3] >> (number & 7) & 1)

    def mark(self, number: int) -> None:
        self.count += number not in self
        self._bits[number >> 3] |= 1 << (number & 7)


def pages(batches: Iterable[ResultBatch]) -> Iterator[Page]:
    """Yield every result once, in pages of one attempt each. Launchers report in turn, a few results at a time."""
    held: dict[tuple[str, AttemptId], list[ParameterResult]] = {}
    count = 0
    for batch in batches:
        key = batch.cluster, batch.attempt
        there = held.setdefault(key, [])
        there += batch.results
        count += len(batch.results)
        while len(there) >= PAGE:
            yield Page(*key, tuple(there[:PAGE]))
            del there[:PAGE]
            count -= PAGE
        if count >= _HELD:
            fullest = max(held, key=lambda each: len(held[each]))
            results = held.pop(fullest)
            count -= len(results)
            yield Page(*fullest, tuple(results))
    for key, results in held.items():
        if results:
            yield Page(*key, tuple(results))
