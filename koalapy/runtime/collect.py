"""Brings a job's staged-out files home: of each, the first component's that has one."""

import os
import posixpath
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import structlog
import tenacity

from koalapy.driver import Delivery
from koalapy.model.commands import CollectOutput
from koalapy.model.errors import KoalaError, Reason, RequestError
from koalapy.model.events import OutputCollected
from koalapy.model.identity import AttemptId
from koalapy.runtime.backoff import Backoff
from koalapy.runtime.staging import place_of

_LOG = structlog.get_logger()
_AT_ONCE = 4
_FIRST_S = 0.2
_MISSING = "no_such_file"


class Source(Protocol):
    """The part of a Link that collecting needs."""

    def stat(self, attempt: AttemptId, paths: Sequence[str]) -> dict[str, int]: ...

    def fetch(
        self, attempt: AttemptId, where: str, path: str = "", *, mode: Callable[[int], None]
    ) -> Iterator[bytes]: ...


class Collector:
    """Does CollectOutput commands by threads of its own. One that needs what is out of reach waits for it."""

    def __init__(self, links: Mapping[str, Source], deliver: Callable[[Delivery], None], retry_max_s: float) -> None:
        self._links, self._deliver = links, deliver
        self._closing = threading.Event()
        self._threads = ThreadPoolExecutor(_AT_ONCE, "collect")
        self._under_way: set[int] = set()
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

    def close(self) -> None:
        """What is not done yet is left, to be done again by the next koalad."""
        with self._lock:
            self._closing.set()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _collect(self, number: int, command: CollectOutput) -> None:
        try:
            reason = self._outcome(command)
        except tenacity.RetryError:
            return  # closing
        except Exception:
            _LOG.exception("collect_failed", job=command.job)
            reason = Reason("collect_failed", "ours", "The output could not be collected.", "koalad's log says more.")
        finally:
            with self._lock:
                self._under_way.discard(number)
        event = OutputCollected(job=command.job, reason=reason)
        self._deliver(Delivery(events=(event,), confirmed=(number,)))

    def _outcome(self, command: CollectOutput) -> Reason | None:
        missing = []
        for path in command.paths:
            try:
                if not self._tries.copy()(self._bring, command, path):
                    missing.append(path)
            except KoalaError as error:
                return error.reason
        if not missing:
            return None
        message = f"No component left a file {', '.join(missing)} in its working directory."
        return Reason("no_output_file", "request", message, "Correct `stage_out`, or let the program write it.")

    def _bring(self, command: CollectOutput, path: str) -> bool:
        """False if no component has it. Raises KoalaError while a cluster that may have it is out of reach."""
        target = _target(command.directory, path)
        return any(self._bring_from(cluster, attempt, path, target) for cluster, attempt in command.sources)

    def _bring_from(self, cluster: str, attempt: AttemptId, path: str, target: Path) -> bool:
        link = self._links.get(cluster)
        if link is None:
            message = f"The cluster {cluster}, which may have {path}, is not in the grid file any more."
            raise RequestError("no_such_cluster", message, "Put it back, and submit the job again.")
        inside = posixpath.normpath(path)
        if inside not in link.stat(attempt, [inside]):
            return False
        modes: list[int] = []
        try:
            _write(target, link.fetch(attempt, "work", inside, mode=modes.append), modes)
        except KoalaError as error:
            if error.reason.code == _MISSING:
                return False
            raise
        return True


def _may_pass(error: BaseException) -> bool:
    """A cluster out of reach, or its shared directory: the output is there as long as nobody says that it is not."""
    return isinstance(error, KoalaError) and error.reason.whose in ("transient", "site")


def _target(directory: str, path: str) -> Path:
    """Where the file goes: below the job's directory. Raises RequestError for a path that leads elsewhere."""
    if os.path.isabs(path) or place_of(path) != posixpath.normpath(path):
        message = f"{path} is to be staged out, but is no path below the working directory."
        raise RequestError("bad_stage_out", message, "Let the program write it there.")
    return Path(directory, path)


def _write(target: Path, data: Iterator[bytes], modes: list[int]) -> None:
    """Whole or not at all."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
            try:
                file.writelines(data)
                file.flush()
                os.fchmod(file.fileno(), modes[0] & 0o777)
                os.fsync(file.fileno())
                os.rename(file.name, target)
            except BaseException:
                os.unlink(file.name)
                raise
    except OSError as error:
        message = f"{target} cannot be written: {error.strerror}."
        raise RequestError("output_not_written", message, "Make room or change permissions there.") from error
