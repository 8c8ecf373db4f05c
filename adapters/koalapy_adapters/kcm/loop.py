"""The KCM's loop: frames from koalad, outcomes of actions and the clock in; what the machine decides out."""

import asyncio
from typing import Any, List, Optional, Set

from koalapy_adapters.clock import SECOND, SleepWatch, now
from koalapy_adapters.errors import BatchError
from koalapy_adapters.frames import Chunk, Control, Credit, Frame, FrameError
from koalapy_adapters.kcm.confinement import Confinement
from koalapy_adapters.kcm.context import KcmContext
from koalapy_adapters.kcm.execution.threads import thread_cpu
from koalapy_adapters.kcm.koalad_streams import Reader, Streams, Writer, log
from koalapy_adapters.kcm.session import KcmSession, Open, SeekAgain, Serve
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.kcm.state.attempt import failure
from koalapy_adapters.messages import from_json
from koalapy_adapters.messages.fields import MessageError
from koalapy_adapters.messages.kcm import Refused
from koalapy_adapters.messages.koalad import Hello

_POLL = 5.0  # seconds between two looks at whether the host has slept
_FAREWELL = 2.0


class Kcm:
    """One connection's KCM, from its Hello to its end. `lease`: its bounds, if koalad is a borrower's."""

    def __init__(
        self,
        streams: Streams,
        pushed: str,
        sleep: Optional[SleepWatch] = None,
        lease: Optional[Confinement] = None,
    ) -> None:
        self._pushed, self._lease = pushed, lease
        self._writer = Writer(streams.sink)
        self._reader = Reader(streams.source, self._received)
        self._context: Optional[KcmContext] = None
        self._session = KcmSession(now(), self._cpu_seconds, lease)
        self._tasks: Set[Any] = set()
        self._timer: Optional[asyncio.TimerHandle] = None
        self._timer_at: Optional[int] = None
        self._sleep = sleep or SleepWatch()
        self._report_cost = 0  # CPU time that the last measurement took once it was there, in microseconds
        self._done: "asyncio.Future[int]" = asyncio.get_event_loop().create_future()

    async def run(self) -> int:
        """Until koalad is gone, or a newer KCM is there. The exit status."""
        self._writer.start()
        self._reader.start()
        self._set_timer()
        self._spawn(self._watch_sleep())
        try:
            return await self._done
        finally:
            self._close()

    def _close(self) -> None:
        if self._context is not None:
            self._context.close()
        for task in self._tasks:
            task.cancel()
        self._reader.stop()
        self._writer.close(_FAREWELL)

    # ---- from koalad

    def _received(self, frame: Optional[Frame]) -> None:
        if not self._awake():
            return
        self._session.alive(now())
        if frame is None:
            self._quit("koalad closed the connection")
        elif isinstance(frame, Control):
            self._control(frame.data)
        elif isinstance(frame, Chunk) and self._session.streams.has(frame.stream):
            self._act_all(self._session.streams.chunk(frame))
        elif self._context is not None and isinstance(frame, Chunk):
            self._context.staging.chunk(frame)
        elif self._context is not None and isinstance(frame, Credit):
            self._context.staging.credit(frame.stream, frame.chunks)

    def _control(self, data: Any) -> None:
        try:
            self._perform(self._session.received(now(), from_json(data)))
        except (MessageError, KeyError, TypeError, AttributeError) as error:
            log("A message of koalad cannot be read: %s" % error)
            number = data.get("id") if isinstance(data, dict) else None
            if isinstance(number, int):
                self._writer.send(Refused(number, failure("not_understood", "ours", "The KCM did not understand.")))

    # ---- the session

    async def _open(self, hello: Hello) -> None:
        try:
            context = self._context = KcmContext(
                hello, self._pushed, self._writer, self._happened, self._session.has_ended, self._session.is_suspended,
                self._lease,
            )  # fmt: skip
            welcome = await context.welcome()
        except BatchError as error:
            self._perform(self._session.failed(now(), error))
            return
        fingerprints = context.batch.has_queue_fingerprint
        self._spawn(self._relay(context))
        self._perform(self._session.opened(now(), context.config, fingerprints, welcome, context.ready))

    async def _seek_again(self, context: KcmContext) -> None:
        try:
            welcome = await context.welcome()
        except BatchError as error:
            self._perform(self._session.failed(now(), error))
            return
        self._perform(self._session.sought(now(), welcome, context.ready))

    def _cpu_seconds(self) -> float:
        return self._context.batch.spent if self._context is not None else 0.0

    async def _relay(self, context: KcmContext) -> None:
        self._quit(await context.work())

    def _happened(self, event: Any) -> None:
        if not self._awake() or self._done.done():
            return
        self._act_all(self._session.happened(now(), event))
        if not isinstance(event, do.StreamFrameReceived):  # they come in thousands, and change no timer
            self._set_timer()

    def _perform(self, actions: List[Any]) -> None:
        self._act_all(actions)
        self._set_timer()

    def _act_all(self, actions: List[Any]) -> None:
        for action in actions:
            self._act(action)

    def _act(self, action: Any) -> None:
        if isinstance(action, do.Send):
            self._send(action.message)
            return
        if isinstance(action, do.SendChunk):
            self._writer.offer(action.chunk)
            return
        if isinstance(action, do.Quit):
            self._quit(action.why)
            return
        if isinstance(action, Open):
            self._spawn(self._open(action.hello))
            return
        context = self._context
        assert context is not None
        if isinstance(action, Serve):
            context.staging.request(action.message)
        elif isinstance(action, SeekAgain):
            self._spawn(self._seek_again(context))
        elif isinstance(action, do.SendToWrapper):
            context.relay.send(action.tag, action.message)
        elif isinstance(action, do.EndSubmit):
            context.executor.end_submit(action.tag)
        else:
            self._spawn(self._carry_out(context, action))

    def _send(self, message: Any) -> None:
        try:
            self._writer.send(message)
        except FrameError as error:
            log("A message to koalad was dropped: %s" % error)

    async def _carry_out(self, context: KcmContext, action: Any) -> None:
        outcome = await context.executor.perform(action)
        if isinstance(outcome, do.CapacityMeasured):
            self._measured(outcome)
        else:
            self._happened(outcome)

    def _measured(self, outcome: do.CapacityMeasured) -> None:
        """React to a measurement. The CPU time of the reaction counts with the next measurement."""
        began = thread_cpu()
        self._happened(outcome._replace(cost=outcome.cost + self._report_cost))
        self._report_cost = thread_cpu() - began

    # ---- the clock

    def _set_timer(self) -> None:
        """Most events leave the session waiting for the same instant as before, and the timer as it is."""
        at = None if self._done.done() else self._session.next_wakeup()
        if at == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = None, at
        if at is not None:
            delay = max(0.0, (at - now()) / 1e6)
            self._timer = asyncio.get_event_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = self._timer_at = None
        if self._awake() and not self._done.done():
            self._perform(self._session.tick(now()))

    async def _watch_sleep(self) -> None:
        while self._awake():
            await asyncio.sleep(_POLL)

    def _awake(self) -> bool:
        """False, and it ends, once its host has slept: it would take that for silence of wrappers, which slept too or
        have been on their own for so long. The next KCM begins without having waited for anybody.
        """
        slept = self._sleep.look()
        if slept:
            self._quit("its host slept for %d s" % (slept // SECOND))
        return not slept

    # ---- the end

    def _quit(self, why: str) -> None:
        if not self._done.done():
            log("The KCM ends: %s" % why)
            self._done.set_result(0)

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: Any) -> None:
        """A task that breaks is our mistake: better no KCM, for the next one recovers, than half a one."""
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log("The KCM broke: %s: %s" % (type(task.exception()).__name__, task.exception()))
            if not self._done.done():
                self._done.set_exception(task.exception())
