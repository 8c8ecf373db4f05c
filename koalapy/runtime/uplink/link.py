"""The link to one cluster: connects, pushes the KCM, talks to it for as long as it can, and connects again."""

import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import structlog
import tenacity
from koalapy_adapters import messages as wire
from koalapy_adapters.connections import bootstrap
from koalapy_adapters.connections.pack import Packed
from koalapy_adapters.connections.protocol import Channel, Connection, Remembering
from koalapy_adapters.errors import BatchError
from koalapy_adapters.messages import Done, Welcome
from koalapy_adapters.messages.fields import shown
from koalapy_adapters.trees import is_pattern

from koalapy.driver import Delivery
from koalapy.link.cluster import Cluster
from koalapy.link.outstanding import ComponentCommand
from koalapy.link.translate import reason_of_error
from koalapy.link.vetting import IMPOSSIBLE, Verdict
from koalapy.model.commands import Hint, WatchCluster
from koalapy.model.errors import KoalaError, Reason, TransientError
from koalapy.model.events import ClusterLost
from koalapy.model.identity import AttemptId, JobId
from koalapy.runtime.uplink.around import Around, LinkStatus
from koalapy.runtime.uplink.kcm import Kcm, Listener
from koalapy.runtime.uplink.outage import OutageWatch
from koalapy.runtime.uplink.patience import FOR_A_PERSON, Lost, Patience, is_nonsense

_LOG = structlog.get_logger()
CLOSE_S = 20.0
_WALKS = 10  # times longer may be without a byte where the cluster looks through a tree
_SILENCE_OF_ASKED_S = 55.0  # of a session that costs a person an answer; after 60 s the KCM ends by itself


