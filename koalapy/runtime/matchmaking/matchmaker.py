"""Compares ads for the engine and for API calls, on a thread of its own."""

import queue
import threading
from collections.abc import Callable, Sequence

import structlog

from koalapy.driver.driver import Delivery
from koalapy.model.commands import CompareAds
from koalapy.model.errors import Reason
from koalapy.model.events import AdsCompared
from koalapy.model.matching import Answer, Question
from koalapy.runtime.matchmaking.helper import Helper

_LOG = structlog.get_logger()
_FAILED = "Report this, with koalad's log."


class Matchmaker:
    """The one user of the helper process. `deliver`: takes the engine's events; see DriverThread.deliver."""

    def __init__(self, helper: Helper | None = None) -> None:
        self._helper = helper or Helper()
        self._lock = threading.Lock()  # of the helper process
        self._asked: queue.SimpleQueue[CompareAds | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self, deliver: Callable[[Delivery], None]) -> None:
        """Begin to answer the engine. Its questions until now are answered too."""
        self._thread = threading.Thread(target=self._run, args=(deliver,), name="matchmaker", daemon=True)
        self._thread.start()

    def compare_soon(self, hint: CompareAds) -> None:
        """Answer the engine's questions by an event. Returns at once."""
        self._asked.put(hint)

    def compare(self, questions: Sequence[Question]) -> list[Answer]:
        """Return an answer to each question, after those that are being answered. No error is raised."""
        with self._lock:
            try:
                return self._helper.ask(questions)
            except Exception as error:
                _LOG.exception("matchmaker_failed")
                self._helper.close()
                message = f"The ads could not be compared ({type(error).__name__}: {str(error)[:200]})."
                reason = Reason("matchmaker_failed", "ours", message, _FAILED)
                return [Answer(each.job, failure=reason) for each in questions]

    def close(self) -> None:
        """End the helper process; nothing is answered any more."""
        self._asked.put(None)
        if self._thread is not None:
            self._thread.join(timeout=5)
        with self._lock:
            self._helper.close()

    def _run(self, deliver: Callable[[Delivery], None]) -> None:
        while (hint := self._asked.get()) is not None:
            deliver(Delivery(events=(AdsCompared(tuple(self.compare(hint.questions))),)))
