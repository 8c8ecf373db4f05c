"""What koalad does for whoever asks: the calls behind the HTTP API, for any thread."""

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from koalapy.broker.fit import Lack
from koalapy.driver import Delivery
from koalapy.information.kis import Known, View
from koalapy.model.errors import KoalaError, RequestError, TransientError
from koalapy.model.events import CancelRequested, Event, HoldRequested, ReleaseRequested
from koalapy.model.events import JobSubmitted as Submitted
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.job import Component, Debt, History, Job
from koalapy.model.records import Step
from koalapy.model.request import Request
from koalapy.model.states import JobState
from koalapy.model.units import SECOND, Instant
from koalapy.runtime.clock import SystemClock
from koalapy.runtime.loop import DriverLoop
from koalapy.store.contract import Store

_COMMIT_S = 30.0  # a submit not committed within this is answered as not accepted yet


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """One cluster for `koala clusters`."""

    known: Known
    view: View
    age: int | None  # microseconds since the measurement


Reader = Callable[[str, AttemptId, str, bool], Iterator[bytes]]


class Service:
    """One koalad. `read(cluster, attempt, stream, follow)` reads a component's output over its link."""

    def __init__(self, store: Store, loop: DriverLoop, clock: SystemClock, read: Reader) -> None:
        self._store = store
        self._loop = loop
        self._clock = clock
        self._read = read
        self._changed = threading.Condition()

    # ---- what changes something

    def submit(self, request: Request, owner: str, key: str) -> JobId:
        """The job's id, once it is committed. The same key again gives the same job."""
        known = self._store.job_of_key(owner, key)
        if known is not None:
            return known
        step = self._do(Submitted(request=request, owner=owner, key=key))
        made = [job.id for job in step.jobs if job.key == key and job.owner == owner]
        found = made[0] if made else self._store.job_of_key(owner, key)
        if found is None:
            raise TransientError("not_accepted", "The job was not accepted.", "Submit it again.")
        return found

    def cancel(self, job: JobId, force: bool = False) -> Job:
        self._must_be(job, lambda state: not state.final, "is over already", "Nothing is left to cancel.")
        return self._changed_by(job, CancelRequested(job, force))

    def hold(self, job: JobId) -> Job:
        movable = (JobState.WAITING, JobState.CLAIMING, JobState.HELD)
        self._must_be(job, lambda state: state in movable, "cannot be held", "Only a job that has not started can be.")
        return self._changed_by(job, HoldRequested(job))

    def release(self, job: JobId) -> Job:
        self._must_be(job, lambda state: state is JobState.HELD, "is not held", "Hold it first with `koala hold`.")
        return self._changed_by(job, ReleaseRequested(job))

    # ---- what tells something

    def jobs(self, states: Collection[JobState] | None = None, ids: Sequence[JobId] | None = None) -> list[Job]:
        return self._store.jobs(states, ids)

    def job(self, job: JobId) -> Job:
        found = self._store.job(job)
        if found is None:
            raise RequestError("no_such_job", f"There is no job {job}.", "`koala jobs` lists those there are.")
        return found

    def history(self, job: JobId) -> list[History]:
        return self._store.history(job)

    def debts(self) -> list[Debt]:
        return list(self._store.debts())

    def trouble(self) -> str | None:
        """Why nothing new is taken up; None while all is well."""
        return str(self._loop.trouble) if self._loop.trouble else None

    def troubles(self) -> list[str]:
        """What an operator should know, a sentence each: the store, and clusters that cannot be used."""
        store = [f"Nothing new is taken up: {self.trouble()}"] if self.trouble() else []
        return store + [f"{each.view.name}: {each.view.trouble}" for each in self.clusters() if each.view.trouble]

    def clusters(self) -> list[ClusterReport]:
        now = self._clock.now()
        return self._loop.ask(
            lambda engine: [
                ClusterReport(engine.known.clusters[view.name], view, _age(now, view)) for view in engine.views(now)
            ]
        )

    def explain(self, job: JobId) -> list[Lack]:
        """What each cluster lacks for each component of a job that waits."""
        now = self._clock.now()
        return self._loop.ask(lambda engine: engine.explain(now, job))

    def now(self) -> Instant:
        return self._clock.now()

    def wait(self, jobs: Sequence[JobId], timeout_s: float) -> list[Job]:
        """The jobs once all of them are over, or as they are after `timeout_s`."""
        deadline = self._clock.now() + round(timeout_s * SECOND)
        with self._changed:
            while True:
                found = [self.job(job) for job in jobs]
                left = deadline - self._clock.now()
                if left <= 0 or all(job.state.final for job in found):
                    return found
                self._changed.wait(min(1.0, left / SECOND))

    def output(self, job: JobId, stream: str, component: int | None, follow: bool) -> Iterator[bytes]:
        """What the processes of the last attempt wrote, components in order; of one component if it is named."""
        found = self.job(job)
        if component is not None and not 0 <= component < len(found.components):
            raise RequestError("no_such_component", f"Job {job} has no component {component}.", "")
        chosen = found.components if component is None else (found.components[component],)
        return self._read_all(found, chosen, stream, follow)

    def _read_all(self, job: Job, components: Sequence[Component], stream: str, follow: bool) -> Iterator[bytes]:
        """A component whose attempt has no directory on its cluster yet has written nothing."""
        for each in components:
            if each.cluster is None or not each.attempt:
                continue
            try:
                yield from self._read(each.cluster, job.attempt_of(each), stream, follow)
            except KoalaError as error:
                if error.reason.code != "no_such_attempt" or job.state.final:
                    raise

    def notify(self) -> None:
        """Something was committed: whoever waits looks again."""
        with self._changed:
            self._changed.notify_all()

    def _changed_by(self, job: JobId, event: Event) -> Job:
        self._do(event)
        return self.job(job)

    def _do(self, event: Event) -> Step:
        done: Future[Step] = Future()
        self._loop.deliver(Delivery(events=(event,), after=done.set_result))
        try:
            return done.result(timeout=_COMMIT_S)
        except TimeoutError as error:
            why = self.trouble() or "koalad is busy."
            raise TransientError("not_committed", f"It is not recorded yet: {why}", "Try again in a moment.") from error

    def _must_be(self, job: JobId, fits: Callable[[JobState], bool], problem: str, advice: str) -> None:
        if not fits(self.job(job).state):
            raise RequestError("wrong_state", f"Job {job} {problem}.", advice)


def _age(now: Instant, view: View) -> int | None:
    return None if view.state is None else max(0, now - view.state.measured_at)
