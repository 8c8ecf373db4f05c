"""A run of chaos: actions, then the end of all faults, with every promise checked after every event; and its result."""

import hashlib
import sqlite3
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from koalapy.chaos.fault_schedule import schedule_of
from koalapy.chaos.plan import EVENTS, TRIES, Action, format_only, shrink
from koalapy.chaos.promises.watch import Note
from koalapy.chaos.site_actions import schedule_of_sites
from koalapy.chaos.stage import GridStage, SitesStage, Stage
from koalapy.chaos.user_actions import USERS
from koalapy.chaos.violation import Promise, Violation, promise
from koalapy.driver.driver import NoRecorder, Recorder
from koalapy.model.identity import InstanceId
from koalapy.model.units import HOUR, Instant
from koalapy.store.contract import Store
from koalapy.store.open import FILE_NAME, open_store
from koalapy.world.random_requests import Habits
from koalapy.world.random_sites import draw_sites
from koalapy.world.random_streams import stream
from koalapy.world.world import INSTANCE, World

SQLITE_ONE_IN = 20
QUIESCENT_WITHIN_EVENTS, QUIESCENT_WITHIN = (
    80_000,
    6 * HOUR,
)  # after the end of faults, until the world must be quiescent
QUIESCENT_RATIO = 8  # or this many times the run's events, since more jobs wait after a long run
CHECK_EVERY = 64  # events between two checks whether the world is quiescent
MOST_AT_ONE_INSTANT = 2_000  # events; only a busy loop has more
SLACK = 500  # events after the first violation, in which a shorter list of actions may show it


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of a run. `happened`: events until its end; `digest`: a hash of all that happened, in order.

    `programs` and `parameters` count starts, those of Launchers included. `faults`: the only kinds that
    were drawn; empty: all kinds. `sites`: how many there are; 1 for a grid that is none.
    """

    seed: int
    events: int
    happened: int
    actions: int
    jobs: int
    programs: int
    parameters: int
    digest: str
    faults: tuple[str, ...] = ()
    sites: int = 1
    violation: Violation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """The shortest list of actions found that shows a violation; `only` are their numbers."""

    result: Result
    only: tuple[int, ...]
    actions: tuple[Action, ...]

    @property
    def command(self) -> str:
        """The command that runs it again."""
        only = format_only(list(self.only))
        faults = f" --faults {','.join(self.result.faults)}" if self.result.faults else ""
        sites = f" --sites {self.result.sites}" if self.result.sites > 1 else ""
        seed, events = self.result.seed, self.result.events
        return f"koala sim chaos --seed {seed} --events {events}{sites}{faults} --only '{only}'"


def run(
    seed: int,
    events: int = EVENTS,
    only: Sequence[int] | None = None,
    until: int | None = None,
    patience: int | None = None,
    actions: Sequence[Action] | None = None,
    habits: Habits | None = None,
    faults: tuple[str, ...] = (),
    recorder: Recorder | None = None,
    sites: int = 1,
) -> Result:
    """Run one seed until the world is quiescent, or to the first violation.

    `actions` replace the seed's; `only` selects some by number. `until`: total number of events; then faults do not
    end. `patience`: events after the end of faults within which the world must become quiescent. `habits` replace the
    seed's users. `faults`: only these kinds, in place of the seed's mixture. `recorder` records the batches and
    decisions of koalad's engines. `sites`: of several sites, each has its own users, and neither `habits` nor
    `recorder` counts.
    """
    actions = actions_of(seed, events, faults, sites) if actions is None else actions
    chosen = actions if only is None else [actions[number] for number in only]
    patience = patience or max(QUIESCENT_WITHIN_EVENTS, QUIESCENT_RATIO * events)
    with _stage(seed, sites, habits, recorder) as make_stage:
        run = _Run(make_stage, seed, events, chosen, until, patience)
        return replace(run.run(), faults=faults, sites=sites)


def actions_of(seed: int, events: int, faults: tuple[str, ...] = (), sites: int = 1) -> list[Action]:
    """Return the actions of a run; see `schedule_of`."""
    return schedule_of(seed, events, faults) if sites == 1 else schedule_of_sites(seed, events, faults)


def prove(
    broken: Result, numbers: Sequence[int], tries: int = TRIES, on_shorter: Callable[[int], None] = lambda left: None
) -> Proof:
    """Remove actions while the same promise is broken. `on_shorter` is called with the number of remaining actions."""
    assert broken.violation is not None
    wanted = broken.violation.promise
    actions = actions_of(broken.seed, broken.events, broken.faults, broken.sites)
    before_end = broken.happened < broken.events
    until = broken.happened + SLACK if before_end else None
    best: list[Result] = [broken]

    def breaks(only: list[int]) -> bool:
        result = run(broken.seed, broken.events, only, until, faults=broken.faults, sites=broken.sites)
        same = result.violation is not None and result.violation.promise is wanted
        if same:
            best[0] = result
            on_shorter(len(only))
        return same

    only = shrink([number for number in numbers if actions[number].at <= broken.happened], breaks, tries)
    return Proof(result=best[0], only=tuple(only), actions=tuple(actions[number] for number in only))


@contextmanager
def _stage(
    seed: int, sites: int, habits: Habits | None, recorder: Recorder | None
) -> Iterator[Callable[[Note], Stage]]:
    """Make the stage of a seed, once it is given where to note what happens."""
    if sites > 1:
        yield lambda note: SitesStage(draw_sites(seed, stream(seed, "chaos/sites"), sites), note)
        return
    with _world(seed) as world:
        world.koalad.recorder = recorder or NoRecorder()
        world.habits = habits or stream(seed, "chaos/habits").choice(USERS)
        yield lambda note: GridStage(world, note)


@contextmanager
def _world(seed: int) -> Iterator[World]:
    """Make the world of a seed. One seed in twenty has a real database."""
    if seed % SQLITE_ONE_IN:
        yield World(seed)
        return
    with tempfile.TemporaryDirectory(prefix="koala-chaos-") as directory:
        disk = Disk(Path(directory), INSTANCE)
        try:
            yield World(seed, disk.open)
        finally:
            disk.close()


class _Run:
    """One run. It raises nothing: every error becomes the result's violation."""

    def __init__(
        self,
        make_stage: Callable[[Note], Stage],
        seed: int,
        events: int,
        actions: Sequence[Action],
        until: int | None,
        patience: int,
    ) -> None:
        self._seed, self._events, self._actions = seed, events, actions
        self._until, self._patience = until, patience
        self._digest = hashlib.blake2b(digest_size=16)
        self._stage = stage = make_stage(self._note)
        self._agenda, self._watch = stage.agenda, stage.watch
        self._at, self._still = stage.agenda.now, 0  # events at this instant

    def run(self) -> Result:
        violation = None
        try:
            self._inject()
            if self._until is None:
                self._end_faults()
        except Violation as broken:
            violation = broken
        except Exception as error:
            violation = _violation_of(error)
        return Result(
            seed=self._seed,
            events=self._events,
            happened=self._agenda.happened,
            actions=len(self._actions),
            jobs=self._watch.jobs,
            programs=self._watch.programs,
            parameters=self._watch.parameters,
            digest=self._digest.hexdigest(),
            violation=violation,
        )

    def _inject(self) -> None:
        for action in self._actions:
            self._step(until=action.at)
            self._note(f"{self._agenda.now} {action}")
            self._stage.perform(action)
            self._watch.check()
        self._step(until=self._events)

    def _step(self, until: int) -> None:
        agenda = self._agenda
        bound = until if self._until is None else min(until, self._until)
        while agenda.happened < bound and agenda.step():
            self._watch.check()
            self._stage.restart()
            self._check_progress()

    def _check_progress(self) -> None:
        now = self._agenda.now
        self._still = self._still + 1 if now == self._at else 0
        self._at = now
        promise(
            self._still < MOST_AT_ONE_INSTANT,
            Promise.SOUND,
            f"time makes no progress: {MOST_AT_ONE_INSTANT} events at one instant",
        )

    def _end_faults(self) -> None:
        """End all faults: every job must become final, and nothing may be left."""
        agenda = self._agenda
        self._stage.end_faults()
        last, latest = agenda.happened + self._patience, Instant(agenda.now + QUIESCENT_WITHIN)
        while not self._stage.quiescent():
            in_time = agenda.happened < last and agenda.now < latest and agenda.next_at() is not None
            if not in_time:
                broken, left = self._stage.unfinished()
                raise Violation(broken, f"after the end of all faults {left}")
            self._stage.wind_down()
            self._watch.check_without_faults()
            self._step(until=agenda.happened + CHECK_EVERY)
        self._watch.quiescent()

    def _note(self, line: str) -> None:
        self._digest.update(line.encode())


def _violation_of(error: Exception) -> Violation:
    """Return the violation for an exception of koalapy itself."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(frame.filename).name}:{frame.lineno} in {frame.name}"
    violation = Violation(Promise.SOUND, f"{type(error).__name__} at {where}: {error}")
    violation.__cause__ = error
    return violation


class Disk:
    """A store in a file. `open` closes the store of the killed koalad first, and with it its lock."""

    def __init__(self, directory: Path, instance: InstanceId) -> None:
        self._directory = directory
        self._opened: Store | None = None
        self.open()
        self.close()
        with sqlite3.connect(directory / FILE_NAME) as connection:
            connection.execute("UPDATE meta SET instance = ?", (instance,))
        connection.close()

    def open(self) -> Store:
        self.close()
        self._opened = open_store("sqlite", self._directory)
        return self._opened

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
