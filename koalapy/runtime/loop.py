"""The one thread that runs the driver: what comes in from links and API is handled in batches, in order of arrival."""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from koalapy.driver import Delivery, Driver
from koalapy.engine import Engine
from koalapy.model.errors import KoalaError, Reason, TransientError
from koalapy.model.units import SECOND
from koalapy.runtime.clock import SystemClock

T = TypeVar("T")

_LOG = structlog.get_logger()
_BATCH = 500  # deliveries; a larger flood is handled in several commits
_RETRY_S = 1.0  # between tries to commit while the store is failing


@dataclass(frozen=True, slots=True)
class _Question(Generic[T]):
    """Something to be asked of the engine between batches."""

    ask: Callable[[Engine], T]
    answer: "Future[T]"


class DriverLoop:
    """Owns the driver's thread. `trouble` says why nothing new is taken up; None while all is well."""

    def __init__(self, driver: Driver, clock: SystemClock) -> None:
        self.trouble: Reason | None = None
        self._driver = driver
        self._clock = clock
        self._inbox: queue.SimpleQueue[Delivery | _Question[object] | None] = queue.SimpleQueue()
        self._kept: deque[Delivery] = deque()  # what came while the store was failing
        self._thread = threading.Thread(target=self._run, name="driver", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def deliver(self, delivery: Delivery) -> None:
        """Hand over events. Callable from every thread; returns at once."""
        self._inbox.put(delivery)

    def ask(self, question: Callable[[Engine], T]) -> T:
        """The answer of the engine between two batches. Blocks for a moment; raises TransientError if it lasts."""
        answer: Future[T] = Future()
        self._inbox.put(_Question(question, answer))  # type: ignore[arg-type]
        try:
            return answer.result(timeout=30)
        except TimeoutError as error:
            raise TransientError("busy", "koalad is too busy to answer.", "Try again in a moment.") from error

    def stop(self) -> None:
        """End the thread after what it has begun."""
        self._inbox.put(None)
        self._thread.join(timeout=30)

    def _run(self) -> None:
        """A mistake of ours stops the driver, not the answers: what was not committed its senders send again."""
        try:
            self._drive()
        except Exception as error:
            _LOG.exception("driver_broke")
            advice = "Look at its log, report it, and start koalad anew: `koala down`, then `koala up`."
            self.trouble = Reason("broken", "ours", f"koalad's driver broke ({type(error).__name__}).", advice)
            while self._answer_for(_RETRY_S):
                self._kept.clear()

    def _drive(self) -> None:
        self._driver.start()
        running = self._step([])
        while running:
            deliveries, questions, running = self._gather()
            running = self._step(deliveries) and running
            for question in questions:
                _reply(question, self._driver.engine)

    def _gather(self) -> tuple[list[Delivery], list[_Question[object]], bool]:
        """Wait for something to do; then take all that is there."""
        deliveries = [self._kept.popleft() for _ in range(min(_BATCH, len(self._kept)))]
        questions: list[_Question[object]] = []
        try:
            item = self._inbox.get(timeout=0.0 if deliveries else self._patience())
            while item is not None:
                if isinstance(item, Delivery):
                    deliveries.append(item)
                else:
                    questions.append(item)
                if len(deliveries) >= _BATCH:
                    return deliveries, questions, True
                item = self._inbox.get_nowait()
        except queue.Empty:
            return deliveries, questions, True
        return deliveries, questions, False

    def _patience(self) -> float | None:
        wakeup = self._driver.next_wakeup()
        return None if wakeup is None else max(0.0, (wakeup - self._clock.now()) / SECOND)

    def _step(self, deliveries: list[Delivery]) -> bool:
        """A failing store stops everything here: what was accepted stays in memory and is tried again.

        False if the loop was stopped meanwhile; then what could not be committed is lost, as by a crash.
        """
        commit: Callable[[], None] = lambda: self._driver.step(deliveries)  # noqa: E731
        while True:
            try:
                commit()
            except KoalaError as error:
                if self.trouble is None:
                    _LOG.error("store_failing", reason=str(error))
                self.trouble = error.reason
                commit = self._driver.retry
                if not self._answer_for(_RETRY_S):
                    return False
            else:
                if self.trouble is not None:
                    _LOG.info("store_works_again")
                self.trouble = None
                return True

    def _answer_for(self, seconds: float) -> bool:
        """Answer questions for so long, and keep all else for later. False if the loop is to stop."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                item = self._inbox.get(timeout=left)
            except queue.Empty:
                return True
            if item is None:
                return False
            if isinstance(item, Delivery):
                self._kept.append(item)
            else:
                _reply(item, self._driver.engine)
        return True


def _reply(question: _Question[object], engine: Engine) -> None:
    try:
        question.answer.set_result(question.ask(engine))
    except Exception as error:
        question.answer.set_exception(error)
