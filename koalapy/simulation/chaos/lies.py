"""A cluster that lies: what it says beside the truth is of no sense, or of attempts that are not its own."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from koalapy_adapters import messages as wire

from koalapy.model.identity import AttemptId, InstanceId, JobId, tag_of
from koalapy.model.units import HOUR, MILLISECOND, SECOND, Duration
from koalapy.simulation.dice import between
from koalapy.simulation.network import Json
from koalapy.simulation.world import World

POISON: tuple[Any, ...] = (
    None,
    "",
    "x",
    {},
    [],
    [[]],
    True,
    -1,
    1.5,
    2**53,
    2**63,
    10**30,
    "\x1b[2J",
    "\x00",
    "k" * 9000,
)
_BETWEEN = (Duration(20 * MILLISECOND), Duration(2 * SECOND))
_OTHER_STORE = InstanceId("0ther")


class Liar:
    """Lies to koalad now and then from `start` to `stop`, in the name of this cluster's KCM. `told`: so many lies."""

    def __init__(self, world: World, cluster: str, dice: Random) -> None:
        self.told = 0
        self._world, self._cluster, self._dice = world, cluster, dice
        self._lies = False

    def start(self) -> None:
        self._lies = True
        self._world.agenda.after(between(self._dice, *_BETWEEN), self._go_on)

    def stop(self) -> None:
        self._lies = False

    def _go_on(self) -> None:
        if not self._lies:
            return
        life = self._world.koalad.life
        link = life.links.get(self._cluster) if life is not None else None
        if link is not None and link.pipe is not None:
            self.told += 1
            link.pipe.near.on_message(self._lie())
        self._world.agenda.after(between(self._dice, *_BETWEEN), self._go_on)

    def _lie(self) -> Json:
        dice = self._dice
        make = dice.choice(_LIES)
        said = wire.to_json(make(dice, self._tag(), self._world.agenda.now))
        if dice.random() < 0.3:
            said[dice.choice([each for each in said if each != "type"])] = dice.choice(POISON)
        if make in _ANSWERS:
            return said
        number = dice.choice((1, dice.randint(1, 60), dice.randint(1, 60), dice.randint(1, 60), 2**53 - 1))
        return wire.to_json(wire.Event(number, said))

    def _tag(self) -> str:
        """Mostly of an attempt that lives, on whichever cluster."""
        engine, dice = self._world.koalad.engine, self._dice
        live = [job.attempt_of(each) for job in engine.records.jobs.values() for each in job.live] if engine else []
        if live and dice.random() < 0.9:
            return tag_of(self._world.instance, dice.choice(live))
        guessed = AttemptId(JobId(dice.randint(1, 60)), dice.randint(0, 3), dice.randint(1, 3))
        return tag_of(dice.choice((self._world.instance, _OTHER_STORE)), guessed)


def _ended(dice: Random, tag: str, now: int) -> wire.Report:
    ending = dice.choice(("exited", "killed", "failed", "left_barrier", "cancelled", "restarted"))
    return wire.Report(tag, "1", "ended", [], ended_at=now, exit_status=dice.choice((0, 1, None)), ending=ending)


def _progress(dice: Random, tag: str, now: int) -> wire.Report:
    phase = dice.choice(("started", "at_barrier", "released", "running", "nonsense"))
    return wire.Report(tag, "1", phase, [["n1", "n1", dice.choice((1, 10**6))]], at_barrier_at=now, started_at=now)


def _seen(dice: Random, tag: str, now: int) -> wire.BatchSeen:
    state = dice.choice(("queued", "held", "running", "suspended", "ended", "missing", "nonsense"))
    return wire.BatchSeen(tag, "1", now, state, exit_status=0, ending=dice.choice(("", "killed", "walltime")))


def _measured(dice: Random, tag: str, now: int) -> wire.Measured:
    idle, total = dice.choice((0, 1, 64, 10**9)), dice.choice((0, 64, 10**9))
    return wire.Measured(
        now + dice.choice((0, HOUR)), total, idle, 0, 0, dice.choice((0, 9)), [tag], [tag], [[4, idle]]
    )


def _welcome(dice: Random, tag: str, now: int) -> wire.Welcome:
    newest = dice.choice((None, 0, 10**9, 2**53))
    return wire.Welcome(1, "0.1.0", now + dice.choice((0, HOUR)), "3.6", "liar", newest_number=newest, recalled=[tag])


_FAILURE = dict(wire.Failure("no_such_queue", "request", "There is no such queue.")._asdict())
_ANSWERS: tuple[Callable[[Random, str, int], Any], ...] = (
    lambda dice, tag, now: wire.Submitted(dice.randint(1, 400), tag, "1"),
    lambda dice, tag, now: wire.Refused(dice.randint(1, 400), _FAILURE),
    lambda dice, tag, now: wire.Done(dice.randint(1, 400)),
    lambda dice, tag, now: wire.Pong(dice.randint(1, 40), now + HOUR),
    lambda dice, tag, now: wire.PutKey(tag, "key", "value"),
    _welcome,
)
_LIES: Sequence[Callable[[Random, str, int], Any]] = (
    _ended,
    _ended,
    _progress,
    _seen,
    _measured,
    lambda dice, tag, now: wire.MeasureFailed(now, _FAILURE),
    lambda dice, tag, now: wire.Gone(tag, now),
    lambda dice, tag, now: wire.Lingers(tag, now, _FAILURE),
    lambda dice, tag, now: wire.ParametersDone(dice.randint(1, 60), tag, []),
    lambda dice, tag, now: wire.ParametersBack(dice.randint(1, 60), [[1, 9]]),
    lambda dice, tag, now: wire.LaunchersSeen([[tag, 1, now]]),
    *_ANSWERS,
)
