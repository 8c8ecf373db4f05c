"""Requests the run times of batch jobs from the batch systems' accounting, until each entry of usage has its times.

The open entries are in the store. Therefore none is missed if koalad is killed, and none counts twice.
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import structlog
from koalapy_adapters.messages import details as answers
from koalapy_adapters.messages import koalad

from koalapy.driver.driver import Delivery
from koalapy.link.translate import own_attempt
from koalapy.model.errors import KoalaError
from koalapy.model.events import AttemptsAccounted
from koalapy.model.identity import InstanceId, tag_of
from koalapy.model.units import DAY, HOUR, Instant
from koalapy.model.usage import BatchSpan, Usage
from koalapy.runtime.session.exchange import understood
from koalapy.runtime.unknown import Ask

_LOG = structlog.get_logger()
_AT_ONCE = 500  # batch jobs in one request
_ANSWER_S = 60.0
_FIRST_S, _LONGEST_S = 15.0, 3600.0  # seconds between requests; the time doubles while nothing is found
_TIME_FACTOR = 100  # as for polling: the pause after a request is at least this many times its duration


@dataclass(slots=True)
class _Pace:
    """When one cluster is asked next, and about which batch jobs it was asked last."""

    due_at: float = 0.0
    wait_s: float = _FIRST_S
    asked: frozenset[str] = frozenset()
    has_accounting: bool = True  # whether koalapy can query an accounting of its batch system


class Accounting:
    """The accounting requests of one koalad. `look` is called from one thread."""

    def __init__(
        self,
        instance: InstanceId,
        entries: Callable[[Instant], Iterable[Usage]],
        ask: Ask,
        deliver: Callable[[Delivery], None],
        now: Callable[[], Instant],
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        """`entries`: returns the store's usage entries that ended since an instant. `ask`: see Link.ask.

        `elapsed`: a monotonic clock in seconds.
        """
        self._instance, self._entries, self._ask, self._deliver = instance, entries, ask, deliver
        self._now, self._elapsed = now, elapsed
        self._paces: dict[str, _Pace] = {}
        self._ended = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="accounting", daemon=True).start()

    def close(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(_FIRST_S):
            try:
                self.look()
            except KoalaError as error:  # of the store; the driver reports it
                _LOG.debug("accounting_failed", reason=str(error.reason))

    def look(self) -> None:
        """Ask each cluster that is due about entries of the last day. Raises KoalaError if the store cannot be read."""
        waiting: dict[str, list[Usage]] = {}
        for entry in self._entries(Instant(self._now() - DAY)):
            if not entry.accounted and entry.batch_id:
                waiting.setdefault(entry.cluster, []).append(entry)
        for cluster, entries in waiting.items():
            pace = self._paces.setdefault(cluster, _Pace())
            some = entries[-_AT_ONCE:]
            asked = frozenset(entry.batch_id for entry in some)
            if not asked <= pace.asked:
                pace.due_at, pace.wait_s = min(pace.due_at, self._elapsed() + _FIRST_S), _FIRST_S
            if pace.has_accounting and self._elapsed() >= pace.due_at:
                pace.asked = asked
                self._look_at(cluster, some, pace)

    def _look_at(self, cluster: str, entries: Sequence[Usage], pace: _Pace) -> None:
        began = self._elapsed()
        try:
            found = self._spans(cluster, entries, pace)
        except (
            KoalaError,
            TimeoutError,
        ):  # its link reports the reason
            found = ()
        pace.wait_s = _FIRST_S if found else min(2 * pace.wait_s, _LONGEST_S)
        ended = self._elapsed()
        pace.due_at = ended + max(pace.wait_s, _TIME_FACTOR * (ended - began))
        if found:
            self._deliver(Delivery(events=(AttemptsAccounted(cluster=cluster, spans=found),)))

    def _spans(self, cluster: str, entries: Sequence[Usage], pace: _Pace) -> tuple[BatchSpan, ...]:
        jobs = [[str(tag_of(self._instance, entry.attempt)), entry.batch_id] for entry in entries]
        since = min(entry.started_at for entry in entries) - HOUR
        answer = understood(answers.accounted, self._ask(cluster, partial(_account, jobs, since), _ANSWER_S).details)
        pace.has_accounting = answer.has_accounting
        ahead, wanted = self._now() - answer.clock, {entry.attempt for entry in entries}
        found = ((own_attempt(self._instance, tag), *times) for tag, *times in answer.spans)
        return tuple(
            BatchSpan(
                attempt=attempt,
                cluster=cluster,
                started_at=Instant(began_at + ahead),
                ended_at=Instant(ended_at + ahead),
                processors=processors,
            )
            for attempt, began_at, ended_at, processors in found
            if attempt in wanted
        )


def _account(jobs: list[list[str]], since: int, number: int) -> koalad.Account:
    return koalad.Account(number, jobs, since)
