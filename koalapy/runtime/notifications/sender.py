"""Sends notifications from a thread of its own, which starts with the first one.

The answer or error of a webhook decides whether the notification was taken.
"""

import asyncio
import contextlib
import logging
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import Future

import httpx
import structlog

from koalapy.driver.driver import Delivery
from koalapy.link.notifications import NotificationQueue
from koalapy.model.commands import AnnounceNotification, NotificationCommand, SendNotification
from koalapy.model.errors import KoalaError, Reason
from koalapy.model.identity import JobId
from koalapy.model.notification import Mail, Outcome, Program, Webhook
from koalapy.model.units import SECOND, Instant
from koalapy.runtime.notifications.content import USER_AGENT, Content
from koalapy.runtime.notifications.process import deliver_mail, run_command

_LOG = structlog.get_logger()
TRY_S = 30.0  # the longest time of one try
CLOSE_S = 5.0  # for tries that are under way when koalad ends
_LONGEST_SLEEP_S = 60.0  # the host may have slept
_STORE_S = 1.0  # until a store that did not answer is asked again
_TOO_LONG = Reason(
    "notification_timed_out",
    "transient",
    f"The notification was not sent within {TRY_S:.0f} seconds.",
    "It is not sent again, since it may have arrived.",
)
_PHASE_S = 10.0  # to connect, and to write or read anything
_NOT_TAKEN = {408, 425, 429, 500, 503}  # the server reports that it has not handled the request
_MAY_BE_TAKEN = {502, 504}  # of a gateway, which may have passed the request on
_NOT_CONNECTED = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
_UNUSABLE = (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError)
_AGAIN = "koalad tries again, with longer and longer waits between."
_ONCE = "It is not sent again, since it may have arrived."


class NotificationSender:
    """Carries out the commands of notifications. `send` returns at once.

    `deliver` passes deliveries to the driver's thread. `known`: whether the store has a job's record. Raises nothing.
    """

    def __init__(
        self,
        content: Content,
        deliver: Callable[[Delivery], None],
        known: Callable[[JobId], bool],
        now: Callable[[], Instant],
        try_s: float = TRY_S,
    ) -> None:
        self._content, self._deliver, self._now, self._try_s = content, deliver, now, try_s
        self._queue = NotificationQueue(known)
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closing = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._trust: ssl.SSLContext | None = None

    def send(self, number: int, command: NotificationCommand, doubt: bool) -> None:
        """Begin to carry out a command. `number`: its number in the outbox."""
        with self._lock:
            if self._closing:
                return
            if self._loop is None:
                started: Future[asyncio.AbstractEventLoop] = Future()
                self._thread = threading.Thread(target=self._run, args=(started,), name="notifications", daemon=True)
                self._thread.start()
                self._loop = started.result()
            self._loop.call_soon_threadsafe(self._take, number, command, doubt)

    def close(self) -> None:
        """Stop: begin no try, and wait for those that are under way, 5 s at most. The next koalad goes on."""
        with self._lock:
            self._closing = True
        if self._loop is None or self._thread is None:
            return
        with contextlib.suppress(RuntimeError):  # the loop has ended
            asyncio.run_coroutine_threadsafe(self._end(), self._loop)
        self._thread.join(CLOSE_S + 5.0)

    def _run(self, started: "Future[asyncio.AbstractEventLoop]") -> None:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        started.set_result(loop)
        try:
            loop.run_forever()
        finally:
            loop.close()

    # ---- on the thread of notifications

    def _take(self, number: int, command: NotificationCommand, doubt: bool) -> None:
        if isinstance(command, AnnounceNotification):
            self._queue.add(number, command)
            return self._look()
        loop = asyncio.get_running_loop()
        try:
            delivery = self._queue.begin(number, command, doubt)
        except KoalaError as error:
            _LOG.warning("notification_waits", job=command.notification.id.job, reason=str(error))
            loop.call_later(_STORE_S, self._take, number, command, doubt)
            return None
        if delivery is not None:
            self._deliver(delivery)
            return self._look()
        task = loop.create_task(self._make(number, command))
        self._tasks.add(task)
        return task.add_done_callback(self._tasks.discard)

    def _look(self) -> None:
        """Announce what is due, and look again when the next one is."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._closing:
            return
        least_s = 0.0
        try:
            for delivery in self._queue.ready(self._now()):
                self._deliver(delivery)
        except KoalaError as error:
            _LOG.warning("notification_waits", reason=str(error))
            least_s = _STORE_S
        if (at := self._queue.next_at()) is not None:
            wait_s = min(max(least_s, (at - self._now()) / SECOND), _LONGEST_SLEEP_S)
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._look)

    async def _make(self, number: int, command: SendNotification) -> None:
        """Make one try, and report its outcome. A try that is cut off by koalad's end is reported by the next one."""
        try:
            outcome, reason = await asyncio.wait_for(self._try(command), self._try_s)
        except TimeoutError:
            outcome, reason = Outcome.UNKNOWN, _TOO_LONG
        except Exception as error:
            _LOG.error("notification_error", job=command.notification.id.job, error=type(error).__name__)
            message = f"koalad failed over the notification ({type(error).__name__})."
            outcome, reason = Outcome.UNKNOWN, Reason("notification_error", "ours", message, "Report this.")
        self._deliver(self._queue.tried(number, command, outcome, reason))
        self._look()

    async def _try(self, command: SendNotification) -> tuple[Outcome, Reason | None]:
        found, content = command.notification, self._content
        match found.to:
            case Webhook() as to:
                # httpx is slow to import

                if self._trust is None:
                    self._trust = ssl.create_default_context()
                return await post(to, content.document(found), content.identity(found), self._trust)
            case Mail() as to:
                return await deliver_mail(to, content.mail(found, to))
            case Program() as to:
                return await run_command(to, content.document(found), content.environment(found))

    async def _end(self) -> None:
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=CLOSE_S)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=CLOSE_S)
        asyncio.get_running_loop().stop()


