"""Where a dialect and the running of its commands meet: what the KCM asks of the batch system, in blocking calls."""

import importlib
import os
import threading
from types import ModuleType
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Union

from koalapy_adapters.batch.classify import unreadable
from koalapy_adapters.batch.protocol import BatchJob, BatchSettings, Capacity, Chosen, Description, JobSpan, JobStatus
from koalapy_adapters.errors import BatchError, ClusterError, Result, TransientError, UnreadableError
from koalapy_adapters.kcm.execution.drmaa.client import DrmaaClient, DrmaaSessions
from koalapy_adapters.kcm.execution.drmaa.helper import DrmaaLost, DrmaaRefused
from koalapy_adapters.kcm.execution.query_cache import QueryCache
from koalapy_adapters.kcm.execution.queue_requests import requester
from koalapy_adapters.kcm.execution.subprocess_runner import Handle, Ran, run
from koalapy_adapters.messages.kcm import Failure

TIMEOUT = 30.0  # seconds for one command
MEASURE, CHECK = "measure", "check"  # what commands are run for, where their cost decides on the pace of the next


class Found(NamedTuple):
    """Where a tag was found: in the queue, else in the accounting."""

    listed: Optional[JobStatus]
    accounted: Optional[JobStatus]


class UnaccountedError(BatchError):
    """The queue does not list the job, and the accounting did not answer. The rest is as in the accounting's error."""

    def __init__(self, error: BatchError) -> None:
        super().__init__(error.code, error.message, error.advice, error.result)
        self.whose = error.whose


class SubmitDoubt(Exception):
    """The submit did not clearly fail: a batch job may exist. `error` states what is known."""

    def __init__(self, error: BatchError) -> None:
        super().__init__(error.message)
        self.error = error


