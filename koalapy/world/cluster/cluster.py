"""One simulated cluster: head node, compute nodes, batch system, shared directory, and koalapy's processes."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from koalapy_adapters import layout
from koalapy_adapters.kcm.relay.tcp import SHOW_LIFE

from koalapy.model.cluster import ClusterSettings
from koalapy.model.errors import ClusterError, TransientError
from koalapy.model.identity import Tag, attempt_of
from koalapy.model.units import SECOND, Duration, Instant
from koalapy.world.agenda import Agenda
from koalapy.world.cluster.batch_job import SimBatchJob
from koalapy.world.cluster.batch_parameters import batch_parameters_of
from koalapy.world.cluster.batch_system import BatchSystem
from koalapy.world.cluster.environment import Environment
from koalapy.world.cluster.files import SHARED, Mount, SharedDirectory
from koalapy.world.cluster.kcm import SimKcm
from koalapy.world.cluster.local_load import LocalLoad
from koalapy.world.cluster.nodes import SimNode
from koalapy.world.cluster.shell import Shell
from koalapy.world.cluster.wrapper import SimWrapper
from koalapy.world.network import End
from koalapy.world.program_log import ProgramLog
from koalapy.world.random_streams import stream
from koalapy.world.streams import StreamLog

_SHOW_LIFE = Duration(round(SHOW_LIFE * SECOND))

LOGIN = Duration(SECOND // 2), Duration(4 * SECOND)  # duration of a login and its push
HUNG_LOGIN = Duration(20 * SECOND), Duration(60 * SECOND)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """A cluster to be built. `load`: the part of it that local users want, on average."""

    settings: ClusterSettings
    nodes: int = 4
    processors_per_node: int = 4
    load: float = 0.0
    reruns_lost: float = 0.0
    relay: str = "tcp"
    poll_s: float = 10.0
    orphan_timeout_s: float = 120.0
    grace_s: float = 5.0


class SimCluster:
    """`kcms` and `wrappers` are those that live, oldest first; `batch`, `shell`, `shared` and `head` may fail.

    `logins`: when each KCM was started, that lives or not, oldest first.
    """

    def __init__(
        self,
        agenda: Agenda,
        seed: int,
        plan: ClusterPlan,
        name: str,
        program_log: ProgramLog,
        streams: StreamLog | None = None,
    ) -> None:
        self.plan, self.name = plan, name
        self._agenda = agenda
        nodes = [
            SimNode(agenda, f"{self.name}{number}", plan.processors_per_node) for number in range(1, plan.nodes + 1)
        ]
        parameters = batch_parameters_of(plan.settings.batch, plan.settings.exclusive, plan.reruns_lost)
        self.shared = SharedDirectory(lambda: agenda.now, stream(seed, f"{self.name}/shared"))
        self.shared.between = agenda.step
        self.batch = BatchSystem(agenda, stream(seed, f"{self.name}/batch"), parameters, nodes)
        self.head = SimNode(agenda, f"{self.name}0", 0)
        self.environment = Environment(
            agenda,
            seed,
            self.name,
            self.batch,
            self.shared,
            program_log,
            self.head,
            streams or StreamLog(agenda),
        )
        self.shell = Shell(agenda, self.environment.rng("shell"), self.batch, self._start)
        self.local_load = LocalLoad(agenda, self.environment.rng("neighbours"), self.batch, plan.load)
        self._kcms: list[SimKcm] = []
        self._wrappers: list[SimWrapper] = []
        self.logins: list[Instant] = []
        self.refusals = 0  # the number of next logins to refuse
        self.logins_hang_until = Instant(0)
        self.dead = False
        self._out_of_reach_until = Instant(0)
        self.byzantine_until = Instant(0)  # until then koalad gets false messages in the name of its KCM
        self._mount = Mount(self.shared, "head", lambda: None, lambda: self.head.reachable)

    # ---- for koalad

    @property
    def login_lasts(self) -> tuple[Duration, Duration]:
        """Return the shortest and longest duration of a login that begins now."""
        return HUNG_LOGIN if self._agenda.now < self.logins_hang_until else LOGIN

    def login(self, end: End) -> None:
        """Start a KCM at this end of a connection. Raises KoalaError if the head node refuses logins."""
        outcome = "unreachable" if not self.reachable else "refused" if self.refusals else "accepted"
        self.environment.observer.dialed(outcome)
        if outcome == "unreachable":
            raise TransientError("unreachable", f"{self.name} does not answer.", "It is tried again.")
        if outcome == "refused":
            self.refusals -= 1
            raise ClusterError("authentication", f"{self.name} does not let koalad in.", "Check the key.")
        self.logins.append(self._agenda.now)
        self._kcms.append(SimKcm(self.environment, self.shell, end, len(self.logins)))

    def config(self) -> dict[str, Any]:
        """The fields of messages.ClusterConfig."""
        return config_of(self.plan)

    def stage(self, path: str) -> list[Any]:
        """Store a file of this name. Returns its entry for a Submit. Raises KoalaError if it cannot be stored."""
        kcms = [kcm for kcm in self.kcms if kcm.instance]
        if not self.reachable or not kcms:
            raise TransientError("unreachable", f"{self.name} does not answer.", "It is tried again.")
        digest = hashlib.sha256(path.encode()).hexdigest()
        self._on_head(lambda: self._store(layout.staged_file(SHARED, kcms[-1].instance, digest), path.encode()))
        return [path, digest, 0o700]

    def stat(self, tag: str, paths: Sequence[str]) -> dict[str, int]:
        """Return which of these lie in the attempt's working directory, and their sizes. Raises KoalaError."""
        if not self.reachable:
            raise TransientError("unreachable", f"{self.name} does not answer.", "It is tried again.")
        work = layout.inside(layout.attempt_directory(SHARED, attempt_of(Tag(tag))[0], tag), "work")
        there = self._on_head(lambda: [path for path in paths if self._mount.exists(f"{work}/{path}")])
        return {path: len(self._mount.read(f"{work}/{path}")) for path in there}

    def _store(self, path: str, data: bytes) -> None:
        if not self._mount.exists(path):
            layout.write_whole(path, data, files=self._mount)

    def _on_head(self, act: Callable[[], Any]) -> Any:
        try:
            if self.shared.gone:
                raise OSError(self.shared.trouble, "gone")
            return act()
        except OSError as error:
            raise ClusterError("shared_directory", f"The shared directory of {self.name} fails: {error}.") from error

    # ---- what is there

    @property
    def reachable(self) -> bool:
        """Return whether koalad's machine reaches the head node."""
        return not self.dead and self.head.reachable and self._agenda.now >= self._out_of_reach_until

    @property
    def kcms(self) -> list[SimKcm]:
        self._kcms = [kcm for kcm in self._kcms if kcm.alive]
        return self._kcms

    @property
    def wrappers(self) -> list[SimWrapper]:
        self._wrappers = [wrapper for wrapper in self._wrappers if not wrapper.quiet]
        return [wrapper for wrapper in self._wrappers if wrapper.alive]

    @property
    def quiescent(self) -> bool:
        """Return whether nothing of koalapy runs, waits or may yet come."""
        if self.dead:
            return True
        ours = [job for job in self.batch.jobs.values() if job.live and self.is_ours(job)]
        return not ours and not self.wrappers and not self._wrappers and not self.shell.late

    def drop_past(self) -> None:
        """Forget what has ended: for worlds that last for months. Only while none of our programs runs."""
        self.batch.drop_past()
        self._kcms, self._wrappers = self.kcms, self.wrappers

    def is_ours(self, job: SimBatchJob) -> bool:
        """Return whether the batch job came by a KCM."""
        return not self.local_load.owns(job)

    def foreign_job(self, name: str, processors: int, duration: Duration) -> SimBatchJob:
        """Add a job of another user or store, which koalapy must not touch."""
        return self.local_load.add(name, processors, duration)

    def die(self) -> None:
        """End for ever, with all that runs there: the inside of a pilot whose program has ended."""
        self.dead = True
        for node in (self.head, *self.batch.nodes):
            node.gone = True
            node.lose()
        for kcm in self.kcms:
            kcm.kill()
        self.batch.jobs.clear()

    # ---- what goes wrong with all of it

    def out_of_reach(self, duration: Duration) -> None:
        """koalad's machine does not reach the head node; connections that are there are the world's to cut."""
        self._out_of_reach_until = Instant(max(self._out_of_reach_until, self._agenda.now + duration))

    def cut_relay(self, duration: Duration) -> None:
        """Compute nodes do not reach their head node; the shared directory they do."""
        self.environment.cut_relay(duration)
        for wrapper in self.wrappers:
            wrapper.stall(duration)
        self._agenda.after(_SHOW_LIFE, self._show_life)

    def _show_life(self) -> None:
        for kcm in self.kcms:
            kcm.show_life()
        if not self.environment.reaches_relay:
            self._agenda.after(_SHOW_LIFE, self._show_life)

    def hang_next_agent(self) -> None:
        """The next node agent that is to prepare its program does not come back from it."""
        self.environment.agents_to_hang += 1

    def mend(self) -> None:
        """All faults stop: what is broken works again, what hung is served."""
        self._out_of_reach_until = self.byzantine_until = self._agenda.now
        self.refusals = 0
        self.environment.mend()
        self.head.mend()
        self.environment.kcm_crash_point.left = self.environment.wrapper_crash_point.left = None
        for process in [*self.kcms, *self.wrappers]:
            process.crash_point.left = None
        self.shared.mend()
        self.shell.mend()
        self.local_load.leave()
        self.batch.mend()

    def _start(self, directory: str, job: SimBatchJob) -> SimWrapper:
        wrapper = SimWrapper(self.environment, job, directory)
        self._wrappers.append(wrapper)
        return wrapper


def cluster_plan_of(settings: ClusterSettings, **fields: Any) -> ClusterPlan:
    """A plan whose `poll` is the settings' own."""
    return replace(ClusterPlan(settings=settings, poll_s=settings.poll / SECOND), **fields)


def config_of(plan: ClusterPlan) -> dict[str, Any]:
    """Return the fields of messages.ClusterConfig for the cluster of a plan."""
    settings = plan.settings
    return {
        "name": settings.name,
        "batch": settings.batch,
        "processors_per_node": settings.processors_per_node,
        "exclusive": settings.exclusive,
        "shared": SHARED,
        "relay": plan.relay,
        "poll": plan.poll_s,
        "orphan_timeout": plan.orphan_timeout_s,
        "grace": plan.grace_s,
    }