logging.getLogger("httpx").setLevel(logging.WARNING)  # its lines for each request have the whole URL


async def post(to: Webhook, document: bytes, identity: str, trust: ssl.SSLContext) -> tuple[Outcome, Reason | None]:
    """Post a document. Returns the outcome and, unless it was sent, the reason, which never quotes the URL.

    No redirect is followed, and the body of the answer is not read. The caller bounds the time of the whole call.
    `identity` lets the server drop a request that it had before. `trust`: the authorities for HTTPS.
    """
    headers = {"Content-Type": "application/json", "User-Agent": USER_AGENT, "Idempotency-Key": identity}
    async with httpx.AsyncClient(timeout=_PHASE_S, follow_redirects=False, verify=trust) as client:
        try:
            async with client.stream("POST", to.url, content=document, headers=headers) as response:
                return _judge(to, response)
        except _NOT_CONNECTED as error:
            return Outcome.NOT_TAKEN, _reason(to, f"could not be reached ({error or type(error).__name__})", _AGAIN)
        except _UNUSABLE as error:
            return Outcome.REFUSED, _reason(to, f"cannot be used ({type(error).__name__})", "Correct its URL.")
        except httpx.HTTPError as error:
            return Outcome.UNKNOWN, _reason(to, f"gave no answer ({type(error).__name__})", _ONCE)


def _judge(to: Webhook, response: httpx.Response) -> tuple[Outcome, Reason | None]:
    status = response.status_code
    if 200 <= status < 300:
        return Outcome.SENT, None
    answered = f"answered with HTTP {status}"
    if status in _NOT_TAKEN:
        return Outcome.NOT_TAKEN, _reason(to, answered, _AGAIN)
    if status in _MAY_BE_TAKEN:
        return Outcome.UNKNOWN, _reason(to, answered, _ONCE)
    if 300 <= status < 400:
        return Outcome.REFUSED, _reason(to, f"{answered}, a redirect, which is not followed", "Give its final URL.")
    return Outcome.REFUSED, _reason(to, answered, "Check its URL, and whether its server takes a POST of JSON.")


def _reason(to: Webhook, what: str, advice: str) -> Reason:
    return Reason("webhook_failed", "transient", f"The {to} {what}.", advice)
