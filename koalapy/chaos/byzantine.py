"""A Byzantine cluster: for a while, koalad receives messages in the name of its KCM that the KCM did not send.

A malformed message ends the session, whatever its subject. A well-formed one must have no effect. It is therefore
about attempts, parameters, keys and commands of other clusters, or about none that exist. As a fault, no cluster
reports falsely about its own attempts, processors and clock: koalad must trust these, and an invented end would break
promises.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from koalapy_adapters import messages as wire
from koalapy_adapters.messages import fields, kcm

from koalapy.chaos.plan import Occasional
from koalapy.model.attempt import OwnerKind
from koalapy.model.commands import ClusterCommand
from koalapy.model.identity import FIRST_LAUNCHER, AttemptId, InstanceId, JobId, tag_of
from koalapy.model.intervals import NONE
from koalapy.model.sweep import Sweep
from koalapy.model.units import MILLISECOND, MINUTE, SECOND, Duration, Instant
from koalapy.world.cluster.cluster import SimCluster
from koalapy.world.koalad.koalad_process import KoaladProcess
from koalapy.world.network import Json
from koalapy.world.random_streams import between
from koalapy.world.world import World

MALFORMED = 0.04  # share of the false messages; each of them ends a session
WRONG_NUMBER = 0.1  # share of the well-formed events
_LASTS = (Duration(2 * SECOND), MINUTE)
_BETWEEN = (Duration(5 * MILLISECOND), Duration(SECOND))
_OTHER_STORE = InstanceId("0ther")
_MOST = 2**53
_POISON: tuple[Any, ...] = (
    None,
    "x",
    {},
    [],
    [[]],
    True,
    -1,
    0.5,
    float("nan"),
    _MOST + 1,
    10**30,
    "\x1b[2J",
    "\x00",
    "k" * 9000,
    ["x"],
    [[1]],
)


def _cluster_is_byzantine(world: World, rng: Random) -> None:
    """Make a cluster Byzantine for a while, or for longer if it already is."""
    cluster = rng.choice(list(world.clusters.values()))
    former, now = cluster.byzantine_until, world.agenda.now
    cluster.byzantine_until = Instant(max(former, now + between(rng, *_LASTS)))
    if former <= now:
        ByzantineCluster(world, cluster, rng).continue_until_end()


BYZANTINE = Occasional(
    stream="chaos/lies", seeds=0.3, gap=100, acts={"cluster_is_byzantine": (_cluster_is_byzantine, 1)}
)


class ByzantineCluster:
    """Sends false messages at random instants until the cluster's `byzantine_until`. `sent` counts them.

    `own`: also about the cluster's own attempts and processors. No fault of chaos does so, since its jobs would suffer.
    """

    def __init__(self, world: World, cluster: SimCluster, rng: Random, own: bool = False) -> None:
        self.sent = 0
        self._world, self._cluster, self._rng, self._own = world, cluster, rng, own

    def continue_until_end(self) -> None:
        agenda = self._world.agenda
        if agenda.now < self._cluster.byzantine_until:
            self._send_false()
            agenda.after(between(self._rng, *_BETWEEN), self.continue_until_end)

    def _send_false(self) -> None:
        """Send a false message if koalad handles it at once; later the attempt might belong to this cluster."""
        koalad = self._world.koalad
        process = koalad.process
        if process is None or not koalad.alive or koalad.asleep or process.stuck or process.inbox:
            return
        link = process.links.get(self._cluster.name)
        pipe = None if link is None else link.pipe
        if pipe is not None:
            make = self._malformed if self._rng.random() < MALFORMED else self._well_formed
            pipe.slip_in(make(process, pipe.next_number))
            self.sent += 1

    # ---- malformed messages

    def _malformed(self, process: KoaladProcess, number: int) -> Json:
        """Make a malformed message about anything, also about the cluster's own attempts."""
        rng = self._rng
        while True:
            make = rng.choice(_KINDS_TO_SPOIL)
            message = wire.to_json(make(_Subjects(self._world, self._cluster, process, rng, own=True)))
            message[rng.choice([*message])] = rng.choice(_POISON)
            if _is_malformed(message):
                return message if make in _ANSWERS else wire.to_json(kcm.Event(number, message))

    # ---- well-formed messages

    def _well_formed(self, process: KoaladProcess, number: int) -> Json:
        rng = self._rng
        events = (*_EVENTS, *_ABOUT_ITSELF) if self._own else _EVENTS
        make = rng.choice(_ANSWERS if rng.random() < 0.25 else events)
        message = wire.to_json(make(_Subjects(self._world, self._cluster, process, rng, self._own)))
        if make in _ANSWERS:
            return message
        if rng.random() < WRONG_NUMBER:
            ahead, behind = number + rng.randint(1, 50), max(1, number - rng.randint(1, 2))
            number = rng.choice((number + 1, ahead, behind, behind, _MOST))
        return wire.to_json(kcm.Event(number, message))


def _is_malformed(message: Json) -> bool:
    try:
        wire.from_json(message)
    except fields.MessageError:
        return True
    return False


