"""Collects the files that jobs stage out, and those that a person requests. Each cluster has its own workers."""

import functools
import itertools
import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from typing import Protocol

import structlog

from koalapy.driver.driver import Delivery
from koalapy.model.commands import CollectOutput, OutputKind
from koalapy.model.errors import KoalaError, Reason, RequestError, TransientError
from koalapy.model.events import OutputCollected, OutputKept
from koalapy.model.identity import InstanceId, JobId
from koalapy.model.job import Job
from koalapy.model.parameters import ResultBatch
from koalapy.model.sweep import Sweep
from koalapy.runtime.collecting.cluster_queues import ClusterWorkers, Steps
from koalapy.runtime.collecting.collect import Collected, collect_job
from koalapy.runtime.collecting.download import Download, Source
from koalapy.runtime.collecting.sweep_collect import SweepCollection
from koalapy.runtime.collecting.written import StreamCollection, WrittenStore
from koalapy.runtime.transfers import Transfers
from koalapy.store.contract import StoreError

_LOG = structlog.get_logger()
_FIRST_S = 0.2
FORGOTTEN_S = 60.0
_POLL_S = 1.0  # between checks whether the files are still wanted

Collect = Callable[[Download], Steps[Collected]]

__all__ = ["Collector", "Source"]


class _Unwanted(Exception):
    """The files are not wanted any more: the job was cancelled, or koalad is ending."""


class Recorded(Protocol):
    """The part of a store that holds jobs, sweeps and their results."""

    def job(self, job_id: JobId) -> Job | None: ...

    def sweep(self, sweep: JobId) -> Sweep | None: ...

    def results(self, sweep: JobId, after: int = 0) -> Iterator[tuple[int, ResultBatch]]: ...