class BatchSystem:
    """One batch system by its dialect. Methods block, may run in several threads, and raise BatchError.

    `runner`: what runs commands elsewhere; by default they run here. With `keeps` what seldom changes is seldom asked.
    """

    def __init__(
        self,
        dialect: Any,
        cluster: BatchSettings,
        drmaa: Optional[Union[DrmaaClient, DrmaaSessions]] = None,
        timeout: float = TIMEOUT,
        runner: Optional[Callable[[List[str], float, Optional[Handle]], Ran]] = None,
        keeps: bool = False,
    ) -> None:
        self.cluster = cluster
        self._dialect, self._drmaa, self._timeout = dialect, drmaa, timeout
        self._run_command = runner or _runner(dialect, cluster)
        self._lock = threading.Lock()
        self._spent = 0
        self.spent_on = {MEASURE: 0, CHECK: 0}  # of it, microseconds of CPU time; one of each at a time
        self._asking = QueryCache(dialect, self._measure) if keeps else None
        self._reasons: Dict[str, str] = {}  # of stuck jobs, by batch id

    @property
    def spent(self) -> float:
        """CPU seconds of all commands so far."""
        return self._spent / 1e6

    def describe(self) -> Description:
        return self._dialect.parse_describe(self._run(self._dialect.describe_argv(self.cluster)))  # type: ignore[no-any-return]

    def script(self, job: BatchJob) -> str:
        return self._dialect.script(job)  # type: ignore[no-any-return]

    def launchers_environment(self, job: BatchJob) -> Optional[Chosen]:
        """The parallel environment that this job of a Launcher is best in; None: it is to stay as it is."""
        if not hasattr(self._dialect, "launchers_environment"):
            return None
        asking = self._dialect.launchers_environment(self.cluster, job)
        try:
            argv = next(asking)
            while True:
                argv = asking.send(self._run(argv))
        except StopIteration as answered:
            return answered.value  # type: ignore[no-any-return]

    def submit(self, job: BatchJob, path: str, handle: Handle) -> str:
        """The batch id. Raises SubmitDoubt where a batch job may exist, BatchError where surely none does."""
        argv = self._dialect.submit_argv(job, path)
        result = self._submitted_by_drmaa(argv, path, handle) or self._run(argv, handle, judged=False)
        if not handle.started:
            raise TransientError("submit_ended", "The submit was ended before it began.", "Submit it again.")
        if result.exit_status is None:
            raise SubmitDoubt(_timed_out(result, self._timeout))
        try:
            return self._dialect.parse_submit(_whole(result))  # type: ignore[no-any-return]
        except (TransientError, UnreadableError) as error:
            raise SubmitDoubt(error) from error

    def _submitted_by_drmaa(self, argv: List[str], path: str, handle: Handle) -> Optional[Result]:
        """Submit by DRMAA; None if there is no DRMAA. libdrmaa refuses a job in the same words as the command."""
        if self._drmaa is None or not self._drmaa.start():
            return None
        if not handle.begin():
            return Result(argv, None, "", "")
        try:
            return Result(argv, 0, self._drmaa.submit(path, argv[1:]) + "\n", "")
        except DrmaaRefused as error:
            return Result(argv, 1, "", str(error))
        except DrmaaLost as error:
            advice = "Submit it again; if this goes on, set `drmaa: off` for this cluster in the grid file."
            raise SubmitDoubt(TransientError("drmaa_lost", str(error), advice)) from error

    def look(self, tag: str, batch_id: str) -> Found:
        """By tag in the queue; in the accounting if it is not there. Raises BatchError; see UnaccountedError."""
        dialect = self._dialect
        listed = dialect.parse_find(self._run(dialect.find_argv(self.cluster, tag)), tag)
        argv = dialect.history_argv(self.cluster, tag, batch_id) if listed is None else None
        try:
            accounted = None if argv is None else guarded(lambda: dialect.parse_history(self._run(argv), tag))
        except BatchError as error:
            raise UnaccountedError(error) from error
        return Found(listed, accounted)

    def check(self, batch_ids: List[str]) -> Dict[str, JobStatus]:
        dialect = self._dialect
        result = self._run(dialect.status_argv(batch_ids), purpose=CHECK)
        return dialect.parse_status(result)  # type: ignore[no-any-return]

    def account(self, jobs: Sequence[Sequence[str]], since: int) -> Optional[List[JobSpan]]:
        """When these jobs, (tag, batch id) each, ran, of those that have ended; None: none are kept here.

        `since`: microseconds, when the first of them began or earlier. The number of commands does not depend on that
        of the jobs.
        """
        if not hasattr(self._dialect, "account_argvs"):
            return None
        tags = {batch_id: tag for tag, batch_id in jobs}
        found: Dict[str, JobSpan] = {}
        for argv in self._dialect.account_argvs(self.cluster, list(tags), since / 1e6):
            spans = self._dialect.parse_account(self._run(argv))
            found.update({span.batch_id: span for span in spans if tags.get(span.batch_id) == span.tag})
            if len(found) == len(tags):
                break
        return list(found.values())

    def cancel(self, batch_id: str, forced: bool = False) -> None:
        """`forced`: see CancelJob; a plain cancel where the dialect knows no other, or the cluster refuses it."""
        if forced and hasattr(self._dialect, "forget_argv"):
            self._dialect.parse_cancel(self._run(self._dialect.forget_argv([batch_id])))
        elif not self._by_drmaa(batch_id, "terminate"):
            self.cancel_many([batch_id])

    def cancel_many(self, batch_ids: List[str]) -> None:
        """All of them by one command."""
        self._dialect.parse_cancel(self._run(self._dialect.cancel_argv(batch_ids)))

    def suspend(self, batch_id: str) -> None:
        """Stop the program of a job, so that others can have its processors. Raises BatchError if that cannot be."""
        self._require_suspend()
        self._dialect.parse_suspend(self._run(self._dialect.suspend_argv(batch_id)))

    def resume(self, batch_id: str) -> None:
        """Let a suspended job go on as soon as its processors are free. Raises BatchError if that cannot be."""
        self._require_suspend()
        self._dialect.parse_suspend(self._run(self._dialect.resume_argv(batch_id)))

    def _require_suspend(self) -> None:
        if not getattr(self._dialect, "FREES_WHEN_SUSPENDED", False):
            name = self._dialect.NAME
            raise ClusterError("cannot_suspend", "A job that %s suspends keeps its processors." % name, "Vacate it.")

    def hold(self, batch_id: str) -> bool:
        """Keep a waiting job from starting. False: this batch system cannot hold any."""
        return self._by_drmaa(batch_id, "hold") or self._held(self._dialect.hold_argv([batch_id]))

    def release(self, batch_id: str) -> bool:
        """Let a held job go on waiting for its turn."""
        return self._by_drmaa(batch_id, "release") or self._held(self._dialect.release_argv([batch_id]))

    def _by_drmaa(self, batch_id: str, action: str) -> bool:
        """Return whether the action is done. If not, the command does it, or reports why it cannot."""
        return self._drmaa is not None and self._drmaa.control(batch_id, action)

    def _held(self, argv: Optional[List[str]]) -> bool:
        if argv is not None:
            self._dialect.parse_hold(self._run(argv))
        return argv is not None

    @property
    def has_queue_fingerprint(self) -> bool:
        """Return whether the dialect has a cheaper query than `capacity` that shows whether others wait."""
        return hasattr(self._dialect, "queue_fingerprint_argv")

    def queue_fingerprint(self) -> Optional[List[str]]:
        """Fingerprint of others' waiting jobs, unchanged while the same jobs wait; None without such a query.

        Raises BatchError.
        """
        if not self.has_queue_fingerprint:
            return None
        result = self._run(self._dialect.queue_fingerprint_argv(self.cluster), purpose=MEASURE)
        return self._dialect.parse_queue_fingerprint(self.cluster, result)  # type: ignore[no-any-return]

    def capacity(self) -> Capacity:
        argvs = self._dialect.capacity_argvs(self.cluster)
        results = self._asking.ask(argvs) if self._asking is not None else list(map(self._measure, argvs))
        try:
            capacity: Capacity = self._dialect.parse_capacity(self.cluster, results)
        except Exception:
            if self._asking is not None:
                self._asking.forget()
            raise
        stuck = [status.batch_id for status in capacity.statuses.values() if status.stuck]
        return capacity._replace(statuses=self._explained(capacity.statuses, stuck)) if stuck else capacity

    def _measure(self, argv: List[str]) -> Result:
        return self._run(argv, purpose=MEASURE)

    def _explained(self, statuses: Dict[str, JobStatus], stuck: List[str]) -> Dict[str, JobStatus]:
        """With the reasons of those that are stuck, where they take another command, which is asked once for each."""
        if not hasattr(self._dialect, "explain_argv"):
            return statuses
        self._reasons = {batch_id: self._reasons[batch_id] for batch_id in stuck if batch_id in self._reasons}
        unknown = [batch_id for batch_id in stuck if batch_id not in self._reasons]
        if unknown:
            try:
                found = self._dialect.parse_explain(self._run(self._dialect.explain_argv(unknown), purpose=MEASURE))
            except BatchError:
                return statuses  # what is listed is enough to act on
            self._reasons.update({batch_id: found.get(batch_id, "") for batch_id in unknown})
        known = {batch_id: why for batch_id, why in self._reasons.items() if why}
        return dict(statuses, **{batch_id: statuses[batch_id]._replace(reason=why) for batch_id, why in known.items()})

    def _run(self, argv: List[str], handle: Optional[Handle] = None, judged: bool = True, purpose: str = "") -> Result:
        ran = self._run_command(argv, self._timeout, handle)
        with self._lock:
            self._spent += ran.cost
            if purpose:
                self.spent_on[purpose] += ran.cost
        if judged and ran.result.exit_status is None:
            raise _timed_out(ran.result, self._timeout)
        return _whole(ran.result) if judged else ran.result


