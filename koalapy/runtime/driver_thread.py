"""The only thread that runs the driver. It handles events of links and API in batches, in order of arrival.

Who hands events to the driver waits until they are committed or refused, or learns that they are not recorded yet.
"""

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from koalapy.driver.driver import Delivery, Driver
from koalapy.engine import Engine
from koalapy.model.errors import KoalaError, OurError, Reason, TransientError
from koalapy.model.units import SECOND
from koalapy.runtime.clock import SystemClock
from koalapy.runtime.sdnotify import Notifier
from koalapy.store.contract import StoreConflict

T = TypeVar("T")

_LOG = structlog.get_logger()
_BATCH = 500  # deliveries; a larger flood is handled in several commits
_RETRY_S = 1.0  # between tries to commit while the store is failing
_CHECK_S = 5.0  # between looks at the store while there is nothing to commit
TAKEN_OVER = "store_taken_over"  # the code of the one trouble that does not pass
COMMIT_S = 30.0  # an event that is not committed within this time is answered as not recorded yet
_POLL_S = 0.2  # between checks whether the store has begun to fail


@dataclass(frozen=True, slots=True)
class _Question(Generic[T]):
    """A question that the engine answers between two batches."""

    ask: Callable[[Engine], T]
    answer: "Future[T]"


class DriverThread:
    """Owns the driver's thread. `trouble`: why nothing new is accepted; None while all is well.

    `check` raises KoalaError if the store cannot be written to. `taken_over` is called once, when another koalad has
    taken the store for good. `notifier` gets a sign of life at every turn, and none any more once the loop has broken.
    """

    def __init__(
        self,
        driver: Driver,
        clock: SystemClock,
        check: Callable[[], None] = lambda: None,
        taken_over: Callable[[], None] = lambda: None,
        notifier: Notifier | None = None,
    ) -> None:
        self.trouble: Reason | None = None
        self._driver = driver
        self._clock = clock
        self._check, self._taken_over = check, taken_over
        self._notifier = notifier or Notifier()
        self._checked_at = time.monotonic()
        self._inbox: queue.SimpleQueue[Delivery | _Question[object] | None] = queue.SimpleQueue()
        self._kept: deque[Delivery] = deque()  # deliveries that arrived while the store was failing
        self._asked: deque[_Question[object]] = deque()  # questions, answered after a step, or while it cannot be done
        self._thread = threading.Thread(target=self._run, name="driver", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def deliver(self, delivery: Delivery) -> None:
        """Queue events for the driver. Any thread may call it; returns at once."""
        self._inbox.put(delivery)

    def ask(self, question: Callable[[Engine], T]) -> T:
        """Return the engine's answer to a question, asked between two batches. Blocks.

        Raises TransientError if there is no answer within 30 s, and all that the question raises.
        """
        answer: Future[T] = Future()
        self._inbox.put(_Question(question, answer))  # type: ignore[arg-type]
        try:
            return answer.result(timeout=30)
        except TimeoutError as error:
            raise TransientError("busy", "koalad is too busy to answer.", "Try again in a moment.") from error

    def stop(self) -> None:
        """End the thread after the step that it has begun."""
        self._inbox.put(None)
        self._thread.join(timeout=30)

    def _run(self) -> None:
        """Run the driver. An error of koalapy stops the driver, but questions are still answered.

        Events that were not committed are sent again by their senders.
        """
        try:
            self._drive()
        except Exception as error:
            _LOG.exception("driver_broke")
            advice = "Look at its log, report it, and start koalad anew: `koala down`, then `koala up`."
            self.trouble = Reason("broken", "ours", f"koalad's driver broke ({type(error).__name__}).", advice)
            self._only_answer()

    def _drive(self) -> None:
        self._driver.start()
        running = self._step([])
        while running:
            deliveries, running = self._gather()
            running = self._step(deliveries) and self._look_at_store() and running
            self._answer()
            self._notifier.alive()

    def _gather(self) -> tuple[list[Delivery], bool]:
        """Wait for work, then return all deliveries that have arrived. The flag is False if the loop has to stop."""
        deliveries = [self._kept.popleft() for _ in range(min(_BATCH, len(self._kept)))]
        try:
            item = self._inbox.get(timeout=0.0 if deliveries else self._patience())
            while item is not None:
                if isinstance(item, Delivery):
                    deliveries.append(item)
                else:
                    self._asked.append(item)
                if len(deliveries) >= _BATCH:
                    return deliveries, True
                item = self._inbox.get_nowait()
        except queue.Empty:
            return deliveries, True
        return deliveries, False

    def _patience(self) -> float:
        wakeup, until_check = self._driver.next_wakeup(), self._checked_at + _CHECK_S - time.monotonic()
        until = until_check if wakeup is None else min(until_check, (wakeup - self._clock.now()) / SECOND)
        return max(0.0, min(until, self._notifier.beat_s or until))

    def _step(self, deliveries: list[Delivery]) -> bool:
        return self._until_done(lambda: self._driver.step(deliveries), self._driver.retry)

    def _look_at_store(self) -> bool:
        """Check the store every few seconds, so that a koalad that was replaced ends even if nothing happens to it."""
        if time.monotonic() - self._checked_at < _CHECK_S:
            return True
        done = self._until_done(self._check, self._check)
        self._checked_at = time.monotonic()
        return done

    def _until_done(self, act: Callable[[], None], retry: Callable[[], None]) -> bool:
        """Act until it succeeds. While the store fails, accepted events stay in memory and are tried again.

        False if the loop was stopped meanwhile; then events that were not committed are lost, as in a crash.
        """
        while True:
            try:
                act()
            except StoreConflict:
                raise  # a repeated try would be refused again
            except KoalaError as error:
                if error.reason.code == TAKEN_OVER:
                    self._give_up(error.reason)
                    return False
                if self.trouble is None:
                    _LOG.error("store_failing", reason=str(error))
                self.trouble = error.reason
                self._notifier.alive()  # a failing step that is tried again does not hang
                act = retry
                if not self._answer_for(_RETRY_S):
                    return False
            else:
                if self.trouble is not None:
                    _LOG.info("store_works_again")
                self.trouble = None
                return True

    def _give_up(self, reason: Reason) -> None:
        """Do nothing more for the jobs, which another koalad has now, until this loop is stopped."""
        _LOG.error("taken_over", reason=str(reason))
        self.trouble = reason
        self._taken_over()
        self._only_answer()

    def _only_answer(self) -> None:
        while self._answer_for(_RETRY_S):
            self._kept.clear()

    def _answer_for(self, seconds: float) -> bool:
        """Answer questions for this many seconds, and keep all deliveries. False if the loop has to stop."""
        self._answer()
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
                self._asked.append(item)
                self._answer()
        return True

    def _answer(self) -> None:
        while self._asked:
            question = self._asked.popleft()
            try:
                question.answer.set_result(question.ask(self._driver.engine))
            except Exception as error:
                question.answer.set_exception(error)


def committed_in_time(done: "Future[T]", trouble: Callable[[], Reason | None]) -> T:
    """Wait for a commit, and return what it sets. `trouble`: why nothing is accepted; None while all is well.

    Raises TransientError, code `not_committed`, if it takes too long; it may still come. Raises what the future has.
    """
    for _ in range(round(COMMIT_S / _POLL_S)):
        try:
            return done.result(timeout=_POLL_S)
        except TimeoutError:
            if (why := trouble()) is not None:
                raise not_committed(why) from None
    raise not_committed(None)


def not_committed(trouble: Reason | None) -> TransientError:
    """Return the error for events that are not committed in time."""
    why = trouble.message if trouble else "koalad is busy."
    advice = "It will be, unless koalad is stopped before. Look with `koala jobs` before you ask again."
    return TransientError("not_committed", f"It is not recorded yet: {why}", advice)


def store_failing(trouble: Reason) -> TransientError:
    """Return the error for events that are not handed to the driver at all."""
    return TransientError("store_failing", f"Nothing new can be recorded: {trouble.message}", trouble.advice)


def refusal(reason: Reason) -> OurError:
    """Return the error for events that the driver refused."""
    return OurError(reason.code, reason.message, reason.advice)