class Collector:
    """Executes CollectOutput commands. A command that waits for a cluster out of reach delays no other.

    `wanted`: whether the job still waits for its files. `recorded`: the store of jobs and results of sweeps. `written`:
    the output of jobs that was collected. `has_pending_cancel`: whether a batch job of a final job may still run.
    """

    def __init__(
        self,
        instance: InstanceId,
        links: Mapping[str, Source],
        deliver: Callable[[Delivery], None],
        retry_max_s: float,
        transfers: Transfers | None = None,
        wanted: Callable[[JobId], bool] = lambda job: True,
        recorded: Recorded | None = None,
        written: WrittenStore | None = None,
        has_pending_cancel: Callable[[JobId], bool] = lambda job: False,
    ) -> None:
        self._recorded, self._written, self._has_pending_cancel = recorded, written, has_pending_cancel
        self._instance, self._links, self._deliver, self._wanted = instance, links, deliver, wanted
        self._transfers = transfers or Transfers()
        self._retry_max_s = retry_max_s
        self._closing = threading.Event()
        self._collecting, self._fetching = ClusterWorkers("collect"), ClusterWorkers("fetch")
        self._under_way: set[int] = set()
        self._fetches: dict[CollectOutput, _Fetch] = {}
        self._lock = threading.Lock()

    def collect(self, number: int, command: CollectOutput) -> None:
        """Begin to execute the command. Returns at once. The same number again does nothing while it is under way."""
        with self._lock:
            if number in self._under_way or self._closing.is_set():
                return
            self._under_way.add(number)
        self._collecting.run(self._collect(number, command))

    def fetch(self, command: CollectOutput, timeout_s: float) -> Collected | None:
        """Collect files for a person, whatever the job's state.

        None after `timeout_s`; the same call again waits on. Files that are not requested again within FORGOTTEN_S
        seconds are given up. Raises KoalaError, also at once if a cluster is out of reach.
        """
        with self._lock:
            found = self._fetches.get(command)
            if found is None:
                found = self._fetches[command] = _Fetch()
                found.home = self._fetching.run(self._fetch(command, found))
            found.until = math.inf
        try:
            home = found.home.result(timeout_s)
        except TimeoutError:
            if not found.home.done():
                return None
            raise
        except CancelledError as error:
            raise TransientError("stopping", "koalad is ending.", "Start it anew, then fetch again.") from error
        finally:
            with self._lock:
                found.until = time.monotonic() + FORGOTTEN_S
                if found.home.done():
                    self._fetches.pop(command, None)
        return home

    def close(self) -> None:
        """Stop. Commands that are not done are executed by the next koalad."""
        self._closing.set()
        self._collecting.close()
        self._fetching.close()

    def join(self) -> None:
        """Wait until nothing runs any more, after `close`."""
        self._collecting.join()
        self._fetching.join()

    def _collect(self, number: int, command: CollectOutput) -> Steps[None]:
        event: OutputCollected | OutputKept | None
        try:
            keeps = command.kind is OutputKind.STANDARD_STREAMS
            event = yield from self._kept(command) if keeps else self._collected(command)
        except _Unwanted:
            if self._closing.is_set():
                return
            self._forget(number)
            return self._deliver(Delivery(confirmed=(number,)))  # no job waits for it
        except Exception:
            _LOG.exception("collect_failed", job=command.job)
            reason = Reason("collect_failed", "ours", "The output could not be collected.", "Look at koalad's log.")
            event = OutputCollected(job=command.job, reason=reason)
        self._forget(number)
        return self._deliver(Delivery(events=(event,) if event else (), confirmed=(number,)))

    def _forget(self, number: int) -> None:
        with self._lock:
            self._under_way.discard(number)

    def _collected(self, command: CollectOutput) -> Steps[OutputCollected]:
        go_on = self._going_on(lambda: self._wanted(command.job))
        try:
            home = yield from self._tried(command, go_on)
        except KoalaError as error:
            return OutputCollected(job=command.job, reason=_advised(command.job, error.reason))
        return OutputCollected(
            job=command.job,
            reason=_lack(home) if home.lack else None,
            files=home.files,
            size=home.size,
            notes=home.notes,
        )

    def _kept(self, command: CollectOutput) -> Steps[OutputKept | None]:
        """Collect the output of a job. Returns the event for it, or None if the job was pruned."""
        go_on = self._going_on(lambda: True)
        found: list[StreamCollection] = []

        def collect(download: Download) -> Steps[Collected]:
            if not found:
                collection = self._stream_collection(command)
                if self._has_pending_cancel(command.job):
                    raise TransientError("not_ended", "A batch job of it may still run, and write.", "")
                found.append(collection)
            return (yield from found[0].steps(download))

        reason = None
        try:
            yield from self._tried(command, go_on, collect)
        except KoalaError as error:
            reason = error.reason
        if not found:
            return None
        size, omitted_bytes, notes = found[0].size, found[0].omitted_bytes, tuple(found[0].notes)
        return OutputKept(job=found[0].job, reason=reason, size=size, omitted_bytes=omitted_bytes, notes=notes)

    def _stream_collection(self, command: CollectOutput) -> StreamCollection:
        """Return the execution of a command for what a job wrote.

        Raises RequestError if the job was pruned, and TransientError if the store cannot be read.
        """
        assert self._recorded is not None
        assert self._written is not None
        with _patient():
            job = self._recorded.job(command.job)
        if job is None:
            raise _no_such_job(command.job)
        return StreamCollection(self._written, job, command)

    def _tried(
        self, command: CollectOutput, go_on: Callable[[], None], collect: Collect | None = None
    ) -> Steps[Collected]:
        """Try until it succeeds, with longer and longer waits between. Files that were brought are kept."""
        for tries in itertools.count():
            try:
                go_on()
                collect = collect or self._collection_of(command)
                return (yield from self._with_transfer(collect, command, go_on))
            except KoalaError as error:
                if not _may_pass(error):
                    raise
                log = _LOG.warning if error.reason.code == "stalled" else _LOG.debug
                log("collect_waits", job=command.job, reason=str(error))
            yield min(_FIRST_S * 2.0 ** min(tries, 30), self._retry_max_s) * random.uniform(0.75, 1.0)
        raise AssertionError("it is counted without an end")

    def _fetch(self, command: CollectOutput, fetch: "_Fetch") -> Steps[Collected]:
        go_on = self._going_on(lambda: time.monotonic() < fetch.until)
        try:
            return (yield from self._with_transfer(self._collection_of(command), command, go_on))
        except _Unwanted as error:
            with self._lock:
                self._fetches.pop(command, None)
            raise TransientError("not_fetched", "Nobody waits for these files any more.", "Ask again.") from error

    def _going_on(self, wanted: Callable[[], bool]) -> Callable[[], None]:
        """Return a function to call for every piece that arrives.

        It raises _Unwanted once the files are not wanted any more.
        """
        looked = -math.inf

        def go_on() -> None:
            nonlocal looked
            if self._closing.is_set():
                raise _Unwanted
            if time.monotonic() - looked >= _POLL_S:
                looked = time.monotonic()
                if not wanted():
                    raise _Unwanted

        return go_on

    def _collection_of(self, command: CollectOutput) -> Collect:
        """Return a function that executes the command, for any number of tries.

        Raises RequestError if there is no such sweep, and TransientError if the store cannot be read.
        """
        if command.kind is OutputKind.COMPONENT_FILES:
            return functools.partial(collect_job, self._instance, command)
        assert self._recorded is not None
        with _patient():
            sweep = self._recorded.sweep(command.job)
        if sweep is None:
            raise _no_such_job(command.job)
        results = functools.partial(_results, self._recorded, command.job)
        return SweepCollection(self._instance, command, sweep.request, results).steps

    def _with_transfer(self, collect: Collect, command: CollectOutput, go_on: Callable[[], None]) -> Steps[Collected]:
        where = ", ".join(dict.fromkeys(cluster for cluster, _ in command.sources)) or "its clusters"
        final = command.kind is OutputKind.STANDARD_STREAMS  # no job waits for the output of a final job
        transfers = Transfers() if final else self._transfers
        with transfers.open(command.job, None, where, "out", go_on) as transfer:
            return (yield from collect(Download(self._links, transfer)))


