"""Does what the machine decides: each action once, several at a time, each answered by its outcome."""

import asyncio
from typing import Any, Callable, Dict, Optional, Tuple

from koalapy_adapters.batch.protocol import BatchJob
from koalapy_adapters.errors import BatchError, SiteError
from koalapy_adapters.kcm import actions as do
from koalapy_adapters.kcm import recipes
from koalapy_adapters.kcm.commands import BatchSystem, SubmitDoubt, failure_of, guarded, now
from koalapy_adapters.kcm.directories import Directories
from koalapy_adapters.kcm.running import Handle
from koalapy_adapters.kcm.threads import in_thread
from koalapy_adapters.messages import ClusterConfig

SUBMITS, COMMANDS, FILES = 4, 4, 8  # of each kind that run at a time; a measurement waits for none of them


class Hands:
    """`pushed` is the pushed file as compute nodes see it, None until the shared directory can be used."""

    def __init__(self, config: ClusterConfig, batch: BatchSystem, directories: Directories) -> None:
        self._config, self._batch, self._directories = config, batch, directories
        self.pushed: Optional[str] = None
        self._jobs: Dict[str, Tuple[BatchJob, str]] = {}
        self._handles: Dict[str, Handle] = {}
        self._submits = asyncio.Semaphore(SUBMITS)
        self._commands = asyncio.Semaphore(COMMANDS)
        self._files = asyncio.Semaphore(FILES)

    async def perform(self, action: Any) -> Any:
        """The action's outcome."""
        return await _PERFORMERS[type(action)](self, action)

    def end_submit(self, tag: str) -> None:
        handle = self._handles.get(tag)
        if handle is not None:
            handle.end()

    def end_submits(self) -> None:
        """Before the KCM exits: none of its submits may reach the batch system after it is gone."""
        for handle in list(self._handles.values()):
            handle.end()

    async def _prepare(self, action: do.Prepare) -> do.Prepared:
        _, error = await self._call(self._files, lambda: self._make(action))
        return do.Prepared(action.tag, error)

    def _make(self, action: do.Prepare) -> None:
        if self.pushed is None:
            raise SiteError("shared_gone", "The shared directory cannot be used.", "See the cluster's own error.")
        recipe = recipes.Recipe(self._config, self._directories, self.pushed)
        job = recipes.batch_job(recipe, action)
        component = recipes.component(recipe, action, job, self._batch.script(job))
        self._jobs[action.tag] = (job, self._directories.prepare(component))

    async def _submit(self, action: do.SubmitJob) -> do.JobSubmitted:
        job, script = self._jobs.pop(action.tag)
        handle = self._handles[action.tag] = Handle()
        try:
            async with self._submits:
                call = lambda: self._batch.submit(job, script, handle)  # noqa: E731
                return do.JobSubmitted(action.tag, await in_thread(lambda: guarded(call)))
        except SubmitDoubt as doubt:
            return do.JobSubmitted(action.tag, error=failure_of(doubt.error), doubt=True)
        except BatchError as error:
            return do.JobSubmitted(action.tag, error=failure_of(error))
        finally:
            del self._handles[action.tag]

    async def _look(self, action: do.Look) -> do.Looked:
        found, error = await self._call(self._commands, lambda: self._batch.look(action.tag, action.batch_id))
        if error is not None:
            return do.Looked(action.tag, error=error)
        return do.Looked(action.tag, found.listed, found.accounted)

    async def _revoke(self, action: do.Revoke) -> do.Revoked:
        won, error = await self._call(self._files, lambda: self._directories.revoke(action.tag))
        return do.Revoked(action.tag, bool(won), error)

    async def _cancel(self, action: do.CancelJob) -> do.JobCancelled:
        _, error = await self._call(self._commands, lambda: self._batch.cancel(action.batch_id))
        return do.JobCancelled(action.tag, error)

    async def _check(self, action: do.CheckJobs) -> do.JobsChecked:
        statuses, error = await self._call(self._commands, lambda: self._batch.check(action.batch_ids))
        return do.JobsChecked(action.batch_ids, statuses or {}, error)

    async def _inspect(self, action: do.Inspect) -> do.Inspected:
        def look() -> Tuple[Any, int]:
            return self._directories.inspect(action.tags), self._directories.newest_epoch()

        seen, error = await self._call(self._files, look)
        sights, epoch = seen or ({}, 0)
        return do.Inspected(action.tags, sights, epoch, error)

    async def _measure(self, action: do.Measure) -> do.CapacityMeasured:
        started_at, spent = now(), self._batch.measured
        capacity, error = await self._call(None, self._batch.capacity)
        return do.CapacityMeasured(started_at, capacity, error, self._batch.measured - spent)

    async def _remove(self, action: do.Remove) -> do.Removed:
        _, error = await self._call(self._files, lambda: self._directories.remove(action.tag))
        return do.Removed(action.tag, error)

    async def _list_tags(self, action: do.ListTags) -> do.TagsListed:
        known = frozenset(action.known)

        def listed() -> Dict[str, Any]:
            jobs = self._batch.capacity().statuses.values()
            directories = [place for place in self._directories.tags() if place[1] not in known]
            return {
                "queue": [[job.name, job.batch_id, job.state] for job in jobs if job.name not in known],
                "directories": directories,
            }

        details, error = await self._call(self._commands, listed)
        return do.TagsListed(action.id, details or {}, error)

    async def _call(self, limit: Optional[asyncio.Semaphore], call: Callable[[], Any]) -> Tuple[Any, Any]:
        """(what it returns, None) or (None, the error as JSON)."""
        try:
            if limit is None:
                return await in_thread(lambda: guarded(call)), None
            async with limit:
                return await in_thread(lambda: guarded(call)), None
        except BatchError as error:
            return None, failure_of(error)


_PERFORMERS: Dict[type, Callable[[Hands, Any], Any]] = {
    do.Prepare: Hands._prepare,
    do.SubmitJob: Hands._submit,
    do.Look: Hands._look,
    do.Revoke: Hands._revoke,
    do.CancelJob: Hands._cancel,
    do.CheckJobs: Hands._check,
    do.Inspect: Hands._inspect,
    do.Measure: Hands._measure,
    do.Remove: Hands._remove,
    do.ListTags: Hands._list_tags,
}
