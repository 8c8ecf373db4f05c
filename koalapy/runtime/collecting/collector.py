"""Brings jobs' staged-out files home, and whatever else of them is asked for, by threads of its own."""

import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol

import structlog
import tenacity

from koalapy.driver import Delivery
from koalapy.model.commands import CollectOutput, Of
from koalapy.model.errors import KoalaError, Reason, RequestError, TransientError
from koalapy.model.events import OutputCollected
from koalapy.model.identity import InstanceId, JobId
from koalapy.model.job import Job
from koalapy.model.sweep import ResultBatch
from koalapy.runtime.backoff import Backoff
from koalapy.runtime.collecting.bring import Bringing, Home
from koalapy.runtime.collecting.moving import Source
from koalapy.runtime.collecting.sweep.bring import SweepBringing
from koalapy.runtime.staging.transfers import Transfer, Transfers
from koalapy.store.errors import StoreError

_LOG = structlog.get_logger()
_AT_ONCE = 4
_FIRST_S = 0.2
_LOOK_S = 1.0  # between looks at whether anybody still wants it

Bring = Callable[[Transfer, Callable[[], None]], Home]

__all__ = ["Collector", "Source"]


class _Unwanted(Exception):
    """The job was cancelled meanwhile, or koalad ends."""


class Recorded(Protocol):
    """The part of a store that the output of sweeps needs."""

    def job(self, job_id: JobId) -> Job | None: ...

    def results(self, sweep: JobId, after: int = 0) -> Iterator[tuple[int, ResultBatch]]: ...


class Collector:
    """Does CollectOutput commands. One that needs what is out of reach waits for it.

    `wanted`: whether the job still waits for its files. `recorded`: where sweeps and their results are.
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
    ) -> None:
        self._recorded = recorded
        self._instance, self._links, self._deliver, self._wanted = instance, links, deliver, wanted
        self._transfers = transfers or Transfers()
        self._closing = threading.Event()
        self._threads = ThreadPoolExecutor(_AT_ONCE, "collect")
        self._fetchers = ThreadPoolExecutor(_AT_ONCE, "fetch")
        self._under_way: set[int] = set()
        self._fetches: dict[CollectOutput, Future[Home]] = {}
        self._lock = threading.Lock()
        self._tries = tenacity.Retrying(
            wait=Backoff(_FIRST_S, lambda error: retry_max_s),
            stop=tenacity.stop_when_event_set(self._closing),
            sleep=tenacity.sleep_using_event(self._closing),
            retry=tenacity.retry_if_exception(_may_pass),
        )

    def collect(self, number: int, command: CollectOutput) -> None:
        """Returns at once. The same number again does nothing while it is under way."""
        with self._lock:
            if number in self._under_way or self._closing.is_set():
                return
            self._under_way.add(number)
            self._threads.submit(self._collect, number, command)

    def fetch(self, command: CollectOutput, timeout_s: float) -> Home | None:
        """The same for a person, whatever the job's state. None if it takes longer: asked again, it is waited for.

        Raises KoalaError; what needs a cluster out of reach does not wait for it.
        """
        with self._lock:
            if command not in self._fetches:
                self._fetches[command] = self._fetchers.submit(self._fetch, command)
            found = self._fetches[command]
        try:
            home = found.result(timeout_s)
        except TimeoutError:
            if not found.done():
                return None
            raise
        finally:
            if found.done():
                with self._lock:
                    self._fetches.pop(command, None)
        return home

    def close(self) -> None:
        """What is not done yet is left, to be done again by the next koalad."""
        with self._lock:
            self._closing.set()
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._fetchers.shutdown(wait=False, cancel_futures=True)

    def _collect(self, number: int, command: CollectOutput) -> None:
        try:
            event = self._collected(command)
        except (tenacity.RetryError, _Unwanted):
            if self._closing.is_set():
                return
            self._forget(number)
            return self._deliver(Delivery(confirmed=(number,)))  # nobody waits for it
        except Exception:
            _LOG.exception("collect_failed", job=command.job)
            reason = Reason("collect_failed", "ours", "The output could not be collected.", "koalad's log says more.")
            event = OutputCollected(job=command.job, reason=reason)
        self._forget(number)
        return self._deliver(Delivery(events=(event,), confirmed=(number,)))

    def _forget(self, number: int) -> None:
        with self._lock:
            self._under_way.discard(number)

    def _collected(self, command: CollectOutput) -> OutputCollected:
        try:
            bring = self._tries.copy()(self._bringing, command)
            home = self._tries.copy()(self._bring, bring, command, lambda: self._wanted(command.job))
        except KoalaError as error:
            return OutputCollected(job=command.job, reason=_advised(command.job, error.reason))
        return OutputCollected(
            job=command.job,
            reason=_lack(home) if home.lack else None,
            files=home.files,
            size=home.size,
            notes=home.notes,
        )

    def _fetch(self, command: CollectOutput) -> Home:
        return self._bring(self._bringing(command), command, lambda: True)

    def _bringing(self, command: CollectOutput) -> Bring:
        """How it is brought, as often as that has to be tried. Raises RequestError, or TransientError for the store."""
        if command.of is Of.COMPONENTS:
            return lambda transfer, go_on: Bringing(self._instance, self._links, command, transfer, go_on).bring()
        assert self._recorded is not None
        with _patient():
            sweep = self._recorded.job(command.job)
        if sweep is None:
            raise RequestError("no_such_job", f"There is no job {command.job}.", "`koala jobs` lists those there are.")
        results = functools.partial(_results, self._recorded, command.job)
        return SweepBringing(self._instance, self._links, command, sweep.request, results).bring

    def _bring(self, bring: Bring, command: CollectOutput, wanted: Callable[[], bool]) -> Home:
        looked = time.monotonic()

        def go_on() -> None:
            nonlocal looked
            if self._closing.is_set():
                raise _Unwanted
            if time.monotonic() - looked > _LOOK_S:
                looked = time.monotonic()
                if not wanted():
                    raise _Unwanted

        where = ", ".join(dict.fromkeys(cluster for cluster, _ in command.sources)) or "its clusters"
        with self._transfers.open(command.job, None, where, "out") as transfer:
            return bring(transfer, go_on)


def _results(recorded: Recorded, sweep: JobId) -> Iterator[ResultBatch]:
    with _patient():
        for _, batch in recorded.results(sweep):
            yield batch


@contextmanager
def _patient() -> Iterator[None]:
    """What a store cannot tell now it may a little later: its troubles are koalad's, and no sweep fails over them."""
    try:
        yield
    except StoreError as error:
        raise TransientError(error.reason.code, error.reason.message, error.reason.advice) from error


def _lack(home: Home) -> Reason:
    return Reason("no_output_file", "request", home.lack, "Correct `stage_out`, or let the program write it.")


def _advised(job: JobId, reason: Reason) -> Reason:
    """What was not brought is not lost."""
    kept = f"The files stay on their clusters as long as `koala jobs` lists the job: `koala fetch {job}` brings them."
    return Reason(reason.code, reason.whose, reason.message, f"{reason.advice} {kept}".strip(), words=reason.words)


def _may_pass(error: BaseException) -> bool:
    """A cluster out of reach, or its shared directory: the output is there as long as nobody says that it is not."""
    return isinstance(error, KoalaError) and error.reason.whose in ("transient", "site")