class _Fetch:
    """A fetch that a person waits for.

    It is given up at `until`, by the monotonic clock, unless the person asks again.
    """

    def __init__(self) -> None:
        self.home: Future[Collected]
        self.until = math.inf


def _results(recorded: Recorded, sweep: JobId) -> Iterator[ResultBatch]:
    with _patient():
        for _, batch in recorded.results(sweep):
            yield batch


@contextmanager
def _patient() -> Iterator[None]:
    """Turn errors of the store into transient ones: the store may recover, and no sweep fails because of it."""
    try:
        yield
    except StoreError as error:
        raise TransientError(error.reason.code, error.reason.message, error.reason.advice) from error


def _no_such_job(job: JobId) -> RequestError:
    return RequestError("no_such_job", f"There is no job {job}.", "`koala jobs` lists those there are.")


def _lack(home: Collected) -> Reason:
    return Reason("no_output_file", "request", home.lack, "Correct `stage_out`, or let the program write it.")


def _advised(job: JobId, reason: Reason) -> Reason:
    """Return the reason, with the advice that the files stay on their clusters and can be fetched."""
    kept = f"The files stay on their clusters as long as `koala jobs` lists the job: `koala fetch {job}` brings them."
    return Reason(reason.code, reason.whose, reason.message, f"{reason.advice} {kept}".strip(), words=reason.words)


def _may_pass(error: BaseException) -> bool:
    """Return whether the error may pass, such as a cluster or shared directory out of reach.

    Then the output is assumed to be there.
    """
    return isinstance(error, KoalaError) and error.reason.whose in ("transient", "cluster")
