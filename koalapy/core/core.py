"""The one object with the engine's state: the first argument of every reaction `(core, now, event)`."""

from collections.abc import Sequence

from koalapy.core.at_barrier import AtBarrier
from koalapy.core.due import FACTS, PASS, SWEEPS, DueSteps
from koalapy.core.foreign import ForeignStatements
from koalapy.core.launchers import Launchers
from koalapy.core.leases import Leases
from koalapy.core.matching import Matching
from koalapy.core.neighbours import Neighbours
from koalapy.core.notifications import Notifications
from koalapy.core.pauses import Pauses
from koalapy.core.pilots import Pilots
from koalapy.core.prerequisites import Prerequisites
from koalapy.core.pruning import PruningState
from koalapy.core.run_list import RunList
from koalapy.core.session_state import SessionState
from koalapy.core.site_jobs import ReceivedJobs, SentJobs
from koalapy.core.startup import RecalledAttempts, StartupGate
from koalapy.core.suspended import SuspendedJobs
from koalapy.core.wait_queue import WaitQueue
from koalapy.information.kis import Information, PollUrgency
from koalapy.model.attempt import Attempt
from koalapy.model.change import Snapshot
from koalapy.model.commands import (
    AnnounceNotification,
    CollectOutput,
    Command,
    ForgetAttempt,
    GridHint,
    JoinCluster,
    LeaveCluster,
    SendNotification,
)
from koalapy.model.facts import Fact
from koalapy.model.identity import AttemptId, JobId
from koalapy.model.index import Index
from koalapy.model.lease import LeasedCluster
from koalapy.model.pilot import Pilot
from koalapy.model.records import Records
from koalapy.model.settings import Settings
from koalapy.policies.candidates import CandidatePolicy, shortest_queues

_NOTED = frozenset({ForgetAttempt, CollectOutput, AnnounceNotification, SendNotification})


