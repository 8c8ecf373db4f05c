"""The shared directory, used by a thread of its own: a network file system may hang, and the wrapper must not."""

import os
import queue
import threading
from typing import Any, Callable, List, NamedTuple, Optional

from koalapy_adapters import layout
from koalapy_adapters.files import DISK, Files
from koalapy_adapters.wrapper import events
from koalapy_adapters.wrapper.events import Json
from koalapy_adapters.wrapper.failure_texts import recorded_report
from koalapy_adapters.wrapper.relay.address import read_relay_address


class Performed(NamedTuple):
    """The result of a call, and the function that waits for it."""

    result: Any
    then: Callable[[Any], None]


class Touched(NamedTuple):
    """The end of a touch of the heartbeat; `reached` is None if the shared directory is out of reach."""

    reached: Optional[events.SharedReached]


class Shared:
    """Does one thing after the other, and keeps each outcome for `results`; `readable` shows that there are some."""

    def __init__(self, attempt: str, relay_file: str) -> None:
        self._attempt = attempt
        self._relay_file = relay_file
        self._tasks: "queue.Queue[Callable[[], Any]]" = queue.Queue()
        self._results: List[Any] = []
        self.readable, self._writable = os.pipe()
        os.set_blocking(self.readable, False)
        threading.Thread(target=self._work, name="shared-directory", daemon=True).start()

    def touch_heartbeat(self) -> None:
        """-> Touched"""
        self._tasks.put(lambda: Touched(touch_heartbeat(self._attempt)))

    def seek_relay(self) -> None:
        """-> relay.address.RelayAddress"""
        self._tasks.put(lambda: read_relay_address(self._relay_file))

    def write_record(self, record: Json, only_if_none: bool) -> None:
        """-> RecordWritten or RecordFailed"""
        self._tasks.put(lambda: write_record(self._attempt, record, only_if_none))

    def perform(self, act: Callable[[], Any], then: Callable[[Any], None]) -> None:
        """-> Performed"""
        self._tasks.put(lambda: Performed(act(), then))

    def results(self) -> List[Any]:
        try:
            os.read(self.readable, 512)
        except BlockingIOError:
            pass
        found = []
        while self._results:
            found.append(self._results.pop(0))
        return found

    def _work(self) -> None:
        while True:
            result = self._tasks.get()()
            self._results.append(result)
            os.write(self._writable, b".")


def read_record(attempt: str, files: Files = DISK) -> Optional[Json]:
    """The exit record of an earlier start of the attempt; None if there is none that can be read."""
    try:
        record = layout.read_json(layout.inside(attempt, "record.json"), files)
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def touch_heartbeat(attempt: str, files: Files = DISK) -> Optional[events.SharedReached]:
    """Touch the attempt's heartbeat; None if the shared directory is out of reach."""
    try:
        files.touch(layout.inside(attempt, "heartbeat"))
    except OSError:
        return None
    return events.SharedReached()


def write_record(attempt: str, record: Json, only_if_none: bool, files: Files = DISK) -> Any:
    """RecordWritten or RecordFailed."""
    path = layout.inside(attempt, "record.json")
    try:
        if not (only_if_none and recorded_report(layout.read_json(path, files)) is not None):
            layout.write_json(path, record, files)
    except (OSError, ValueError) as error:
        return events.RecordFailed(str(error))
    return events.RecordWritten()
