"""Passes the keys that a job's programs put on one cluster to the job's components on the others."""

import queue
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import structlog

from koalapy.model.errors import TransientError
from koalapy.model.identity import AttemptId

_LOG = structlog.get_logger()
MAX_KEYS = 100_000  # of one attempt; ranks put a few each
MAX_BYTES = 64 << 20  # of one attempt's keys and values
_RETRY_S = 1.0

Peers = Callable[[AttemptId, str | None], Sequence[tuple[str, AttemptId]]]
Send = Callable[[str, AttemptId, str, str], None]


class _Put(NamedTuple):
    cluster: str
    attempt: AttemptId
    key: str
    value: str


class _Connected(NamedTuple):
    cluster: str


class _Forgotten(NamedTuple):
    attempt: AttemptId


class RendezvousHub:
    """Keeps keys while their job exists, and sends them again to a cluster that is connected again.

    `peers(attempt, cluster)` returns the other components of the same try, as (cluster, attempt). It returns none if
    the attempt is on another cluster than `cluster`, unless that is None. It may block. `send(cluster, attempt, key,
    value)` returns at once. A thread of the hub does all work, in the order of the calls.
    """

    def __init__(self, peers: Peers, send: Send) -> None:
        self._peers, self._send = peers, send
        self._work: queue.SimpleQueue[_Put | _Connected | _Forgotten | None] = queue.SimpleQueue()
        self._keys: dict[AttemptId, dict[str, str]] = {}
        self._sizes: dict[AttemptId, int] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rendezvous", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._work.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def put(self, cluster: str, attempt: AttemptId, key: str, value: str) -> None:
        """Pass on a key that a component on this cluster has put. Returns at once."""
        self._work.put(_Put(cluster, attempt, key, value))

    def connected(self, cluster: str) -> None:
        """Send again the keys that components on this cluster may have missed. Returns at once."""
        self._work.put(_Connected(cluster))

    def forget(self, attempt: AttemptId) -> None:
        """Drop the keys of an attempt that has ended. Returns at once."""
        self._work.put(_Forgotten(attempt))

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            while not self._closing.is_set():
                try:
                    self._do(item)
                    break
                except TransientError as error:
                    _LOG.warning("rendezvous_waits", reason=str(error))
                    self._closing.wait(_RETRY_S)

    def _do(self, item: _Put | _Connected | _Forgotten) -> None:
        if isinstance(item, _Put):
            peers = self._peers(item.attempt, item.cluster)
            if peers and self._keep(item):
                self._pass_on(item, peers)
        elif isinstance(item, _Connected):
            self._resend_keys(item.cluster)
        else:
            self._keys.pop(item.attempt, None)
            self._sizes.pop(item.attempt, None)

    def _keep(self, put: _Put) -> bool:
        """Keep the key. False if it is known, since the first value of a key stays, or if there are too many."""
        keys = self._keys.setdefault(put.attempt, {})
        if put.key in keys:
            return False
        size = self._sizes.get(put.attempt, 0) + len(put.key) + len(put.value)
        if len(keys) >= MAX_KEYS or size > MAX_BYTES:
            _LOG.warning("rendezvous_full", attempt=str(put.attempt))
            return False
        keys[put.key] = put.value
        self._sizes[put.attempt] = size
        return True

    def _pass_on(self, put: _Put, peers: Sequence[tuple[str, AttemptId]]) -> None:
        for cluster, attempt in peers:
            self._send(cluster, attempt, put.key, put.value)

    def _resend_keys(self, cluster: str) -> None:
        for attempt, keys in self._keys.items():
            there = [peer for peer in self._peers(attempt, None) if peer[0] == cluster]
            for key, value in keys.items():
                self._pass_on(_Put(cluster, attempt, key, value), there)
