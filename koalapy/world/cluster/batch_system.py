"""A simulated batch system: nodes, a queue shared with local users, scheduling in cycles, faults, ends."""

from collections.abc import Callable
from random import Random

from koalapy_adapters.batch.protocol import (
    CANCELLED,
    ENDED,
    EXITED,
    HELD,
    KILLED,
    LOST,
    QUEUED,
    RUNNING,
    SUSPENDED,
    WALLTIME,
    JobStatus,
)

from koalapy.model.units import SECOND, Duration, Instant
from koalapy.world.agenda import Agenda
from koalapy.world.cluster.batch_job import Part, SimBatchJob, fit, give_back, take
from koalapy.world.cluster.batch_parameters import BatchParameters
from koalapy.world.cluster.nodes import JobProcesses, SimNode
from koalapy.world.random_streams import between

Span = tuple[Duration, Duration]
_BEGUN = (RUNNING, SUSPENDED)


class BatchSystem:
    """The batch system of a head node: its scheduling, the ends of its jobs, and its faults."""

    def __init__(self, agenda: Agenda, rng: Random, parameters: BatchParameters, nodes: list[SimNode]) -> None:
        self.agenda, self.rng, self.parameters, self.nodes = agenda, rng, parameters, nodes
        self.jobs: dict[str, SimBatchJob] = {}  # all that the queue still knows, in order of submission
        self.everything: list[SimBatchJob] = []
        self._running: dict[SimBatchJob, None] = {}  # those that it has forgotten too
        self.accounting = Accounting(agenda, rng, parameters)
        self._number = 0
        self._cycling = False
        self._down_until = Instant(0)

    # ---- commands

    @property
    def is_down(self) -> bool:
        return self.agenda.now < self._down_until

    @property
    def size(self) -> int:
        return sum(node.processors for node in self.nodes)

    def submit(
        self,
        name: str,
        processors: int,
        walltime: Duration,
        begin: Callable[[SimBatchJob], JobProcesses],
        per_node: int | None = None,
        lowest: bool = False,
        avoid: tuple[str, ...] = (),
    ) -> SimBatchJob:
        self._number += 1
        job = SimBatchJob(str(self._number), name, processors, walltime, begin, per_node, lowest=lowest, avoid=avoid)
        self.jobs[job.id] = job
        self.everything.append(job)
        self.cycle_soon()
        return job

    def cancel(self, job_id: str) -> None:
        """Cancel a job. Nothing happens if it has ended or does not exist."""
        job = self.jobs.get(job_id)
        if job is not None and job.live:
            job.cancels += 1
            self._end_it(job, CANCELLED)

    def suspend(self, job_id: str) -> bool:
        """Suspend a job, whose processors others may have then. Returns False for one whose body does not run."""
        job = self.jobs.get(job_id)
        if job is None or job.state not in _BEGUN or job.body is None or job.ending or job.restarting:
            return False
        if not job.nodes[0][0].reachable:
            return False
        job.resuming = False
        if job.state == RUNNING:
            give_back(job.nodes, self.parameters.exclusive)
            job.state, job.suspended_at = SUSPENDED, self.agenda.now
            job.body.suspend()
            self.cycle_soon()
        return True

    def resume(self, job_id: str) -> bool:
        """Let a job go on as soon as its processors are free. Returns False for one that does not run."""
        job = self.jobs.get(job_id)
        if job is None or job.state not in _BEGUN:
            return False
        job.resuming = job.state == SUSPENDED
        self.cycle_soon()
        return True

    def listed(self) -> list[SimBatchJob]:
        return [job for job in self.jobs.values() if not job.lost]

    def idle(self) -> int:
        """Return the processors on which a job could start now; 0 if the queue is strict and another job waits."""
        if self.parameters.strict and any(job.state == QUEUED and not job.stuck for job in self.listed()):
            return 0
        return sum(node.free for node in self.nodes if node.reachable)

    def unreserved(self, node: SimNode) -> int:
        """Return the free processors of a node, without those that suspended jobs need to go on."""
        if not any(job.state == SUSPENDED for job in self._running):
            return node.free
        parts = [part for job in self._running if job.state == SUSPENDED for part in job.nodes if part[0] is node]
        kept = sum(node.processors if self.parameters.exclusive else wanted for _, wanted in parts)
        return max(0, node.free - kept)

    def drop_past(self) -> None:
        """Forget jobs that the queue no longer knows, and their accounting, as clusters do each month or year."""
        self.everything = list(self.jobs.values())
        self.accounting.clear()

    # ---- faults

    def kill(self, job: SimBatchJob) -> None:
        """Kill a job, as an administrator does."""
        if job.live:
            self._end_it(job, CANCELLED)

    def restart(self, job: SimBatchJob) -> None:
        """Start a job again, even if it asked not to be restarted."""
        if job.state in _BEGUN and not job.ending:
            job.restarting = True
            self._stop(job)

    def vanish(self, job: SimBatchJob) -> None:
        """Remove a job from queue and accounting; its processes run on, or are killed later."""
        job.lost = job.forgotten = True
        self.jobs.pop(job.id, None)
        if job.state not in _BEGUN:
            self._end(job, "", None)
        elif self.rng.random() < 0.5:
            self._later((SECOND, Duration(120 * SECOND)), lambda: self._kill(job))

    def stick(self, job: SimBatchJob, code: str = "") -> None:
        """Keep a job pending for ever; `code`: the reason that the batch system reports."""
        if job.state == QUEUED:
            job.stuck, job.stuck_code = True, code

    def hold(self, job: SimBatchJob) -> None:
        if job.state == QUEUED:
            job.state = HELD

    def down(self, duration: Duration) -> None:
        """Let the servers not answer for a while; jobs run on."""
        self._down_until = Instant(max(self._down_until, self.agenda.now + duration))
        self.agenda.at(self._down_until, self.cycle_soon)

    def lose(self, node: SimNode) -> None:
        """Turn the node's power off; the batch system notices later."""
        node.lose()
        self._later(self.parameters.notices, lambda: self._notice(node))

    def cut(self, node: SimNode, duration: Duration) -> None:
        """Cut a node off; its processes run on, whatever the batch system assumes."""
        node.cut(duration)
        self._later(self.parameters.notices, lambda: self._notice(node))
        self.agenda.after(duration, lambda: self._later(self.parameters.cycle, lambda: self._returned(node)))

    def restore(self, node: SimNode) -> None:
        """Switch a node on or connect it again; processes that the batch system does not know are killed."""
        node.mend()
        self._returned(node)

    def mend(self) -> None:
        """End all faults, so that waiting jobs may start."""
        self._down_until = self.agenda.now
        for job in self.jobs.values():
            job.stuck, job.stuck_code = False, ""
            job.state = QUEUED if job.state == HELD else job.state
        for node in self.nodes:
            self.restore(node)
        self.cycle_soon()

    # ---- scheduling

    def cycle_soon(self) -> None:
        if not self._cycling:
            self._cycling = True
            self._later(self.parameters.cycle, self._cycle)

    def _cycle(self) -> None:
        self._cycling = False
        if self.is_down:
            return
        if not self._go_on():
            return
        waiting = [job for job in self.jobs.values() if job.state == QUEUED and not job.stuck]
        for job in sorted(waiting, key=lambda job: job.lowest):
            if job.after > self.agenda.now:
                self.agenda.at(Instant(job.after), self.cycle_soon)
                continue
            nodes = fit(job, self.nodes, self.parameters.exclusive)
            if nodes:
                self._start(job, nodes)
            elif self.parameters.strict:
                return

    def _go_on(self) -> bool:
        """Let resumed jobs go on whose processors are free. Returns False if one of them waits for its own."""
        resuming = [job for job in self.jobs.values() if job.resuming and not job.ending]
        for job in resuming:
            exclusive = self.parameters.exclusive
            fits = all(node.free >= (node.processors if exclusive else wanted) for node, wanted in job.nodes)
            if fits and job.body is not None and job.nodes[0][0].reachable:
                take(job.nodes, exclusive)
                self._resumed(job)
                job.state = RUNNING
                job.body.resume()
        return not any(job.resuming for job in resuming)

    def _resumed(self, job: SimBatchJob) -> None:
        """Note that a job is not suspended any more."""
        if job.suspended_at is not None:
            job.suspended_for += self.agenda.now - job.suspended_at
        job.suspended_at, job.resuming = None, False

    def _start(self, job: SimBatchJob, nodes: list[Part]) -> None:
        job.state, job.nodes = RUNNING, nodes
        self._running[job] = None
        take(nodes, self.parameters.exclusive)
        self._later(self.parameters.launch, lambda: self._launch(job, job.restarts))

    def _launch(self, job: SimBatchJob, restarts: int) -> None:
        if job.state != RUNNING or job.body is not None or job.restarts != restarts:
            return
        if not job.nodes[0][0].reachable:
            self._later(self.parameters.notices, lambda: self._launch_late(job, restarts))
            return
        body = job.body = job.begin(job)
        for node, _ in job.nodes:
            node.bodies[body] = None
        self.agenda.after(
            job.walltime, lambda: self._later(self.parameters.limit_lag, lambda: self._exceeded(job, body))
        )

    def _launch_late(self, job: SimBatchJob, restarts: int) -> None:
        """Start a job whose first node did not answer, unless it still does not; then the job is lost."""
        if job.restarts == restarts and job.body is None:
            self._lost(job)
            self._launch(job, restarts)

    def _exceeded(self, job: SimBatchJob, body: JobProcesses, counted: int = 0) -> None:
        """End a job at its walltime. `counted`: the suspended time, which is no part of it, as known before."""
        if job.body is not body or not job.live or job.ending:
            return
        stood = job.suspended_for + (self.agenda.now - job.suspended_at if job.suspended_at is not None else 0)
        if stood <= counted:
            self._end_it(job, WALLTIME)
        else:
            self.agenda.after(Duration(stood - counted), lambda: self._exceeded(job, body, stood))

    # ---- ends

    def exited(self, job: SimBatchJob, body: JobProcesses, exit_status: int) -> None:
        """End a job after its batch script: kill its remaining processes on all nodes first."""
        if job.body is body and job.live:
            self._later(self.parameters.epilogue, lambda: self._epilogue(job, body, exit_status))

    def _epilogue(self, job: SimBatchJob, body: JobProcesses, exit_status: int) -> None:
        if job.body is not body or not job.live:
            return
        self._sweep(job)
        if job.restarting:
            self._requeue(job)
        else:
            killed = exit_status > 128
            self._end(job, job.ending or (KILLED if killed else EXITED), exit_status)

    def _end_it(self, job: SimBatchJob, ending: str) -> None:
        job.ending = job.ending or ending
        if job.state not in _BEGUN or job.body is None:
            self._end(job, ending, None)
        else:
            self._stop(job)

    def _stop(self, job: SimBatchJob) -> None:
        """Send SIGTERM, and SIGKILL later."""
        body = job.body
        if body is not None and job.nodes[0][0].reachable and self.parameters.kill_wait:
            body.terminate()
        self.agenda.after(self.parameters.kill_wait, lambda: self._kill(job) if job.body is body else None)

    def _kill(self, job: SimBatchJob) -> None:
        """Kill the job unless its node cannot be reached; then the job ends when the node's silence is noticed."""
        body = job.body
        if body is not None and job.live and job.nodes[0][0].reachable:
            self._sweep(job)
            self.exited(job, body, 137)

    def _sweep(self, job: SimBatchJob) -> None:
        for node, _ in job.nodes:
            if job.body is not None and node.reachable:
                job.body.kill_on(node)

    def _notice(self, node: SimNode) -> None:
        if node.reachable:
            return
        for job in self._running_on(node):
            self._lost(job)

    def _running_on(self, node: SimNode) -> list[SimBatchJob]:
        return [job for job in self._running if any(each is node for each, _ in job.nodes)]

    def _lost(self, job: SimBatchJob) -> None:
        if job.state not in _BEGUN or not any(not node.reachable for node, _ in job.nodes):
            return
        self._sweep(job)
        if job.restarting or (not job.ending and self.rng.random() < self.parameters.reruns_lost):
            self._requeue(job)
        else:
            self._end(job, job.ending or LOST, None)

    def _returned(self, node: SimNode) -> None:
        """The node reports to the batch system: what runs there and is not known any more is killed."""
        if not node.reachable:
            return
        known = self._running_on(node)
        bodies = [job.body for job in known]
        for body in [body for body in node.bodies if body not in bodies]:
            body.kill_on(node)
            node.bodies.pop(body, None)
        for job in [job for job in known if job.body is not None and job.body not in node.bodies]:
            self._end(job, job.ending or LOST, None)  # the node is back before its loss was noticed
        for job in known:
            if job.body is not None and job.body.exit_status is not None:
                self.exited(job, job.body, job.body.exit_status)
        self.cycle_soon()

    def _requeue(self, job: SimBatchJob) -> None:
        if job.lost:
            return self._end(job, LOST, None)
        self._free(job)
        job.state, job.restarting, job.restarts = QUEUED, False, job.restarts + 1
        at = Instant(self.agenda.now + between(self.rng, *self.parameters.requeue_wait))
        job.after = at
        self.agenda.at(at, self.cycle_soon)

    def _end(self, job: SimBatchJob, ending: str, exit_status: int | None) -> None:
        ran = job.body is not None
        if job.state in _BEGUN:
            self._free(job)
        job.state, job.ending, job.exit_status, job.ended_at = ENDED, ending, exit_status, self.agenda.now
        self.accounting.enter(job, ran)
        self._later(self.parameters.listed_after, lambda: self._forget(job))
        self.cycle_soon()

    def _free(self, job: SimBatchJob) -> None:
        if job.state != SUSPENDED:
            give_back(job.nodes, self.parameters.exclusive)
        self._resumed(job)
        for node, _ in job.nodes:
            if job.body is not None and node.reachable:
                node.bodies.pop(job.body, None)
        job.nodes, job.body = [], None
        self._running.pop(job, None)

    def _forget(self, job: SimBatchJob) -> None:
        job.forgotten = True
        self.jobs.pop(job.id, None)

    def _later(self, span: Span, call: Callable[[], None]) -> None:
        self.agenda.after(between(self.rng, *span), call)


class Accounting:
    """The records of ended jobs. A record can be read only some time after the job's end."""

    def __init__(self, agenda: Agenda, rng: Random, parameters: BatchParameters) -> None:
        self._agenda, self._rng, self._parameters = agenda, rng, parameters
        self._entries: dict[str, list[tuple[Instant, JobStatus]]] = {}

    def enter(self, job: SimBatchJob, ran: bool) -> None:
        """Record a job that has just ended. `ran`: the job had been started."""
        if self._parameters.accounting and not job.lost and (ran or not self._parameters.forgets_unstarted):
            at = Instant(self._agenda.now + between(self._rng, *self._parameters.accounting_delay))
            self._entries.setdefault(job.name, []).append((at, job.status()))

    def clear(self) -> None:
        self._entries.clear()

    def newest(self, name: str) -> JobStatus | None:
        """Return the status in the newest record of this name that can be read by now. None if there is none."""
        known = [status for at, status in self._entries.get(name, ()) if at <= self._agenda.now]
        return known[-1] if known else None