class _Subjects:
    """The subjects of false messages: with `own` all attempts, else only attempts of other clusters."""

    def __init__(
        self, world: World, cluster: SimCluster, process: KoaladProcess, rng: Random, own: bool = False
    ) -> None:
        self.rng, self.clock = rng, cluster.head.clock()
        self._world, self._name, self._engine, self._own = world, cluster.name, process.engine, own

    def tag(self) -> str:
        """Return the tag of an attempt, mostly of a live one."""
        rng, records = self.rng, self._engine.records
        living = [each for each in records.attempts.values() if not each.let_go]
        live = [each.id for each in living if self._own or each.cluster != self._name]
        live += [each.id for each in records.pending_cancels.values() if self._own or each.cluster != self._name]
        if live and rng.random() < 0.85:
            return tag_of(self._world.instance, rng.choice(live))
        store = rng.choice((self._world.instance, _OTHER_STORE))
        never = JobId(FIRST_LAUNCHER - rng.randint(1, 60))
        return tag_of(store, AttemptId(never, rng.randint(0, 3), rng.randint(1, 3)))

    def sweep(self) -> Sweep | None:
        sweeps = list(self._engine.records.sweeps.values())
        return self.rng.choice(sweeps) if sweeps and self.rng.random() < 0.9 else None

    def idle_sweep(self) -> int:
        """Return a sweep without Launcher and parameters on the cluster, or the number of none."""
        sweep = self.sweep()
        if sweep is None or sweep.out_on(self._name):
            return _NO_SWEEP
        here = any(each.owner == (OwnerKind.SWEEP, sweep.id) for each in self._engine.records.live(self._name))
        return _NO_SWEEP if here else sweep.id

    def parameters(self, sweep: Sweep | None) -> list[int]:
        """Return parameters of the sweep that other clusters hold, or parameters that the sweep does not have."""
        none = [10**6, _MOST - 1]
        if sweep is None:
            return [1, *none]
        back = dict(sweep.returned).get(self._name, NONE)  # the cluster that returned them may still report them
        out = [each for name, numbers in sweep.out if name != self._name for each in numbers - back]
        return self.rng.choices(out, k=3) if out and self.rng.random() < 0.8 else none

    def command(self) -> int:
        """Return the number of another cluster's command, or one without a command."""
        sent = self._world.koalad.store.load().outbox
        of_others = [
            each.number
            for each in sent
            if isinstance(each.command, ClusterCommand) and (self._own or each.command.cluster != self._name)
        ]
        return self.rng.choice([*of_others[-10:], 10**9])


_NO_SWEEP = FIRST_LAUNCHER - 1


def _ended(about: _Subjects) -> kcm.Report:
    ending = about.rng.choice(("exited", "killed", "walltime", "left_barrier", "restarted", "failed"))
    status = about.rng.choice((0, 1, None))
    return kcm.Report(about.tag(), "1", "ended", [], ended_at=about.clock, exit_status=status, ending=ending)


def _progress(about: _Subjects) -> kcm.Report:
    phase = about.rng.choice(("started", "at_barrier", "at_barrier", "released", "running", "nonsense"))
    nodes = [["n1", "n1", about.rng.choice((1, 10**6))]]
    return kcm.Report(about.tag(), "1", phase, nodes, at_barrier_at=about.clock, started_at=about.clock)


def _seen(about: _Subjects) -> kcm.BatchStatus:
    state = about.rng.choice(("queued", "held", "running", "suspended", "ended", "missing", "nonsense"))
    ending = about.rng.choice(("", "killed", "walltime"))
    return kcm.BatchStatus(about.tag(), "1", about.clock, state, exit_status=0, ending=ending)


def _done(about: _Subjects) -> kcm.ParametersEnded:
    job = about.sweep()
    results = [[number, 0, "exited", "n1", 1, about.clock, about.clock, 0, 0, 0, 0] for number in about.parameters(job)]
    return kcm.ParametersEnded(_NO_SWEEP if job is None else job.id, about.tag(), results)


def _back(about: _Subjects) -> kcm.ParametersReturned:
    job = about.sweep()
    ranges = [[number, number] for number in about.parameters(job)]
    return kcm.ParametersReturned(_NO_SWEEP if job is None else job.id, ranges, ranges)


def _wanted(about: _Subjects) -> kcm.ParametersWanted:
    return kcm.ParametersWanted(about.idle_sweep(), about.rng.choice((0, 1, 1000, _MOST)))


def _measured(about: _Subjects) -> kcm.Measured:
    idle, total, waiting = about.rng.choice((0, 64, 10**9)), about.rng.choice((0, 64, 10**9)), about.rng.choice((0, 9))
    return kcm.Measured(about.clock, total, idle, 0, 0, waiting, [about.tag()], [about.tag()], [[4, idle]])


def _welcome(about: _Subjects) -> kcm.Welcome:
    newest = about.rng.choice((None, _MOST))
    return kcm.Welcome(1, "0.1.0", about.clock, "3.6", "false", newest_number=newest, recalled=[about.tag()])


_FAILURE = dict(kcm.Failure("no_such_queue", "request", "There is no such queue.")._asdict())
_Make = Callable[[_Subjects], Any]
_EVENTS: tuple[_Make, ...] = (
    _ended,
    _ended,
    _progress,
    _progress,
    _seen,
    _seen,
    _done,
    _back,
    _wanted,
    lambda about: kcm.CleanedUp(about.tag(), about.clock),
    lambda about: kcm.CleanedUp(about.tag(), about.clock),
    lambda about: kcm.Stuck(about.tag(), about.clock, _FAILURE),
    lambda about: kcm.LaunchersSeen([[about.tag(), 1, about.clock]]),
    lambda about: kcm.LauncherSuspected(about.tag(), "n1"),
)
_ANSWERS: tuple[_Make, ...] = (
    lambda about: kcm.Submitted(about.command(), about.tag(), "1"),
    lambda about: kcm.Refused(about.command(), _FAILURE),
    lambda about: kcm.Done(about.command()),
    lambda about: kcm.PutKey(about.tag(), "key", "value"),
    _welcome,
)
_ABOUT_ITSELF: tuple[_Make, ...] = (_measured, _measured, lambda about: kcm.MeasureFailed(about.clock, _FAILURE))
_KINDS_TO_SPOIL: tuple[_Make, ...] = (*_EVENTS, *_ANSWERS, *_ABOUT_ITSELF)
