"""The calls behind the HTTP API, for any thread."""

import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import TypeVar

from koalapy.answers.jobs import ExplainAnswer, TerminalAnswer, Transfer
from koalapy.answers.koalad import Recovery as DescribedRecovery
from koalapy.answers.koalad import RecoveryLine
from koalapy.broker.availability import Availability
from koalapy.broker.wait_deadlines import why_untimely
from koalapy.coallocation.changeable import CANCEL, HOLD, RELEASE, Changeable, Changed, is_possible, no_such
from koalapy.common.extras import need_matchmaker
from koalapy.driver.driver import Delivery
from koalapy.engine import Engine
from koalapy.journal.journal import JournalState
from koalapy.model.attempt import Attempt, attempt_value
from koalapy.model.change import Change
from koalapy.model.commands import CollectOutput
from koalapy.model.ended_lease import Charged, EndedLease, charged_now, charges, key_of
from koalapy.model.errors import KoalaError, OurError, Reason, RequestError, TransientError
from koalapy.model.events import CancelRequested, Event, HoldRequested, ReleaseRequested
from koalapy.model.events import WorkSubmitted as Submitted
from koalapy.model.history import History, HistoryKind
from koalapy.model.identity import FIRST_LAUNCHER, AttemptId, JobId, launcher_id
from koalapy.model.job import Counters, Job
from koalapy.model.lease import Lease
from koalapy.model.matching import ClusterAd
from koalapy.model.records import Records, Step
from koalapy.model.request import Request
from koalapy.model.sent import SentJob
from koalapy.model.states import AttemptState, JobState
from koalapy.model.sweep import Sweep
from koalapy.model.units import Instant, format_instant
from koalapy.model.unreadable import Unreadable
from koalapy.model.usage import By, Sum, Usage, sums, usage_until
from koalapy.model.work import Flow, Work
from koalapy.policies.placement import PlacementPolicy
from koalapy.runtime.clock import SystemClock
from koalapy.runtime.collecting.collect import Collected
from koalapy.runtime.collecting.written import WrittenStore
from koalapy.runtime.disk import DiskUse
from koalapy.runtime.driver_thread import DriverThread, committed_in_time, refusal, store_failing
from koalapy.runtime.following import Ended, Followed, OutputEnds, Positions, Read, as_text, follow_all, read_all
from koalapy.runtime.job_waiters import JobWaiters
from koalapy.runtime.logins import Logins
from koalapy.runtime.matchmaking.helper import Matchmaker
from koalapy.runtime.staging.input_files import look
from koalapy.runtime.streams import Stream
from koalapy.runtime.sweeps import Sweeps
from koalapy.runtime.transfers import Transfers
from koalapy.runtime.unknown import UnknownTags
from koalapy.store.contract import Store
from koalapy.views import explanation, matching
from koalapy.views.checking import Checked, check
from koalapy.views.clusters import ClusterReport, cluster_reports
from koalapy.views.jobs import component_state
from koalapy.views.launchers import as_job
from koalapy.views.matching import MatchedComponent
from koalapy.views.metrics import Counted, Counting, Load, load_of
from koalapy.views.recovery import Recovery
from koalapy.views.status import NEW_STORE, common_waits, ids_used, notification_troubles

T = TypeVar("T")
_MOST_PATHS = 1 << 17  # bytes of names that are fetched in one call
_REACHED = (AttemptState.RELEASED, AttemptState.RUNNING)
_TRIES = 5  # of a submission whose prerequisites end meanwhile


@dataclass(frozen=True, slots=True)
class JobFiles:
    """The functions for jobs' files: see InputFiles.snapshot and Collector.fetch.

    `written`: the output of jobs that was collected.
    """

    snapshot: Callable[[Request], Request]
    transfers: Transfers
    fetch: Callable[[CollectOutput, float], Collected | None]
    written: WrittenStore


@dataclass(frozen=True, slots=True)
class JobStreams:
    """The functions for byte streams to jobs: those of ClusterLinks with these names."""

    open: Callable[[str, AttemptId, int, int], Stream]
    open_terminal: Callable[[str, AttemptId], Stream]
    is_slow: Callable[[str], bool]
    ended: Callable[[Job], None]


