"""Does what the machine decides: each action once, several at a time, each answered by its outcome."""

import asyncio
from typing import Any, Dict, List, Tuple

from koalapy_adapters.kcm.execution.operations import Operations
from koalapy_adapters.kcm.execution.subprocess_runner import Handle
from koalapy_adapters.kcm.execution.threads import in_thread, thread_cpu
from koalapy_adapters.kcm.state import actions as do

SUBMITS, COMMANDS, FILES = 4, 4, 8  # of each kind that run at a time; a measurement waits for none of them
CANCELS = 500  # jobs of one cancel command, of which one runs at a time
_COMMANDS = (do.Look, do.CancelJob, do.SuspendJob, do.CheckJobs, do.ListTags)


class ActionExecutor:
    """Performs each action in a thread of its own, but no more than a few of a kind at a time."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations
        self._handles: Dict[str, Handle] = {}
        self._submits = asyncio.Semaphore(SUBMITS)
        self._commands = asyncio.Semaphore(COMMANDS)
        self._files = asyncio.Semaphore(FILES)
        self._cancelling = asyncio.Lock()
        self._to_cancel: List[Tuple[str, str, "asyncio.Future[do.JobCancelled]"]] = []

    async def perform(self, action: Any) -> Any:
        """The action's outcome."""
        if isinstance(action, do.SubmitJob):
            return await self._submit(action)
        if isinstance(action, do.CancelJob) and not action.forced:
            return await self._cancel(action)
        if isinstance(action, (do.Measure, do.FingerprintQueue)):
            return await in_thread(lambda: self._measure(action))
        if isinstance(action, do.Prepare):
            self._operations.expect(action)
        async with self._commands if isinstance(action, _COMMANDS) else self._files:
            return await in_thread(lambda: self._operations.perform(action))

    def end_submit(self, tag: str) -> None:
        handle = self._handles.get(tag)
        if handle is not None:
            handle.end()

    def end_submits(self) -> None:
        """Before the KCM exits: none of its submits may reach the batch system after it is gone."""
        for handle in list(self._handles.values()):
            handle.end()

    def _measure(self, action: Any) -> Any:
        """With what it costs the KCM itself to run the commands and to read them."""
        began = thread_cpu()
        outcome = self._operations.perform(action)
        return outcome._replace(cost=outcome.cost + thread_cpu() - began)

    async def _cancel(self, action: do.CancelJob) -> do.JobCancelled:
        """By the next command, with all that wait for it: the number of calls must not grow with the number of jobs."""
        outcome: "asyncio.Future[do.JobCancelled]" = asyncio.get_event_loop().create_future()
        self._to_cancel.append((action.batch_id, action.tag, outcome))
        async with self._cancelling:
            while not outcome.done():
                some, self._to_cancel = self._to_cancel[:CANCELS], self._to_cancel[CANCELS:]
                batch_ids = [batch_id for batch_id, _, _ in some]
                error = await in_thread(lambda ids=batch_ids: self._operations.cancel(ids))  # type: ignore[misc]
                for _, tag, each in some:
                    each.set_result(do.JobCancelled(tag, error))
        return outcome.result()

    async def _submit(self, action: do.SubmitJob) -> do.JobSubmitted:
        handle = self._handles[action.tag] = Handle()
        try:
            async with self._submits:
                return await in_thread(lambda: self._operations.submit(action, handle))  # type: ignore[no-any-return]
        finally:
            del self._handles[action.tag]
