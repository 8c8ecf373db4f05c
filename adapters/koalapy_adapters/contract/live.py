"""A target under test: logins that are opened when they are first needed, tags, and the jobs to remove afterwards."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from secrets import token_bytes
from typing import Any, TypeVar

from koalapy.model.identity import AttemptId, InstanceId, JobId, instance_id, tag_of
from koalapy_adapters.batch.protocol import ENDED, BatchJob, JobStatus
from koalapy_adapters.contract.dialogue import PATIENCE_S, program
from koalapy_adapters.contract.kcm import Kcm
from koalapy_adapters.contract.remote_batch import Record, RemoteBatch
from koalapy_adapters.contract.target import Target, login
from koalapy_adapters.errors import BatchError
from koalapy_adapters.messages.koalad import Submit

T = TypeVar("T")
PAUSE_S = 0.1


class Live:
    """One target under test, for one thread.

    Plain batch jobs and attempts of a KCM have different instance ids, as those of two stores have.
    """

    def __init__(self, target: Target, record: Record | None = None) -> None:
        self.target = target
        self._record = record
        self.instance, self._plain = self._instances = [instance_id(token_bytes(4)) for _ in range(2)]
        self._number = self._epoch = 0
        self._jobs: list[tuple[RemoteBatch, str]] = []
        self._attempts: list[str] = []
        self._opened: list[RemoteBatch] = []

    # ---- who can be spoken with

    @cached_property
    def batch(self) -> RemoteBatch:
        """The batch system as this user sees it."""
        return self._remote(RemoteBatch(login(self.target), self._record))

    @cached_property
    def others(self) -> RemoteBatch:
        """The batch system as another user sees it, the neighbour; without one it is `batch`."""
        return (
            self._remote(RemoteBatch(login(self.target, self.target.neighbour)))
            if self.target.neighbour
            else self.batch
        )

    @cached_property
    def operator(self) -> RemoteBatch:
        """The batch system as the target's operator sees it; without one it is `batch`."""
        return (
            self._remote(RemoteBatch(login(self.target, self.target.operator))) if self.target.operator else self.batch
        )

    @property
    def kcm(self) -> Kcm:
        """The current KCM, else a new one that is sent no known attempts."""
        return self._kcm if self._kcm is not None else self.next_kcm()

    _kcm: Kcm | None = None

    def next_kcm(self, *known: list[str]) -> Kcm:
        """Close the connection, if there is one, and start another KCM. `known`: [tag, batch id] of each attempt."""
        if self._kcm is not None:
            self._kcm.close()
        self._epoch += 1
        self._kcm = Kcm(login(self.target), self.instance)
        self._kcm.hello(self._epoch, list(known))
        return self._kcm

    # ---- what is brought into it

    def tag(self, instance: InstanceId | None = None) -> str:
        """Return a new tag, of `instance` or of the plain batch jobs."""
        self._number += 1
        return tag_of(instance or self._plain, AttemptId(JobId(self._number), 0, 0))

    def job(self, script: str, name: str = "", whose: RemoteBatch | None = None, **others: Any) -> BatchJob:
        """Return a plain batch job, without a wrapper, that runs this shell script on its first node.

        `name` is used instead of a tag. `others`: other fields of BatchJob.
        """
        whose, number = whose or self.batch, self.tag()
        cluster = whose.cluster
        fields: dict[str, Any] = {
            "tag": name or number,
            "directory": f"{cluster.directory}/{self._plain}/{number}",
            "command": ["/bin/sh", "-c", script],
            "processors": 1,
            "walltime_s": 240,
        }
        inherited = ("queue", "account", "qos", "reservation", "constraint", "parallel_environment")
        fields.update((key, getattr(cluster, key)) for key in (*inherited, "processors_per_node", "exclusive"))
        fields["native"] = [*cluster.native, *others.pop("native", [])]
        return BatchJob(**{**fields, **others})

    def submit(self, job: BatchJob, whose: RemoteBatch | None = None) -> str:
        """Submit a job and return its batch id. `tidy` cancels it, if it has not ended before."""
        whose = whose or self.batch
        batch_id = whose.submit(job)
        self._jobs.append((whose, batch_id))
        return batch_id

    def attempt(self, script: str, processors: int = 1, **more: Any) -> str:
        """Submit an attempt by the KCM and return its tag."""
        tag = self.tag(self.instance)
        self._attempts.append(tag)
        submitted = self.kcm.submit(tag, script, processors, **more)
        assert getattr(submitted, "batch_id", ""), submitted
        return tag

    def requested(self, script: str, **others: Any) -> Any:
        """Submit an attempt with further fields of its batch job. Returns Submitted or Refused."""
        tag = self.tag(self.instance)
        self._attempts.append(tag)
        batch = {"processors": 1, "walltime_s": 240, **others}
        return self.kcm.answer(Submit, tag, batch, program(script))

    def strangers(self) -> InstanceId:
        """Return an instance id that the target's KCM does not know."""
        self._instances.append(instance_id(token_bytes(4)))
        return self._instances[-1]

    def script_of(self, tag: str) -> str:
        """Path of an attempt's batch script."""
        return f"{self.batch.cluster.directory}/{self.instance}/{tag}/script"

    @contextmanager
    def load(self, processors: int = 1, whose: RemoteBatch | None = None, **others: Any) -> Iterator[str]:
        """Hold `processors` by a job while the block runs. The block gets its batch id when it is running."""
        whose = whose or self.batch
        batch_id = self.submit(self.job("exec sleep 600", whose=whose, processors=processors, **others), whose)
        try:
            self.until(lambda: self.state(batch_id, whose) == "running")
            yield batch_id
        finally:
            whose.cancel(batch_id)
            self.until_ended(batch_id, whose)

    # ---- what is seen of it

    def state(self, batch_id: str, whose: RemoteBatch | None = None) -> str:
        """State of a batch job; empty if the queue does not list it."""
        status = (whose or self.batch).check(batch_id).get(batch_id)
        return status.state if status else ""

    def until(self, found: Callable[[], T | None], patience_s: float = PATIENCE_S) -> T:
        """Poll until `found` returns a true value, and return that: a batch system announces nothing."""
        deadline = time.monotonic() + patience_s
        while not (answer := found()):
            assert time.monotonic() < deadline, f"{patience_s:g} s passed"
            time.sleep(PAUSE_S)
        return answer

    def until_ended(self, batch_id: str, whose: RemoteBatch | None = None) -> JobStatus | None:
        """Wait until a batch job has ended. Returns its status in the queue, None if that does not list it."""
        whose = whose or self.batch

        def ended() -> list[JobStatus | None]:
            status = whose.check(batch_id).get(batch_id)
            return [status] if status is None or status.state == ENDED else []

        return self.until(ended)[0]

    # ---- the end

    def tidy(self) -> None:
        """Remove every job and attempt of this target from the batch system. Raises the error that prevents it."""
        jobs, self._jobs = self._jobs, []
        attempts, self._attempts = self._attempts, []
        for whose, batch_id in jobs:  # a dialect need not know the state of one whose name is no tag
            whose.cancel(batch_id)
        for tag in attempts:
            self.kcm.clear(tag)
        for whose, batch_id in jobs:
            self.until_ended(batch_id, whose)

    def close(self) -> None:
        """Tidy up, remove the directories of its instances on the head node, and close all connections."""
        with ExitStack() as rest:  # from last to first, whatever fails
            rest.callback(self._disconnect)
            rest.callback(self._remove_instances)
            if self._kcm is not None:
                rest.callback(self._kcm.close)  # while it stands, it writes there
            self.tidy()

    def _remove_instances(self) -> None:
        if self._kcm is not None and not self._opened:
            _ = self.batch
        for whose in self._opened:
            paths = [f"{whose.cluster.directory}/{instance}" for instance in self._instances]
            self.until(partial(_remove, whose, paths))

    def _disconnect(self) -> None:
        for opened in self._opened:
            opened.close()

    def _remote(self, remote: RemoteBatch) -> RemoteBatch:
        """Begin as a KCM does, by a description.

        What a batch system has to prepare for a user, it prepares at the first query.
        """
        self._opened.append(remote)
        remote.describe()
        return remote


def _remove(whose: RemoteBatch, paths: list[str]) -> bool:
    """Remove the paths. Returns whether nothing is left: on NFS, files that are still open may stay for a moment."""
    return whose.run("rm", "-rf", *paths).exit_status == 0


def refusal(submit: Callable[[], Any]) -> BatchError | None:
    """Return the error of a submit that left no batch job; None if there was no error."""
    try:
        submit()
    except BatchError as error:
        return error
    return None