def _runner(dialect: Any, cluster: BatchSettings) -> Callable[[List[str], float, Optional[Handle]], Ran]:
    if getattr(dialect, "HAS_QUEUE_SERVER", False):
        return requester(
            cluster.command, os.path.join(cluster.directory, dialect.DIRECTORY), dialect.own_slots(cluster)
        )
    return run


def _whole(result: Result) -> Result:
    """The same. Raises UnreadableError for one that ends in the middle of a line: its last word may be another one.

    OpenPBS up to 23.06.06 ends the JSON of an empty list with the brace that closes it.
    """
    if result.exit_status == 0 and result.stdout and not result.stdout.endswith(("\n", "\n}")):
        raise unreadable(result, "was cut off in the middle of a line")
    return result


def load(name: str) -> ModuleType:
    """The dialect of this name. Raises ClusterError if the pushed file has none."""
    try:
        return importlib.import_module("koalapy_adapters.batch." + name)
    except ImportError as error:
        raise ClusterError(
            "batch_system_unknown",
            "There is no batch system named %s: %s." % (name, error),
            "Name one that is installed in the grid file's `batch`.",
        ) from error


def failure_of(error: BatchError) -> Dict[str, Any]:
    """The error as it goes on the wire."""
    result = error.result
    command = " ".join(result.argv)[:500] if result is not None else ""
    exit_status = result.exit_status if result is not None else None
    words = result.words if result is not None else ""
    return dict(Failure(error.code, error.whose, error.message, error.advice, command, exit_status, words)._asdict())


def guarded(call: Callable[[], Any]) -> Any:
    """Return the result of the call. Raises BatchError for a dialect that breaks, which ends no KCM; or SubmitDoubt."""
    try:
        return call()
    except (BatchError, SubmitDoubt):
        raise
    except OSError as error:
        message = "The head node could not run a command: %s." % error
        raise TransientError("head_node", message, "See to its memory and process limits.") from error
    except Exception as error:
        raise UnreadableError(
            "dialect_broken",
            "The batch system's answer could not be understood: %s: %s." % (type(error).__name__, error),
            "Report this to koalapy's authors with the command's output.",
        ) from error


def _timed_out(result: Result, timeout: float) -> BatchError:
    return TransientError(
        "command_timeout",
        "The command %s did not end within %d s and was ended." % (result.argv[0], timeout),
        "See whether the batch system's servers answer.",
        result,
    )