class Service:
    """The API of one koalad. `read` reads a component's output over its link.

    `unknown`: tags on the clusters that the store does not know. `logins`: their questions and answers. `files`: the
    files that jobs stage. `sweeps`: the calls for sweeps. `disk`: the disk space that koalapy uses. `journal`: returns
    the journal of this moment; called on the driver's thread. `matchmaker` compares jobs with clusters.
    """

    def __init__(
        self,
        store: Store,
        loop: DriverThread,
        clock: SystemClock,
        read: Read,
        streams: JobStreams,
        placement: PlacementPolicy,
        recovery: Recovery,
        unknown: UnknownTags,
        logins: Logins,
        files: JobFiles,
        sweeps: Sweeps,
        disk: DiskUse,
        journal: Callable[[], JournalState],
        matchmaker: Matchmaker,
    ) -> None:
        self._store = store
        self._matchmaker = matchmaker
        self._files = files
        self._loop = loop
        self._clock = clock
        self._read = read
        self._streams = streams
        self.placement = placement
        self.unknown = unknown
        self.logins = logins
        self.sweeps = sweeps
        self.disk = disk
        self._journal = journal
        self._recovery = recovery
        self._waiters = JobWaiters()
        self._terminals: dict[JobId, Stream] = {}  # to which a client is attached
        self._attaching = threading.Lock()
        self._counting = Counting()

    # ---- calls that change something

    def submit(self, request: Request, owner: str, key: str) -> JobId:
        """Submit a job. Returns its id once it is committed. The same key again gives the same job.

        Raises KoalaError.
        """
        return self.submit_many([(request, key)], owner)[0]

    def submit_many(self, requests: Sequence[tuple[Request, str]], owner: str) -> list[JobId]:
        """Submit jobs, each with its key, in one commit. Returns their ids in this order once all are committed.

        Raises KoalaError. Then none of them was accepted; only after `not_committed` all of them may be.
        """
        for request, _ in requests:
            need_matchmaker(request)
        self._need_sites([request for request, _ in requests])
        keyed = [(key or uuid.uuid4().hex, request) for request, key in requests]
        found = self._store.ids_of_keys(owner, {key for key, _ in keyed})
        fresh = {key: request for key, request in keyed if key not in found}
        self._refuse_untimely(fresh.values())
        fresh = {key: self._files.snapshot(request) for key, request in fresh.items()}
        needed = sum(1 + len(request.jobs) for request in fresh.values())
        if needed > 1:  # all or none of them
            self._loop.ask(lambda engine: _refuse_without_ids(engine.records.counters, needed))
        for _ in range(_TRIES):
            events = [
                Submitted(request=request, owner=owner, key=key, done=self._prerequisites_done(request))
                for key, request in fresh.items()
                if key not in found
            ]
            if not events:
                break
            step = self.do(*events)
            found |= {each.key: each.id for each in step.work if each.owner == owner and each.key in fresh}
            if missing := fresh.keys() - found.keys():  # another request submitted them, or a prerequisite has ended
                found |= self._store.ids_of_keys(owner, missing)
        if fresh.keys() - found.keys():
            self._loop.ask(lambda engine: _refuse_without_ids(engine.records.counters, 1))
            raise TransientError("not_accepted", "The job was not accepted.", "Submit it again.")
        return [found[key] for key, _ in keyed]

    def _need_sites(self, requests: Sequence[Request]) -> None:
        """Raises RequestError for a job that names a site which is no neighbour."""
        named = {each.site for request in requests for each in (request, *(job.request for job in request.jobs))}
        named.discard(None)
        if not named:
            return
        known = self._loop.ask(lambda engine: set(engine.core.neighbours.records))
        if unknown := sorted(str(each) for each in named - known):
            advice = f"Known: {', '.join(sorted(known)) or 'none'}; `koala sites` shows them."
            raise RequestError("no_such_neighbour", f"There is no neighbour {unknown[0]}.", advice)

    def _refuse_untimely(self, requests: Iterable[Request]) -> None:
        """Raises RequestError for a job that is to begin in the past, or could never begin."""
        now = self._clock.now()
        for each in requests:
            if (why := why_untimely(each, now)) is not None:
                raise RequestError(why.code, why.message, why.advice)

    def _prerequisites_done(self, request: Request) -> tuple[JobId, ...]:
        """Return those of the request's prerequisites that are done.

        Raises RequestError if one does not exist, or did not end well: the job would wait for ever.
        """
        if not request.after:
            return ()
        known = {each.id: each for each in self.all_work(ids=request.after)}
        for each in request.after:
            found = known.get(each)
            if found is None:
                raise no_such(each, self._store.unreadable())
            if found.state.final and found.state is not JobState.DONE:
                ended = "failed" if found.state is JobState.FAILED else "was cancelled"
                message = f"Job {each}, for which this one is to wait, {ended}."
                advice = f"`koala explain {each}` shows why; wait for another job, or for none."
                raise RequestError("prerequisite_failed", message, advice)
        return tuple([each for each in request.after if known[each].state is JobState.DONE])

    def check(self, requests: Sequence[Request]) -> list[Checked]:
        """Return what would become of these requests if they were submitted in this order. Nothing is submitted.

        Raises RequestError for files that cannot be staged in.
        """
        for request in requests:
            need_matchmaker(request)
        self._need_sites(requests)
        self._refuse_untimely(requests)
        for each in requests:
            self._prerequisites_done(each)
            look(each)
        now, ads = self._clock.now(), self.ads()
        jobs = [each for request in requests for each in (request, *(job.request for job in request.jobs))]
        asked = dict.fromkeys(question for each in jobs for question in matching.questions(each, ads))
        answers = self._matchmaker.compare(list(asked)) if asked else []

        def checked(engine: Engine) -> list[Checked]:
            suitability = matching.compared(engine, now, answers)
            return [check(engine, now, each, self.placement, suitability) for each in requests]

        return self._loop.ask(checked)

    def match(self, request: Request) -> tuple[list[MatchedComponent], tuple[ClusterAd, ...]]:
        """Return where each component of a request fits now, and the ads that it was compared with.

        Nothing is submitted. Raises KoalaError if they cannot be compared, and for a sweep.
        """
        if request.parameters is not None:
            message = "The job is a sweep, which takes any idle nodes."
            raise RequestError("is_sweep", message, "Match a job without parameters.")
        now = self._clock.now()
        ads = self.ads()
        answers = self._matchmaker.compare(matching.questions(request, ads))
        failure = next((each.failure for each in answers if each.failure is not None), None)
        if failure is not None:
            raise (RequestError if failure.whose == "request" else OurError)(
                failure.code, failure.message, failure.advice
            )

        def matched(engine: Engine) -> list[MatchedComponent]:
            availability = Availability(engine.summaries(now))
            return matching.match(request, availability, self.placement, matching.compared(engine, now, answers))

        return self._loop.ask(matched), ads

    def ads(self) -> tuple[ClusterAd, ...]:
        """Return the attributes of each cluster."""
        now = self._clock.now()
        return self._loop.ask(lambda engine: matching.ads(engine, now))

    def cancel(self, jobs: Sequence[JobId], force: bool = False, reason: Reason | None = None) -> Changed:
        return self._change(jobs, CANCEL, lambda job: CancelRequested(job, force, reason))

    def hold(self, jobs: Sequence[JobId]) -> Changed:
        return self._change(jobs, HOLD, HoldRequested)

    def release(self, jobs: Sequence[JobId]) -> Changed:
        return self._change(jobs, RELEASE, ReleaseRequested)

    def fetch(self, job: JobId, paths: Sequence[str], directory: str, timeout_s: float) -> Collected | None:
        """Collect files that the last attempts of a job left: these paths, or those that it stages out.

        For a sweep the files are those of the parameters that are done, and its paths are templates; see
        Sweeps.fetching. None after `timeout_s`; the same call again waits for the same files. Raises KoalaError.
        """
        found = _run_here(self.work(job), "no files of its own")
        wanted = tuple(paths) or found.request.stage_out
        if not wanted:
            message = f"Job {job} stages nothing out."
            raise RequestError("nothing_to_fetch", message, "Name paths of what it has left.")
        if sum(len(path.encode()) for path in wanted) > _MOST_PATHS:
            message = f"The paths have more than {_MOST_PATHS} bytes."
            raise RequestError("too_large", message, "Name directories or patterns.")
        self._refuse_pruned(found)
        to = () if paths else found.request.stage_out_to
        command = CollectOutput(job=job, sources=(), paths=wanted, directory=directory, to=to)
        return self._files.fetch(self._with_sources(found, command), timeout_s)

    def _with_sources(self, found: Job | Sweep, command: CollectOutput) -> CollectOutput:
        if isinstance(found, Sweep):
            return self.sweeps.fetching(found, command)
        sources = tuple((each.cluster, each.id) for each in found.attempts if each is not None)
        if not sources:
            message = f"Job {found.id} has not run anywhere."
            raise RequestError("nothing_to_fetch", message, "Name paths of a job that has run.")
        return replace(command, sources=sources)

    # ---- calls that return information

    def transfers(self, jobs: Sequence[JobId]) -> dict[JobId, list[Transfer]]:
        """Return the transfers under way of these jobs, to clusters or back."""
        return self._files.transfers.of(jobs)

    def jobs_of_flow(self, flow: JobId, states: Collection[JobState] | None = None) -> list[Work]:
        """Return the work of a flow that is not pruned. Raises RequestError if there is no such flow."""
        found = self.work(flow)
        if not isinstance(found, Flow):
            raise RequestError("no_flow", f"Job {flow} is not a flow.", f"`koala show {flow}` shows what it is.")
        return self._store.all_work(states, found.jobs)

    def all_work(self, states: Collection[JobState] | None = None, ids: Sequence[JobId] | None = None) -> list[Work]:
        """Return all work by id; only that of these states and ids, if they are given."""
        possible = None if ids is None else [job for job in ids if is_possible(job)]
        return self._store.all_work(states, possible)

    def jobs(self) -> list[Job]:
        """Return all jobs by id, without other work."""
        return self._store.jobs()

    def work(self, job: JobId) -> Work:
        """Return the work of this id, or a Launcher as if it were a job.

        Raises RequestError if there is none of this id, and KoalaError if the store cannot be read.
        """
        found = self._store.work(job) if is_possible(job) else None
        if found is None and is_possible(job) and (pilot := self._store.launcher(launcher_id(job))) is not None:
            sweep = self._store.sweep(JobId(pilot.owner.id))
            found = None if sweep is None else as_job(pilot, sweep.owner, sweep.request.name)
        if found is None:
            raise no_such(job, self._store.unreadable())
        return found

    def history(self, job: JobId) -> list[History]:
        return self._store.history(job)

    def usage(
        self, by: By, since: Instant | None = None, until: Instant | None = None
    ) -> dict[tuple[str | int, ...], Sum]:
        """Return what attempts used, including the running ones until now; see `koalapy.model.usage.sums`."""
        now = self._clock.now()
        unended = self._loop.ask(lambda engine: _unended(engine.records, now))
        entries, days = self._store.used(since)
        entered = {entry.attempt: entry for entry in entries}
        going_on = {each.attempt: each for each in unended if each.attempt not in entered}
        return sums([*entered.values(), *going_on.values()], by, since, until, frozenset(going_on), days)

    def charges(self, since: Instant | None = None, until: Instant | None = None) -> dict[str, Charged]:
        """Return what was lent and borrowed by neighbour; see `koalapy.model.ended_lease.charges`.

        The leases that go on count up to now, unless the time has an end.
        """
        now = self._clock.now()
        going_on = self._loop.ask(_leases) if until is None else []
        leases, days = self._store.ended_leases(since)
        found, ended = charges(leases, since, until, days), {each.key for each in leases}
        going_on = [each for each in going_on if key_of(each) not in ended]
        for name, each in charged_now(going_on, now, since).items():
            found[name] = found.get(name, Charged()).plus(each)
        return found

    def ended_leases(self, since: Instant | None = None) -> list[EndedLease]:
        """Return the leases that ended after an instant and were not pruned, the oldest first."""
        return self._store.ended_leases(since)[0]

    def pending_cancels(self) -> list[Attempt]:
        """Return the pending cancels of this moment, by attempt, even while the store cannot be read."""
        return self._loop.ask(
            lambda engine: [attempt_value(row) for _, row in sorted(engine.records.pending_cancels.items())]
        )

    def counted(self) -> Counted:
        """Return the counts of what was committed since koalad's start."""
        return self._loop.ask(lambda engine: self._counting.counted())

    def load(self) -> Load:
        """Return the load of jobs and sweeps that are not final."""
        now = self._clock.now()
        return self._loop.ask(lambda engine: load_of(engine.records, now))

    def slept(self, reason: Reason) -> None:
        """Record that koalad's host has slept. Called on the driver's thread."""
        self._recovery.slept(self._clock.now(), reason)

    def recovered(self) -> DescribedRecovery:
        """Return what was recovered at koalad's start, and what has been cleaned up since."""
        return self._recovery.recovered

    def trouble(self) -> Reason | None:
        """Return why nothing new is accepted; None while all is well."""
        return self._loop.trouble

    def restored(self) -> list[str]:
        """Return sentences on clusters whose answers all waiting jobs need after a start or a restored store."""
        return self._loop.ask(common_waits)

    def ids_used(self) -> list[str]:
        """Return a sentence for each kind of ids that is nearly used up."""
        return self._loop.ask(lambda engine: ids_used(engine.records.counters))

    def notification_troubles(self) -> list[str]:
        """Return sentences on notifications that were not taken, or were given up."""
        return self._loop.ask(lambda engine: notification_troubles(engine.core.notifications))

    def unreadable(self) -> list[Unreadable]:
        """Return the store's records that could not be read so far."""
        return self._store.unreadable()

    def journal(self) -> JournalState:
        return self._loop.ask(lambda engine: self._journal())

    def clusters(self) -> list[ClusterReport]:
        now = self._clock.now()
        return self._loop.ask(lambda engine: cluster_reports(engine, now))

    def explain(self, job: JobId) -> ExplainAnswer:
        """Answer why a job or sweep is in its state."""
        found, now = self.work(job), self._clock.now()
        explained = self._loop.ask(lambda engine: explanation.explain(engine, now, found, self.placement))
        return explanation.answer(explained, now, self.history(job) if found.state.final else ())

    def when_final(self, jobs: Sequence[JobId], call: Callable[[], None]) -> Callable[[], None]:
        """Call `call` once, soon and from any thread, when all of these jobs are final.

        Returns a function that cancels this. Raises KoalaError if a job is unknown.
        """
        waiter = self._waiters.add(jobs, call)
        try:
            final = [job for job in jobs if self.work(job).state.final]
        except KoalaError:
            self._waiters.forget(waiter)
            raise
        for job in final:
            self._waiters.ended(job)
        return lambda: self._waiters.forget(waiter)

    def work_after_wait(self, jobs: Sequence[JobId]) -> list[Work]:
        """Return the jobs and sweeps as they are, after a wait.

        Raises TransientError if koalad ends before all of them are final.
        """
        found = [self.work(job) for job in jobs]
        if self._waiters.closed and not all(job.state.final for job in found):
            raise TransientError("stopping", "koalad is ending; its jobs run on.", "Start it anew, then wait again.")
        return found

    def wait(self, jobs: Sequence[JobId], timeout_s: float) -> list[Work]:
        """Return jobs and sweeps once all of them are final, or as they are after `timeout_s`. Raises KoalaError."""
        final = threading.Event()
        forget = self.when_final(jobs, final.set)
        try:
            final.wait(timeout_s)
        finally:
            forget()
        return self.work_after_wait(jobs)

    def output(self, job: JobId, stream: str, component: int | None, prefix: bool = False) -> Iterator[bytes]:
        """Return the output of the last attempt's processes, in the order of components, or that of one component.

        `prefix`: each line begins with its component and rank. A piece is empty if nothing has arrived for a while.
        Raises KoalaError, also while it is read.
        """
        found, what = self._readable(job, stream, component)
        if found.state.final:
            return self._left(found, as_text(read_all(self._files.written.first(self._read), found, what), prefix))
        return as_text(read_all(self._read, found, what), prefix)

    def follow(
        self, job: JobId, stream: str, component: int | None, positions: Positions | None
    ) -> tuple[dict[int, int], Iterator[Sequence[OutputEnds | Ended]]]:
        """Return the processors of each component, and their output until the job is final: all at once, try after try.

        `positions`: how far a returning reader has read; None for a new reader. Raises KoalaError.
        """
        found, what = self._readable(job, stream, component)
        processors = {index: found.request.components[index].processors for index in what.components(found)}
        read = self._files.written.first(self._read) if found.state.final else self._read
        if found.state.final and positions is None:
            return processors, self._left(found, ([piece] for piece in read_all(read, found, what)))
        return processors, follow_all(read, lambda: self._looked(job), what, positions)

    def where_forwarded(self, job: JobId, component: int | None, rank: int) -> Attempt:
        """Return the running attempt whose ports can be reached. Raises KoalaError if there is none."""
        found = _run_here(self.work(job), "no ports")
        if isinstance(found, Sweep):
            raise RequestError("no_component", f"Job {job} is a sweep, which has no ports.", "Name another job.")
        asked = found.request.components
        if component is None and len(asked) > 1:
            advice = f"Name one of them: {job}:0 to {job}:{len(asked) - 1}."
            raise RequestError("no_component", f"Job {job} has {len(asked)} components.", advice)
        _refuse_other_components(found, component)
        index = component or 0
        attempt = found.attempt(index)
        if attempt is None or attempt.state not in _REACHED:
            advice = f"`koala show {job}` shows its state, `koala explain {job}` why it waits."
            message = f"Component {index} of job {job} is {component_state(found, index)}, not running."
            raise RequestError("wrong_state", message, advice)
        if rank >= asked[index].processors:
            message = f"Component {index} of job {job} has no rank {rank}."
            raise RequestError("no_such_rank", message, "Ranks are counted from 0 in each component.")
        return attempt

    def open_stream(self, job: JobId, component: int | None, rank: int, port: int) -> Stream:
        """Open a byte stream to a port on the node of a rank. Raises KoalaError.

        The stream is reset when the attempt ends.
        """
        attempt = self.where_forwarded(job, component, rank)
        stream = self._streams.open(attempt.cluster, attempt.id, rank, port)
        self._streams.ended(self._looked(job))  # it may have ended before the stream was known
        return stream

    def where_terminal(self, job: JobId) -> TerminalAnswer:
        """Answer where the terminal of a running interactive job is. Raises KoalaError if there is none."""
        found = self.work(job)
        if isinstance(found, Sweep):
            raise RequestError("is_sweep", f"Job {job} is a sweep.", "Name another job.")
        interactive = found.request.interactive
        if interactive is None:
            advice = "Submit it with `interactive: true`, or by `koala run --interactive`."
            raise RequestError("not_interactive", f"Job {job} is not interactive: it has no terminal.", advice)
        cluster = self.where_forwarded(job, 0, 0).cluster
        return {
            "schema": "koala.terminal/1",
            "id": job,
            "cluster": cluster,
            "kind": interactive.value,
            "attached": self._attached(job) is not None,
            "slow": self._streams.is_slow(cluster),
        }

    def attach(self, job: JobId, take: bool) -> Stream:
        """Open a byte stream to the job's terminal. `take`: also if a client is attached, which loses it.

        The stream is reset when the attempt ends. Raises KoalaError.
        """
        with self._attaching:
            where, former = self.where_terminal(job), self._attached(job)
            if where["attached"] and not take:
                message = f"A client is attached to job {job} already."
                raise RequestError("attached", message, f"`koala attach {job} --take` takes its terminal over.")
            attempt = self.where_forwarded(job, 0, 0)
            stream = self._streams.open_terminal(attempt.cluster, attempt.id)
            if former is not None:
                former.reset("taken", f"Another client has taken over the terminal of job {job}.")
            self._terminals = {key: each for key, each in self._terminals.items() if not each.is_closed}
            self._terminals[job] = stream
        self._streams.ended(self._looked(job))  # it may have ended before the stream was known
        return stream

    def _attached(self, job: JobId) -> Stream | None:
        stream = self._terminals.get(job)
        return None if stream is None or stream.is_closed else stream

    def _readable(self, job: JobId, stream: str, component: int | None) -> tuple[Job, Followed]:
        """Return the job, and what is read of it. Raises RequestError for a sweep, and if there is nothing to read."""
        found = _run_here(self.work(job), "no output of its own")
        if isinstance(found, Sweep):
            advice = f"Name a parameter: `koala logs {job} --parameter 1`, counted from 1 as in `koala results {job}`."
            message = f"Job {job} is a sweep, and each of its parameters has an output of its own."
            raise RequestError("no_parameter", message, advice)
        _refuse_other_components(found, component)
        if found.state.final and not any(found.attempts):
            advice = f"`koala explain {job}` shows why."
            raise RequestError("never_ran", f"Job {job} has run nowhere, so it has written nothing.", advice)
        return found, Followed(stream, component)

    def _left(self, job: Job, pieces: Iterator[T]) -> Iterator[T]:
        """Yield the pieces. Raises RequestError in place of an error that a pruned directory explains."""
        try:
            yield from pieces
        except KoalaError as error:
            if error.reason.code == "no_such_attempt":
                self._refuse_pruned(job)
            raise

    def _refuse_pruned(self, job: Work) -> None:
        """Raises RequestError if maintenance has removed all directories of the job or sweep."""
        for line in self._store.history(job.id):
            if line.kind == HistoryKind.OUTPUT_PRUNED and not line.details.get("remains_on"):
                message = (
                    f"What job {job.id} wrote was pruned on {format_instant(line.at)}: its directories are removed."
                )
                raise RequestError(
                    "output_pruned", message, "See `keep` of prune-output and prune-history in the grid file."
                )

    def _looked(self, job: JobId) -> Job:
        """Return the job as it is now. Raises TransientError if koalad ends."""
        found = self.work_after_wait([job])[0]
        assert isinstance(found, Job), "it was one before"
        return found

    def committed(self, change: Change) -> list[RecoveryLine]:
        """Notify the waiters of final jobs in this commit. Returns log lines on what the commit recovered."""
        self.sweeps.committed(change)
        self._counting.committed(change)
        for job in change.jobs:
            self._streams.ended(job)
        for each in change.work:
            if each.state.final:
                self._waiters.ended(each.id)
        return self._recovery.committed(self._clock.now(), change)

    def close(self) -> None:
        """Release all waiting calls."""
        self.disk.close()
        self.logins.close()
        self._waiters.close()

    def _change(self, jobs: Sequence[JobId], changeable: Changeable, event: Callable[[JobId], Event]) -> Changed:
        """Change all jobs that can be changed, in one commit. The others are refused, each with its reason."""
        found = {each.id: each for each in self.all_work(ids=jobs)}
        unreadable = self._store.unreadable()
        judged = {job: changeable.refusal(job, found.get(job), unreadable) for job in jobs}
        changed = [job for job, refusal in judged.items() if refusal is None]
        if changed:
            self.do(*map(event, changed))
        refused = {job: refusal for job, refusal in judged.items() if refusal is not None}
        return Changed(self.all_work(ids=changed) if changed else [], refused)

    def do(self, *events: Event) -> Step:
        """Do what these events request. Returns the step once it is committed.

        Raises TransientError while the store fails, and OurError if the driver refuses the events.
        """
        if (trouble := self.trouble()) is not None:
            raise store_failing(trouble)
        done: Future[Step] = Future()
        refused = lambda reason: done.set_exception(refusal(reason))  # noqa: E731
        self._loop.deliver(Delivery(events=events, after=done.set_result, refused=refused))
        return committed_in_time(done, self.trouble)


