"""Does one action of the machine and reports its outcome: blocking calls, of which every error becomes an outcome."""

from typing import Any, Callable, Dict, List, Optional, Tuple

from koalapy_adapters.batch.protocol import ENDED, BatchJob
from koalapy_adapters.batch.text import is_launcher
from koalapy_adapters.errors import BatchError, ClusterError, TransientError
from koalapy_adapters.examination import head, probe
from koalapy_adapters.kcm.execution import job_spec
from koalapy_adapters.kcm.execution.batch_system import (
    CHECK,
    MEASURE,
    BatchSystem,
    SubmitDoubt,
    UnaccountedError,
    failure_of,
    guarded,
)
from koalapy_adapters.kcm.execution.parallel_environment import ParallelEnvironments
from koalapy_adapters.kcm.execution.subprocess_runner import Handle
from koalapy_adapters.kcm.shared_directory.attempt_dirs import Directories
from koalapy_adapters.kcm.state import actions as do
from koalapy_adapters.kcm.state.actions import SECOND
from koalapy_adapters.messages.koalad import ClusterConfig
from koalapy_adapters.ranges import numbers_of

PAGE = 5000  # tags in one answer, so that it fits into a frame


class Operations:
    """May be used in several threads. `pushed` is the pushed file as compute nodes see it, None while they cannot."""

    def __init__(
        self, config: ClusterConfig, batch: BatchSystem, directories: Directories, now: Callable[[], int]
    ) -> None:
        self._config, self._batch, self._directories, self._now = config, batch, directories, now
        self.pushed: Optional[str] = None
        self._jobs: Dict[str, Tuple[BatchJob, str]] = {}
        self._environments = ParallelEnvironments(batch)

    def perform(self, action: Any) -> Any:
        """The outcome of an action, but of SubmitJob."""
        return _PERFORMERS[type(action)](self, action)

    def expect(self, action: do.Prepare) -> None:
        """It has come and waits for its turn. Returns at once."""
        self._directories.watermark.expect(action.number)

    def submit(self, action: do.SubmitJob, handle: Handle) -> do.JobSubmitted:
        """`handle` ends it. Only a refusal that surely left no batch job comes without a doubt."""
        job, script = self._jobs.pop(action.tag)
        try:
            return do.JobSubmitted(action.tag, guarded(lambda: self._batch.submit(job, script, handle)))
        except SubmitDoubt as doubt:
            return do.JobSubmitted(action.tag, error=failure_of(doubt.error), doubt=True)
        except BatchError as error:
            if self._chooses(action.tag) and not isinstance(error, TransientError):
                self._environments.refused(job)
            return do.JobSubmitted(action.tag, error=failure_of(error))

    def cancel(self, batch_ids: List[str]) -> Optional[Dict[str, Any]]:
        """Cancel these jobs, several by one command; the error, if there is one, of whichever of them."""
        several = len(batch_ids) > 1
        call = (lambda: self._batch.cancel_many(batch_ids)) if several else lambda: self._batch.cancel(batch_ids[0])
        error: Optional[Dict[str, Any]] = _call(call)[1]
        return error

    def prepared(self, tag: str) -> BatchJob:
        """The batch job of an attempt that is prepared and not yet submitted."""
        return self._jobs[tag][0]

    def _prepare(self, action: do.Prepare) -> do.Prepared:
        return do.Prepared(action.tag, _call(lambda: self._make(action))[1])

    def _make(self, action: do.Prepare) -> None:
        pushed = self._prerequisites()
        self._directories.watermark.remember(action.number)
        recipe = job_spec.SharedJobSpec(self._config, self._directories, pushed)
        job = job_spec.batch_job(recipe, action)
        if self._chooses(action.tag):
            job = self._environments.best(job)
        component = job_spec.component(recipe, action, job, self._batch.script(probe.as_scripted(job)))
        self._jobs[action.tag] = (job, self._directories.prepare(component))

    def _chooses(self, tag: str) -> bool:
        """Return whether the parallel environment of this attempt is koalapy's to choose."""
        return is_launcher(tag) and self._config.launchers_environment is None

    def _look(self, action: do.Look) -> do.Looked:
        try:
            listed, accounted = guarded(lambda: self._batch.look(action.tag, action.batch_id))
        except BatchError as error:
            unaccounted = isinstance(error, UnaccountedError)
            return do.Looked(action.tag, None, None, failure_of(error), action.submitting, unaccounted)
        return do.Looked(action.tag, listed, accounted, None, action.submitting)

    def _take_start_lock(self, action: do.TakeStartLock) -> do.StartLockTaken:
        won, error = _call(lambda: self._directories.void(action.tag))
        return do.StartLockTaken(action.tag, bool(won), error)

    def _cancel(self, action: do.CancelJob) -> do.JobCancelled:
        return do.JobCancelled(action.tag, _call(lambda: self._batch.cancel(action.batch_id, action.forced))[1])

    def _suspend(self, action: do.SuspendJob) -> do.JobSuspended:
        call = self._batch.suspend if action.suspended else self._batch.resume
        return do.JobSuspended(action.tag, action.suspended, _call(lambda: call(action.batch_id))[1])

    def _check(self, action: do.CheckJobs) -> do.JobsChecked:
        spent = self._batch.spent_on[CHECK]
        statuses, error = _call(lambda: self._batch.check(action.batch_ids))
        return do.JobsChecked(action.batch_ids, statuses or {}, error, self._batch.spent_on[CHECK] - spent)

    def _inspect(self, action: do.Inspect) -> do.Inspected:
        def look() -> Tuple[Any, int]:
            return self._directories.inspect(action.tags), self._directories.address_file.newest_epoch()

        seen, error = _call(look)
        statuses, epoch = seen or ({}, 0)
        return do.Inspected(action.tags, statuses, epoch, error, action.submitting)

    def _measure(self, action: do.Measure) -> do.CapacityMeasured:
        started_at, spent = self._now(), self._batch.spent_on[MEASURE]
        capacity, error = _call(self._batch.capacity)
        return do.CapacityMeasured(started_at, capacity, error, self._batch.spent_on[MEASURE] - spent)

    def _fingerprint(self, action: do.FingerprintQueue) -> do.QueueFingerprinted:
        """Why it failed is reported by the measurement that follows."""
        spent = self._batch.spent_on[MEASURE]
        seen, _ = _call(self._batch.queue_fingerprint)
        return do.QueueFingerprinted(seen, self._batch.spent_on[MEASURE] - spent)

    def _read_journal(self, action: do.ReadJournal) -> do.JournalRead:
        wanted = frozenset(numbers_of(action.ranges))
        rows, error = _call(lambda: self._directories.journal(action.tag, wanted))
        return do.JournalRead(action.tag, rows or [], rows is not None, error)

    def _remove(self, action: do.Remove) -> do.Removed:
        return do.Removed(action.tag, _call(lambda: self._clear(action.tag))[1])

    def _clear(self, tag: str) -> None:
        """Not before an older KCM can know that it is one: it would revoke the attempt, and so make its directory."""
        self._prerequisites()
        self._directories.remove(tag)

    def _prerequisites(self) -> str:
        """The pushed file, once there is one."""
        if self.pushed is None:
            raise ClusterError("shared_gone", "The shared directory cannot be used.", "See the cluster's own error.")
        return self.pushed

    def _list_tags(self, action: do.ListTags) -> do.Listed:
        def listed() -> Dict[str, Any]:
            statuses = {} if action.after else self._batch.capacity().statuses
            jobs = [job for job in statuses.values() if job.state != ENDED]
            tags = [tag for tag in self._directories.tags() if tag > action.after]
            return {
                "queue": [[job.name, job.batch_id, job.state] for job in jobs[:PAGE]],
                "directories": tags[:PAGE],
                "more": len(tags) > PAGE,
            }

        details, error = _call(listed)
        return do.Listed(action.id, details or {}, error)

    def _examine(self, action: do.ExamineTags) -> do.Listed:
        details, error = _call(lambda: self._directories.examine(action.tags))
        return do.Listed(action.id, details or {}, error)

    def _account(self, action: do.AccountJobs) -> do.Listed:
        def accounted() -> Dict[str, Any]:
            spans = self._batch.account(action.jobs, action.since)
            return {
                "has_accounting": spans is not None,
                "clock": self._now(),
                "spans": [
                    [span.tag, int(span.began_s * SECOND), int(span.ended_s * SECOND), span.processors]
                    for span in spans or []
                ],
            }

        details, error = _call(accounted)
        return do.Listed(action.id, details or {}, error)

    def _diagnose(self, action: do.DiagnoseHead) -> do.Listed:
        examined = head.Head(self._config, self._batch, self._directories)
        details, error = _call(lambda: head.diagnose(examined, action.check))
        return do.Listed(action.id, details or {}, error)

    def _dissolve(self, action: do.DissolveStore) -> do.Listed:
        return do.Listed(action.id, {}, _call(self._directories.dissolve)[1])


def _call(call: Callable[[], Any]) -> Tuple[Any, Any]:
    """(what it returns, None) or (None, the error as JSON)."""
    try:
        return guarded(call), None
    except BatchError as error:
        return None, failure_of(error)


_PERFORMERS: Dict[type, Callable[[Operations, Any], Any]] = {
    do.Prepare: Operations._prepare,
    do.Look: Operations._look,
    do.TakeStartLock: Operations._take_start_lock,
    do.CancelJob: Operations._cancel,
    do.SuspendJob: Operations._suspend,
    do.CheckJobs: Operations._check,
    do.Inspect: Operations._inspect,
    do.Measure: Operations._measure,
    do.FingerprintQueue: Operations._fingerprint,
    do.ReadJournal: Operations._read_journal,
    do.Remove: Operations._remove,
    do.ListTags: Operations._list_tags,
    do.ExamineTags: Operations._examine,
    do.AccountJobs: Operations._account,
    do.DiagnoseHead: Operations._diagnose,
    do.DissolveStore: Operations._dissolve,
}