class Core:
    """The engine's records with their indices, its settings, KIS, and the state of the sessions with clusters.

    `queue`, `run_list`, `launchers`, `at_barrier`, `notifications`, `prerequisites`, `sent_jobs`, `received_jobs` and
    `suspended` are indices of `records`; `pilots` has records of its own too. `limited`: by cluster, jobs that it
    refused because of a limit on submitted jobs, though some may not wait for it any more. `silent`: attempts that have
    given no sign since koalad's start. `came_before`: by cluster, the attempts that were at their barriers in a session
    that this engine has taken over from the one before. `node_sizes`: by cluster, the processors of the largest node
    that the cluster has shown, or that a Launcher has there. `nodes_changed`: whether a cluster was measured since the
    nodes were last surveyed for sweeps. `departed`: clusters that have left the grid since this koalad's start, to
    which no command goes. `facts`: those that were derived for the owners of attempts, which have not reacted yet.
    `due`: the steps of the engine that are due. `grid_hints`: by cluster of a pilot or lease, the newest hint that
    it joins or leaves the grid. `candidates`: the policy that chooses further queues for waiting components.
    """

    def __init__(self, settings: Settings, snapshot: Snapshot) -> None:
        names = [each.name for each in settings.clusters]
        self.settings = settings
        self.candidates: CandidatePolicy = shortest_queues
        self.information = Information(settings.clusters, snapshot.instance, settings.settles, settings.beside_program)
        self.due = due = DueSteps()
        self.run_list, self.queue = RunList(due), WaitQueue()
        self.at_barrier, self.launchers, self.notifications = AtBarrier(), Launchers(due), Notifications(due)
        self.prerequisites = Prerequisites(due)
        self.sent_jobs, self.received_jobs, self.suspended = SentJobs(), ReceivedJobs(due), SuspendedJobs(due)
        lives = self.information.commitments, self.at_barrier
        indices: tuple[Index, ...] = due, self.run_list, self.queue, self.notifications, self.prerequisites
        self.pilots = Pilots(due, snapshot.pilots)
        indices = *indices, self.sent_jobs, self.received_jobs, self.suspended, self.pilots
        self.records = Records(snapshot, indices, lives, (self.launchers,))
        self.prerequisites.survey(self.records.all_work(), snapshot.unreadable)
        self.limited: dict[str, dict[JobId, None]] = {}
        for job in snapshot.jobs:
            for each in job.refusals:
                if each.of_a_limit and not job.state.final:
                    self.limited.setdefault(each.cluster, {})[job.id] = None
        self.silent: dict[AttemptId, None] = {each.id: None for job in snapshot.jobs for each in job.live}
        self.silent |= {each.id: None for each in snapshot.launchers}
        self.recalled = RecalledAttempts(names)
        self.startup_gate = StartupGate(names, snapshot.work)
        self.poll_urgency = PollUrgency()
        self.foreign = ForeignStatements()
        self.came_before: dict[str, list[AttemptId]] = {}
        self.pruning = PruningState()
        self.note_commands([entry.command for entry in snapshot.outbox])
        self.sessions, self.pauses = SessionState(), Pauses()
        self.neighbours = Neighbours(due, snapshot.neighbours, snapshot.requests_seen)
        self.leases = Leases(due, snapshot.leases)
        self.grid_hints: dict[str, GridHint] = {}
        self.matching = Matching()
        self.node_sizes: dict[str, int] = {}
        self.nodes_changed = False
        self.departed: dict[str, None] = {}
        self.facts: list[Fact] = []

    def inherit(self, before: "Core") -> None:
        """Take over, from the core that this one replaces, what no store keeps and no cluster reports again.

        The sessions of that core go on. Its attempts at their barriers are known again when their cluster is connected.
        """
        self.foreign, self.pauses, self.departed = before.foreign, before.pauses, before.departed
        self.silent = {attempt: None for attempt in before.silent if attempt in self.silent}
        self.startup_gate.inherit(before.startup_gate)
        self.neighbours.inherit(before.neighbours)
        self.pilots.inherit(before.pilots)
        self.grid_hints = before.grid_hints
        self.pruning.pruned = before.pruning.pruned
        self.notifications.given_up = before.notifications.given_up
        self.information.inherit(before.information)
        self.came_before = {each.name: before.at_barrier.on(each.name) for each in self.settings.clusters}

    def note_commands(self, commands: Sequence[Command]) -> None:
        """Note the commands that a step is going to commit, or that were not confirmed when koalad started."""
        if not _NOTED.isdisjoint(map(type, commands)):
            self.pruning.note_commands(commands)
            self.notifications.note_commands(commands)

    def forget_cluster(self, cluster: str) -> None:
        """Drop what is known of a cluster that is no part of the grid any more. It has no live attempts."""
        self.departed[cluster] = None
        self.information.leave(cluster)
        self.startup_gate.reached(cluster)
        self.recalled.leave(cluster)
        self.poll_urgency.forget(cluster)
        for each in (self.foreign, self.sessions, self.pauses):
            each.forget_cluster(cluster)
        self.came_before.pop(cluster, None)
        self.limited.pop(cluster, None)
        self.node_sizes.pop(cluster, None)
        self.grid_hints.pop(cluster, None)
        self.mark_nodes_changed()

    def let_join(self, joining: Pilot | LeasedCluster) -> None:
        """Let a pilot or lease become a cluster of the grid, unless it is on the way to that."""
        self._hint(JoinCluster(joining))

    def let_leave(self, name: str) -> None:
        """Let the cluster of a pilot or lease leave the grid, or not join it, unless it is on the way to that."""
        is_there = name in self.information.clusters
        if is_there or name in self.grid_hints:
            self._hint(LeaveCluster(name))
        if not is_there:
            self.grid_hints.pop(name, None)

    def _hint(self, hint: GridHint) -> None:
        """Give a hint once: it is tried again until it is carried out."""
        if type(self.grid_hints.get(hint.name)) is not type(hint):
            self.grid_hints[hint.name] = hint
            self.records.hint(hint)

    def mark_dirty(self) -> None:
        """Let the scheduling pass look at the wait queue again."""
        self.due.steps |= PASS

    def mark_nodes_changed(self) -> None:
        """Let the nodes be surveyed for sweeps."""
        self.nodes_changed = True
        self.due.steps |= SWEEPS

    def derive(self, fact: Fact) -> None:
        """Derive a fact, to which the owner of its attempt reacts before anything else is done."""
        self.facts.append(fact)
        self.due.steps |= FACTS

    def mark_cluster_dirty(self, cluster: str) -> None:
        """Let the next step examine every job and pilot that lives on the cluster."""
        for attempt in self.records.live(cluster):
            self.mark_owner_dirty(attempt)

    def mark_owner_dirty(self, attempt: Attempt) -> None:
        """Let the next step examine the job of an attempt, or the attempt itself if it is a pilot."""
        if attempt.launcher is None:
            self.run_list.mark_dirty(attempt.id.job)
        else:
            self.launchers.mark_dirty(attempt.id)
