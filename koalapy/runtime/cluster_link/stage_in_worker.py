"""Stages an attempt's files to its cluster before its Submit is sent, on separate threads."""

import itertools
import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import structlog

from koalapy.link.reconnect import Timing
from koalapy.model.commands import SubmitAttempt
from koalapy.model.errors import KoalaError, Reason
from koalapy.model.events import Event, FilesMoved, FilesStaged
from koalapy.model.identity import AttemptId
from koalapy.runtime.session.session import Session
from koalapy.runtime.staging.input_files import InputFiles, Uploaded
from koalapy.runtime.staging.upload import Uploads, is_stalled, lost
from koalapy.runtime.transfers import Transfer

_LOG = structlog.get_logger()
_THREADS = 16
_REPORT_S = 5.0  # between two reports of transfers


@dataclass(frozen=True, slots=True)
class StageInCallbacks:
    """The functions that a worker calls. No call blocks.

    For each attempt it calls `staged` once, or `not_staged` with the reason; neither if the link is lost before.
    `is_wanted`: whether the Submit of this number still has to be sent.
    """

    staged: Callable[[int, bool, list[list[Any]]], None]
    not_staged: Callable[[int, bool, Reason], None]
    events: Callable[[Sequence[Event]], None]
    is_wanted: Callable[[int], bool]


@dataclass(frozen=True, slots=True)
class _Job:
    number: int
    command: SubmitAttempt
    doubt: bool


class _Unwanted(Exception):
    """The attempt was cancelled meanwhile."""


class StageInWorker:
    """Stages the input files of attempts in one session with the cluster `name`."""

    def __init__(
        self, name: str, session: Session, input_files: InputFiles, callbacks: StageInCallbacks, timing: Timing
    ) -> None:
        self._name, self._session, self._input_files, self._callbacks = name, session, input_files, callbacks
        self._uploads = Uploads(name, session, timing)
        self._retry_max = timing.retry_max
        self._threads = ThreadPoolExecutor(_THREADS, f"stage-{name}")
        self._waiting: dict[int, AttemptId] = {}
        self._parked: dict[object, deque[_Job]] = {}  # by files: attempts that wait for the first one with these files
        self._moving: dict[int, Transfer] = {}
        self._carried = 0  # bytes of the finished transfers
        self._closed = threading.Event()
        self._reporter: threading.Thread | None = None
        self._lock = threading.Lock()

    def stage(self, number: int, command: SubmitAttempt, doubt: bool) -> None:
        """Begin to stage the attempt's files. Returns at once.

        Of several attempts with the same files the first one is staged before the others.
        """
        job = _Job(number, command, doubt)
        with self._lock:
            self._waiting[number] = command.attempt
            if self._reporter is None:
                self._reporter = threading.Thread(target=self._report, name=f"staging-{self._name}", daemon=True)
                self._reporter.start()
            if (parked := self._parked.get(_need(command))) is not None:
                parked.append(job)
                return
            self._parked[_need(command)] = deque()
        self._begin(self._lead, job)

    def close(self) -> None:
        """End with the session. Submits that wait are sent again in the next session."""
        self._closed.set()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _lead(self, job: _Job) -> None:
        try:
            self._stage(job)
        finally:
            with self._lock:
                parked = self._parked.pop(_need(job.command))
            for each in parked:
                self._begin(self._stage, each)

    def _begin(self, work: Callable[[_Job], None], job: _Job) -> None:
        try:
            self._threads.submit(work, job)
        except RuntimeError:
            return  # closed meanwhile

    def _stage(self, job: _Job) -> None:
        try:
            self._bring(job)
        except _Unwanted:
            pass
        except KoalaError as error:
            if not lost(error):
                self._callbacks.not_staged(job.number, job.doubt, error.reason)
        except Exception:
            _LOG.exception("staging_failed", cluster=self._name, attempt=str(job.command.attempt))
            reason = Reason("staging_failed", "ours", "Its files could not be staged in.", "Look at koalad's log.")
            self._callbacks.not_staged(job.number, job.doubt, reason)
        finally:
            with self._lock:
                self._waiting.pop(job.number, None)

    def _bring(self, job: _Job) -> None:
        attempt = job.command.attempt

        def go_on() -> None:
            if not self._callbacks.is_wanted(job.number):
                raise _Unwanted
            self._session.check()

        go_on()
        with self._input_files.transfers.open(attempt.job, attempt.component, self._name, "in", go_on) as transfer:
            with self._lock:
                self._moving[job.number] = transfer
            try:
                brought = self._brought(job, transfer)
            finally:
                with self._lock:
                    self._carried += self._moving.pop(job.number).carried
        self._callbacks.events([FilesStaged(attempt, brought.files, brought.size, brought.version)])
        self._callbacks.staged(job.number, job.doubt, brought.staged)

    def _brought(self, job: _Job, transfer: Transfer) -> Uploaded:
        """Upload the files. Tries again if the cluster stalls, while the attempt is wanted and the link is up."""
        for tries in itertools.count():
            try:
                return self._input_files.upload(self._uploads, job.command, transfer)
            except KoalaError as error:
                if not is_stalled(error):
                    raise
                _LOG.warning("staging_stalled", cluster=self._name, attempt=str(job.command.attempt))
            for _ in range(math.ceil(min(2.0 ** min(tries, 30), self._retry_max))):
                self._closed.wait(1.0)
                transfer.go_on()
        raise AssertionError("it is counted without an end")

    def _report(self) -> None:
        """Report regularly while files move, so that attempts that wait for their files do not count as late."""
        before = 0
        while not self._closed.wait(_REPORT_S):
            with self._lock:
                waiting = list(self._waiting.values())
                carried = self._carried + sum(transfer.carried for transfer in self._moving.values())
            if carried > before and waiting:
                self._callbacks.events([FilesMoved(attempt) for attempt in waiting])
            before = carried


def _need(command: SubmitAttempt) -> object:
    return command.files or (command.directory, command.stage_in)
