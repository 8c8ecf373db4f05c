"""One object with all that the deciding side knows: the first argument of every reaction `(core, now, event)`."""

from koalapy.core.at_barrier import AtBarrier
from koalapy.core.foreign import ForeignStatements
from koalapy.core.launchers import Launchers
from koalapy.core.pauses import Pauses
from koalapy.core.pruning import PruningState
from koalapy.core.recalled import RecalledAttempts
from koalapy.core.run_list import RunList
from koalapy.core.session_state import SessionState
from koalapy.core.startup_gate import StartupGate
from koalapy.core.wait_queue import WaitQueue
from koalapy.information.kis import Information
from koalapy.information.poll_urgency import PollUrgency
from koalapy.model.change import Snapshot
from koalapy.model.facts import Fact
from koalapy.model.identity import AttemptId
from koalapy.model.records import Records
from koalapy.model.settings import Settings


class Core:
    """Records with their indices, settings, information, and what sessions with clusters have shown.

    `queue`, `run_list`, `launchers` and `at_barrier` are indices of `records`. `silent`: attempts of which nothing has
    been heard since the start. `came_before`: per cluster the attempts that were at their barriers in a session that
    goes on, of the engine that this one replaced. `node_sizes`: processors of the largest node that each cluster has
    shown, or that a Launcher has there. `dirty`: something has changed that the scheduling pass reads.
    `nodes_changed`: something was measured since the nodes were last surveyed for sweeps. `facts`: derived from the
    present event, for the owners of attempts.
    """

    def __init__(self, settings: Settings, snapshot: Snapshot) -> None:
        names = [each.name for each in settings.clusters]
        self.settings = settings
        self.information = Information(settings.clusters, snapshot.instance, settings.settles)
        self.run_list, self.queue, self.launchers = RunList(), WaitQueue(), Launchers()
        self.at_barrier = AtBarrier()
        lives = self.information.commitments, self.at_barrier
        self.records = Records(snapshot, (self.run_list, self.queue, self.launchers), lives)
        self.silent: dict[AttemptId, None] = {each.id: None for job in snapshot.jobs for each in job.live}
        self.recalled = RecalledAttempts(names)
        self.startup_gate = StartupGate(names, snapshot.jobs)
        self.poll_urgency = PollUrgency()
        self.foreign = ForeignStatements()
        self.came_before: dict[str, list[AttemptId]] = {}
        self.pruning = PruningState()
        self.pruning.note_commands(entry.command for entry in snapshot.outbox)
        self.sessions, self.pauses = SessionState(), Pauses()
        self.node_sizes: dict[str, int] = {}
        self.nodes_changed = False
        self.facts: list[Fact] = []
        self.dirty = True

    def inherit(self, before: "Core") -> None:
        """Take over what no store keeps, and no cluster says again, of the core that this one replaces.

        Its sessions go on: who had come to a barrier in one of them is there, once the cluster counts as connected.
        """
        self.foreign = before.foreign
        self.pruning.pruned = before.pruning.pruned
        self.information.inherit(before.information)
        self.came_before = {each.name: before.at_barrier.on(each.name) for each in self.settings.clusters}

    def mark_dirty(self) -> None:
        """Let the scheduling pass look at the wait queue again."""
        self.dirty = True

    def mark_cluster_dirty(self, cluster: str) -> None:
        """Let the run list's step examine every job that lives on the cluster."""
        for attempt in self.records.live(cluster):
            self.run_list.mark_dirty(attempt.id.job)
