"""The promise about clusters that are drained or leave: nothing new goes there, and nothing of them is kept."""

from collections.abc import Sequence

from koalapy.chaos.promises.committed import Committed
from koalapy.chaos.promises.knowledge import ClusterKnowledge, Decided
from koalapy.chaos.violation import Promise, promise
from koalapy.core.remaining import remaining_on
from koalapy.engine import Engine
from koalapy.model.attempt import OwnerKind
from koalapy.model.change import Change
from koalapy.model.commands import Command, SubmitAttempt, cluster_of
from koalapy.model.events import ClusterLeft, Event
from koalapy.model.identity import AttemptId, Tag, attempt_of, is_tag, tag_of
from koalapy.model.pilot import Pilot, job_of_pilot
from koalapy.model.states import PilotState
from koalapy.world.world import World

_GOING = (PilotState.DRAINING, PilotState.CLOSING)


class Departures:
    """The checker of clusters that leave. `left`: those that ever did; `given_up`: the attempts that were there then.

    A person gives attempts up: they may run on, on a cluster that no koalad reaches.
    """

    def __init__(self, world: World, knowledge: ClusterKnowledge) -> None:
        self.left: dict[str, None] = {}
        self.given_up: dict[AttemptId, None] = {}
        self._world, self._knowledge = world, knowledge
        self._leaving: dict[str, list[AttemptId]] = {}  # not committed yet, with the attempts there
        self._pilots: dict[str, Pilot] = {}  # as they were committed, by cluster

    def is_given_up(self, tag: str) -> bool:
        instance, attempt = attempt_of(Tag(tag)) if is_tag(tag) else (None, None)
        return instance == self._world.instance and attempt in self.given_up

    # ---- koalad

    def restarted(self) -> None:
        """Begin with a koalad that knows of no change which its predecessor did not commit."""
        self._leaving = {}

    def handling(self, events: Sequence[Event], engine: Engine) -> None:
        """Check that koalapy has nothing on clusters that leave now, unless they are given up."""
        self._note_gone()
        for event in events:
            if isinstance(event, ClusterLeft) and event.name in self._knowledge.clusters:
                records = engine.records
                there = [each.id for each in records.live(event.name)]
                there += [each.id for each in records.pending_cancels.values() if each.cluster == event.name]
                allowed = not there or event.name in self._world.koalad.grid.forced
                promise(allowed, Promise.DEPARTED, event.name, "leaves with", *there)
                self._check_pilot(event.name, there)
                self._leaving[event.name] = there
                if event.name in self._world.koalad.grid.forced:
                    self.given_up |= dict.fromkeys(there)  # by a person, even if koalad is killed before it commits
                self.left[event.name] = None

    def _check_pilot(self, name: str, there: Sequence[AttemptId]) -> None:
        """Check that nothing runs any more on a pilot that leaves, unless its own attempt was given up."""
        pilot = job_of_pilot(name)
        if pilot is None or any(each.job == pilot for each in self.given_up):
            return
        instance, log = self._world.instance, self._world.program_log
        running = [each for each in there if log.running(tag_of(instance, each))]
        promise(not running, Promise.PILOT, name, "leaves, but on it run", *running)

    def committed(self, change: Change, committed: Committed) -> None:
        """Check what the change sends, and that no row of a cluster that leaves with it is kept."""
        there: list[tuple[AttemptId, str]] = []
        for entry in change.sent:
            self._check_command(entry.command)
            if isinstance(entry.command, SubmitAttempt):
                seen = self._knowledge.clusters[entry.command.cluster]
                drained = seen.settings.draining
                promise(
                    not drained, Promise.DEPARTED, entry.command.attempt, "is placed on", seen.settings.name, "drained"
                )
                there.append((entry.command.attempt, seen.settings.name))
        self._check_pilots(change, committed, there)
        for name in self._leaving:
            kept: list[object] = [
                number for number, entry in committed.outbox.items() if cluster_of(entry.command) == name
            ]
            kept += [each.id for each in committed.pending_cancels.values() if each.cluster == name]
            promise(not kept, Promise.DEPARTED, name, "has left, but its rows are kept:", *kept)
        self._note_gone()

    def _check_pilots(self, change: Change, committed: Committed, placed: Sequence[tuple[AttemptId, str]]) -> None:
        """Check that no pilot goes back, that none ends by itself while a job is on it, and what is placed there."""
        before, now = self._pilots, self._pilots | {each.name: each for each in change.pilots}
        for pilot in change.pilots:
            was = before[pilot.name].state if pilot.name in before else PilotState.BINDING
            back = pilot.state is PilotState.BINDING or (was is PilotState.CLOSING and not pilot.state.final)
            promise(was is pilot.state or not back, Promise.PILOT, pilot.name, "goes from", was, "to", pilot.state)
            why = [each.reason for each in change.jobs if each.id == pilot.id and each.reason is not None]
            if was.is_cluster and pilot.state is PilotState.CLOSING and [each.code for each in why] == ["pilot_ended"]:
                jobs = [each for each in committed.jobs.values() if not each.state.final]
                on_it = [each.id for job in jobs for each in job.live if each.cluster == pilot.name]
                promise(not on_it, Promise.PILOT, pilot.name, "ends while on it are", *on_it)
        for attempt, name in placed:
            goes = all(name in each and each[name].state in _GOING for each in (before, now))
            promise(not goes, Promise.PILOT, attempt, "is placed on", name, "which ends")
        self._pilots = {name: each for name, each in now.items() if not each.state.final}

    def _note_gone(self) -> None:
        """Note the clusters as gone: their leave is committed, or changed nothing that is stored."""
        for there in self._leaving.values():
            self.given_up |= dict.fromkeys(there)
        self._leaving = {}

    def sent(self, command: Command) -> None:
        """Check that no command goes to a cluster that has left."""
        self._check_command(command)

    def _check_command(self, command: Command) -> None:
        name = cluster_of(command)
        there = name is None or name in self._knowledge.clusters
        promise(there, Promise.DEPARTED, type(command).__name__, "goes to", name, "which has left")

    def passed(self, decided: Decided) -> None:
        """Check that a decision has left nothing on clusters that have left, and no Launcher on drained ones."""
        core = decided.engine.core
        for name in self.left:
            if name in self._knowledge.clusters:
                continue
            promise(
                not remaining_on(decided.engine.core, name).living,
                Promise.DEPARTED,
                name,
                "has left, but jobs are there",
            )
            directories = [each for on in core.pruning.directories.values() for each in on.values()]
            known = [
                name in core.information.clusters,
                bool(core.at_barrier.on(name)),
                name in core.recalled.clusters,
                name in core.startup_gate.missing,
                name in core.node_sizes,
                name in core.came_before,
                name in directories,
            ]
            promise(not any(known), Promise.DEPARTED, name, "has left, but is known:", *known)
        for name, seen in self._knowledge.clusters.items():
            if seen.settings.draining and seen.connected and seen.state is not None:
                live = decided.engine.records.live(name)
                stay = [each.id for each in live if each.owner.kind is OwnerKind.SWEEP and not each.cancelling]
                promise(not stay, Promise.DEPARTED, name, "is drained, but Launchers stay:", *stay)

    # ---- clusters

    def submitting(self, tag: Tag, cluster: str) -> None:
        """Check that a KCM submits no attempt on a cluster that has left, except one that was given up."""
        self._check_there(tag, cluster, "is submitted")

    def started(self, tag: Tag, cluster: str) -> None:
        """Check that no program starts on a cluster that has left, except one that was given up."""
        self._check_there(tag, cluster, "starts")

    def _check_there(self, tag: Tag, cluster: str, what: str) -> None:
        if attempt_of(tag)[0] == self._world.instance and cluster not in self._knowledge.clusters:
            promise(self.is_given_up(tag), Promise.DEPARTED, tag, what, "on", cluster, "which has left")