class Link:
    """One cluster's. Its threads start with `start`; everything but `close` may be called from any thread at any time.

    What is sent while the cluster is not connected is dropped: the driver sends it again after ClusterConnected.
    """

    def __init__(self, cluster: Cluster, connection: Connection, packed: Packed, around: Around) -> None:
        self.cluster = cluster
        self._connection, self._packed, self._around = connection, packed, around
        self._status = LinkStatus(cluster.name, "connecting")
        self._kcm: Kcm | None = None  # once it has said Welcome
        self._talking: Kcm | None = None
        self._watched: WatchCluster | None = None
        self._said: deque[str] = deque(maxlen=20)
        self._patience = Patience(cluster.timing)
        self._wanted = self._number = 0
        self._woken = threading.Event()
        self._closing = threading.Event()
        self._replaced = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"link-{cluster.name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Begin to end the connection; jobs run on. Returns at once."""
        with self._lock:
            self._closing.set()
            self._woken.set()
            talking = self._talking
        if talking is not None:
            talking.end()

    def end_session(self, why: Reason) -> int | None:
        """End the session there is, to begin a new one; its epoch. None: there is none. Returns at once."""
        with self._lock:
            talking = self._talking
        if talking is None:
            return None
        talking.end(why)
        return talking.epoch

    def close(self, within_s: float = CLOSE_S) -> None:
        """End the connection; jobs run on. Blocks for so many seconds at most: a login that hangs is left to itself."""
        self.end()
        if self._thread.is_alive():
            self._thread.join(within_s)

    def retry(self) -> int:
        """Try to connect at once if it is not connected, even where that was given up; the number of that try."""
        with self._lock:
            self._wanted += 1
            self._patience.renew()
            self._woken.set()
            return self._wanted

    # ---- for the driver; no call blocks

    def send(self, number: int, command: ComponentCommand, doubt: bool) -> None:
        if (kcm := self._kcm) is not None:
            kcm.send(number, command, doubt)

    def hint(self, hint: Hint) -> None:
        """The last watch is remembered, and said to every KCM to come."""
        if isinstance(hint, WatchCluster):
            self._watched = hint
        if (kcm := self._kcm) is not None:
            kcm.hint(hint)

    def acknowledge(self, epoch: int, number: int) -> None:
        if (kcm := self._kcm) is not None:
            kcm.acknowledge(epoch, number)

    def put(self, attempt: AttemptId, key: str, value: str) -> None:
        """A key for a component on this cluster."""
        if (kcm := self._kcm) is not None:
            kcm.put(attempt, key, value)

    def status(self) -> LinkStatus:
        status, kcm = self._status, self._kcm
        if kcm is None:
            return status
        return LinkStatus(status.cluster, status.state, status.reason, status.host, status.version, kcm.cost)

    # ---- for whoever can wait. Raises TransientError if the cluster is, or gets, out of reach.

    def ask(self, request: Callable[[int], Any], timeout_s: float) -> Done:
        """The KCM's answer to a message of koalapy_adapters made with this number.

        Raises KoalaError for a no too, and TimeoutError if there is none in time; the KCM goes on with it then.
        """
        return self._connected().ask(request, timeout_s)

    def fetch(
        self,
        attempt: AttemptId,
        where: str,
        path: str = "",
        offset: int = 0,
        ended: Callable[[wire.Fetched], None] = lambda end: None,
        size: int = -1,
    ) -> Iterator[bytes]:
        """What the attempt has written: `where` is output, errors or work (then `path`).

        `ended` hears how it ended. `size`: see messages.Fetch. Raises KoalaError where there is no such file, too.
        Of this and those below: an empty piece comes about every second in which nothing else does, and TransientError
        with code `stalled` is raised when nothing comes for too long.
        """
        request = lambda id, tag: wire.Fetch(id, tag, where, path, offset, False, size)  # noqa: E731
        yield from self._connected().stream(attempt, request, ended, self.cluster.timing.stalled_after(offset))

    def read(self, attempt: AttemptId, where: str, positions: Mapping[int, int], follow: bool) -> Iterator[bytes]:
        """What the attempt's processes write, stretch by stretch: `where` is output or errors; see messages.Fetch.

        `positions`: bytes of each rank's that were read before. With `follow` until the attempt has ended, however long
        nothing comes.
        """
        before = [[rank, position] for rank, position in positions.items()]
        request = lambda id, tag: wire.Fetch(id, tag, where, follow=follow, positions=before)  # noqa: E731
        limit_s = None if follow else self.cluster.timing.stalled
        yield from self._connected().stream(attempt, request, lambda end: None, limit_s)

    def read_ends(self, attempt: AttemptId, where: str, most: int) -> Iterator[bytes]:
        """As `read` what there is now, but no more than so many bytes of each rank's: its begin and its end."""
        request = lambda id, tag: wire.Fetch(id, tag, where, size=most, positions=[])  # noqa: E731
        yield from self._connected().stream(attempt, request, lambda end: None, self.cluster.timing.stalled)

    def fetch_many(
        self, attempt: AttemptId, paths: Sequence[str], ended: Callable[[wire.Fetched], None]
    ) -> Iterator[bytes]:
        """See messages.FetchMany."""
        request = lambda id, tag: wire.FetchMany(id, tag, list(paths))  # noqa: E731
        yield from self._connected().stream(attempt, request, ended, self.cluster.timing.stalled)

    def list_files(self, attempt: AttemptId, patterns: Sequence[str]) -> Iterator[bytes]:
        """See messages.ListFiles."""
        request = lambda id, tag: wire.ListFiles(id, tag, list(patterns))  # noqa: E731
        walks = any(map(is_pattern, patterns))  # through a tree that may be large, and of which little is named
        limit_s = self.cluster.timing.stalled * (_WALKS if walks else 1)
        yield from self._connected().stream(attempt, request, lambda end: None, limit_s)

    def _connected(self) -> Kcm:
        if (kcm := self._kcm) is not None:
            return kcm
        reason = self._status.reason
        why = f"{self.cluster.name} is not connected" + (f": {reason.message}" if reason else ".")
        raise TransientError("not_connected", why, reason.advice if reason else "Wait a moment.")

    # ---- the link's thread

    def _run(self) -> None:
        while not self._closing.is_set() and not self._replaced.is_set():
            tries = tenacity.Retrying(
                wait=self._patience,
                stop=tenacity.stop_when_event_set(self._closing),
                sleep=self._pause,
                retry=tenacity.retry_if_exception_type(Lost),
            )
            try:
                tries(self._guarded)
            except tenacity.RetryError:
                return

    def _guarded(self) -> None:
        """A mistake of ours in a session costs that session: the driver hears at once that the cluster is lost."""
        try:
            self._live()
        except Lost:
            raise
        except Exception as error:
            _LOG.exception("link_failed", cluster=self.cluster.name)
            with self._lock:
                talking, self._talking, self._kcm = self._talking, None, None
            if talking is not None:
                talking.end()
            raise self._lost(_failure_of(error)) from error

    def _pause(self, seconds: float) -> None:
        self._woken.wait(None if seconds == FOR_A_PERSON else seconds)

    def _live(self) -> None:
        """One connection from its beginning to its end. Raises Lost for one that did not last."""
        with self._lock:
            self._woken.clear()
            self._number = self._wanted
            if self._closing.is_set():
                return
        try:
            channel = bootstrap.start(self._connection, self._packed, self._target(), self._hear)
        except BatchError as error:
            raise self._lost(reason_of_error(error)) from error
        self._said.clear()  # what the login said: from now on it is the KCM
        try:
            epoch = self._around.next_epoch()
            kcm = Kcm(self._as_patient(), channel, epoch, self._listener(epoch))
            known, doubtful = self._around.known(), self._around.doubtful()
        except KoalaError as error:
            channel.close()
            raise self._lost(error.reason) from error
        began = time.monotonic()
        self._talk(kcm, known, doubtful, channel)
        if time.monotonic() - began < self.cluster.timing.settled and not self._closing.is_set():
            assert self._status.reason is not None
            if self._replaced.is_set():
                return
            raise Lost(self._status.reason)

    def _talk(
        self, kcm: Kcm, known: Sequence[tuple[AttemptId, str]], doubtful: Sequence[JobId], channel: Channel
    ) -> None:
        with self._lock:
            if self._closing.is_set():
                channel.close()
                return
            self._talking = kcm
        with OutageWatch(self._connection, kcm.silent, kcm.end):
            why = kcm.run(known, doubtful)
        self._kcm = self._talking = None
        if not self._closing.is_set():
            lost = self._lost(why or self._cut())
            if is_nonsense(lost.reason):
                raise lost

    def _as_patient(self) -> Cluster:
        """The cluster, with the patience that its login is worth."""
        if not isinstance(self._connection, Remembering) or not self._connection.asked:
            return self.cluster
        timing = self.cluster.timing
        return replace(self.cluster, timing=replace(timing, silence=max(timing.silence, _SILENCE_OF_ASKED_S)))

    def _target(self) -> bootstrap.Target:
        config, timing = self.cluster.config, self.cluster.timing
        shared, python, setup = config.get("shared"), config.get("python"), config.get("setup", ())
        return bootstrap.Target(shared, python, timeout_s=timing.welcome, setup=setup)

    def _listener(self, epoch: int) -> Listener:
        welcomed = functools.partial(self._welcomed, epoch)
        around = self._around
        return Listener(around.now, around.deliver, welcomed, around.put, around.intake)

    def _welcomed(self, epoch: int, welcome: Welcome) -> bool:
        """From now on the driver's commands go through; False for a KCM with which there is nothing to be done."""
        verdict = self._around.vet(epoch, welcome)
        if verdict is not Verdict.FINE:
            self._refuse(verdict)
            return False
        self._status = LinkStatus(self.cluster.name, "connected", None, welcome.host, welcome.batch_version)
        self._kcm = self._talking
        self._patience.renew()
        self._around.told(self._status, self._number)
        _LOG.info("cluster_connected", cluster=self.cluster.name, host=welcome.host, batch=welcome.batch_version)
        if self._watched is not None and self._kcm is not None:
            self._kcm.hint(self._watched)
        self._around.connected()
        return True

    def _refuse(self, verdict: Verdict) -> None:
        """Be connected anew, or never again if another koalad has this cluster."""
        if verdict is Verdict.REPLACED:
            self._replaced.set()
        if (talking := self._talking) is not None:
            talking.end({Verdict.REPLACED: REPLACED, Verdict.IMPOSSIBLE: IMPOSSIBLE}.get(verdict, _RESTORED))

    def _lost(self, reason: Reason) -> Lost:
        """Tell the driver, but for the same reason once only."""
        reason = self._patience.told(reason)
        before, self._status = self._status, LinkStatus(self.cluster.name, "unreachable", reason)
        if before.state != "unreachable" or before.reason != reason:
            _LOG.warning("cluster_lost", cluster=self.cluster.name, code=reason.code, reason=str(reason))
            self._around.deliver(Delivery(events=(ClusterLost(cluster=self.cluster.name, reason=reason),)))
        self._around.told(self._status, self._number)
        return Lost(reason)

    def _cut(self) -> Reason:
        """The other side ended the connection; its last words say why, if it had any."""
        advice = "koalad connects again by itself."
        if not self._said:
            return Reason("cut", "transient", f"The connection to {self._connection.where} was lost.", advice)
        words = self._said[-1].removeprefix("The KCM ends: ").rstrip(".")
        message = f"The KCM on {self._connection.where} ended: {words}."
        return Reason("kcm_ended", "transient", message, advice, words=" ".join(self._said)[-500:])

    def _hear(self, line: str) -> None:
        self._said.append(line)
        _LOG.debug("kcm_said", cluster=self.cluster.name, line=line)


def _failure_of(error: Exception) -> Reason:
    message = f"What the KCM said made koalad's link fail ({type(error).__name__}: {shown(str(error))})."
    advice = "koalad connects again after a while. Report this, with koalad's log."
    return Reason("link_failed", "ours", message, advice)


REPLACED = Reason(
    "replaced",
    "request",
    "Another koalad with this store, or with a copy of it, has taken this cluster over.",
    "End one of the two with `koala down`; a koalad that is started takes its clusters.",
)
_RESTORED = Reason(
    "store_restored",
    "transient",
    "The cluster knows more of this store than the store itself: it was restored from a backup.",
    "koalad connects again by itself, and looks for what ran since.",
)