def _leases(engine: Engine) -> list[Lease]:
    return engine.core.leases.all()


def _unended(records: Records, now: Instant) -> list[Usage]:
    return usage_until(records.jobs.values(), records.sweeps, records.launchers.values(), now)


def _run_here(found: Work, what: str) -> Job | Sweep:
    """Return a job or sweep. Raises RequestError for other work, of which nothing runs here. `what` it has not."""
    match found:
        case SentJob():
            there = f" as its job {found.sent.job}" if found.sent is not None and found.sent.job else ""
            message = f"Job {found.id} is run by the site {found.site}{there}, and has {what} here."
            raise RequestError("at_site", message, "Ask the people of that site.")
        case Flow():
            message = f"Job {found.id} is a flow, which has {what}."
            raise RequestError("is_flow", message, f"Name one of its jobs: `koala show {found.id}` lists them.")
    return found


def _refuse_other_components(job: Job, component: int | None) -> None:
    """Raises RequestError for the number of a component that the job does not have."""
    if component is not None and not 0 <= component < len(job.request.components):
        last = len(job.request.components) - 1
        advice = f"Its components are 0 to {last}." if last else "It has one component, 0."
        raise RequestError("no_such_component", f"Job {job.id} has no component {component}.", advice)


def _refuse_without_ids(counters: Counters, jobs: int) -> None:
    """Raises RequestError `ids_exhausted` if fewer ids than `jobs` are left."""
    left = FIRST_LAUNCHER - counters.next_job
    if jobs > left:
        message = f"The ids of jobs are used up: {max(0, left):,} are left in this store, and {jobs:,} are needed."
        raise RequestError("ids_exhausted", message, NEW_STORE)
