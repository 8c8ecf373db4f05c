"""Runs maintenance tasks, one at a time: by cron, by command, and again if a run was missed."""

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import tzinfo
from typing import Any

import structlog
from apscheduler.events import EVENT_JOB_MAX_INSTANCES
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler
from pydantic import ValidationError
from tzlocal import get_localzone

from koalapy.common.registry import load, registered
from koalapy.config.hours import parse_hours
from koalapy.config.maintenance import MAINTENANCE, Maintenance
from koalapy.model.counts import counted_as
from koalapy.model.errors import KoalaError, RequestError, TransientError
from koalapy.model.units import DAY, Duration, Instant, format_duration
from koalapy.runtime.maintenance.cron import WallClock
from koalapy.runtime.maintenance.task import Koalad, Outcome, Task
from koalapy.store.contract import MaintenanceRun

_LOG = structlog.get_logger()
_MADE_UP = Duration(DAY)  # a run that was missed by more than this is not made up
_LEAP = Duration(32 * DAY)  # time since the last maintenance that suggests a wrong clock
_BY_HAND = "0 0 * * *"
_POLL_S, _LOOKS = 1.0, 120  # between looks at the clusters, and their number, after koalad's start
_CUT_OFF = "koalad ended before it was done."
_S = 86_400


@dataclass(frozen=True, slots=True)
class Entry:
    """A maintenance task of the grid file, with its next time and its last run."""

    entry: Maintenance
    next_at: Instant | None
    last: MaintenanceRun | None


class Runner:
    """Runs the grid file's maintenance. Call `start` when koalad has its store.

    Raises RequestError if a task cannot be loaded.
    """

    def __init__(self, entries: Sequence[Maintenance], koalad: Koalad, zone: tzinfo | None = None) -> None:
        self._koalad, self._zone = koalad, zone or get_localzone()
        self._take(entries)
        self._busy = threading.Lock()
        self._left_out: Counter[str] = Counter()
        self._last = {run.name: run for run in koalad.store.maintenance()}
        self._scheduler = BackgroundScheduler(
            timezone=self._zone,
            executors={"default": ThreadPoolExecutor(1)},
            job_defaults={"coalesce": True, "max_instances": 1, "misfire_grace_time": _S},
        )
        self._scheduler.add_listener(self._overlapped, EVENT_JOB_MAX_INSTANCES)

    def start(self) -> None:
        """Begin to run by cron. Missed runs are made up at once."""
        if not self._entries:
            return
        self._plan()
        for name in self.missed():
            self._scheduler.add_job(self._by_cron, args=[name, True], id=f"{name} made up")
        self._scheduler.start()

    def replace(self, entries: Sequence[Maintenance]) -> None:
        """Run these entries from now on. A run that goes on is not disturbed, and no missed run is made up.

        Raises RequestError if a task cannot be loaded; then nothing has changed.
        """
        if [*entries] == [*self._entries.values()]:
            return
        self._take(entries)
        self._scheduler.remove_all_jobs()
        self._plan()
        if entries and not self._scheduler.running:
            self._scheduler.start()

    def check(self, entries: Sequence[Maintenance]) -> None:
        """Raises RequestError if a task of these entries cannot be loaded."""
        for each in entries:
            _load(each.task)

    def _take(self, entries: Sequence[Maintenance]) -> None:
        tasks = {each.task: _load(each.task) for each in entries}
        triggers = {each.called: WallClock(parse_hours(each.cron), self._zone) for each in entries}
        self._entries, self._tasks, self._triggers = {each.called: each for each in entries}, tasks, triggers

    def _plan(self) -> None:
        for name, trigger in self._triggers.items():
            self._scheduler.add_job(self._by_cron, trigger, args=[name], id=name)

    def stop(self) -> None:
        """Begin no more runs. A running task sees `ending` set."""
        self._koalad.ending.set()
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    # ---- queries

    def missed(self) -> list[str]:
        """Return the names of the entries whose last run was missed or cut off less than a day ago.

        An entry that has never run has missed nothing.
        """
        now = self._koalad.now()
        return [name for name in self._entries if (last := self._last.get(name)) and self._has_missed(name, last, now)]

    def _has_missed(self, name: str, last: MaintenanceRun, now: Instant) -> bool:
        if last.began > now:
            return False  # the clock was set back
        if last.ended is None and now - last.began <= _MADE_UP:
            return True
        due = self._triggers[name].after(max(last.began, Instant(now - _MADE_UP)))
        return due is not None and due <= now

    def entries(self) -> list[Entry]:
        now = self._koalad.now()
        return [
            Entry(each, self._triggers[name].after(now), self._last.get(name)) for name, each in self._entries.items()
        ]

    def troubles(self) -> list[str]:
        """Return a sentence for each entry whose last run did not succeed."""
        return [
            f"Maintenance {name} did not go well: {run.message} `koala maintenance run {name}` tries it again."
            for name, run in sorted(self._last.items())
            if name in self._entries and not run.well and run.ended is not None
        ]

    # ---- runs

    def run(self, name: str, dry: bool, options: Mapping[str, Any]) -> MaintenanceRun:
        """Run an entry of the grid file, or any registered task, now.

        Raises RequestError for an unknown task or unknown options, and TransientError while another task runs.
        """
        entry = self._entry(name, options)
        if not self._busy.acquire(blocking=False):
            raise TransientError("busy", "Another maintenance task is running.", "Try again when it is done.")
        try:
            task = self._tasks.get(entry.task) or _load(entry.task)
            recorded = not dry and name in self._entries and not options
            return self._run(entry, task, dry, recorded)
        finally:
            self._busy.release()

    def _entry(self, name: str, options: Mapping[str, Any]) -> Maintenance:
        known = self._entries.get(name)
        if known is not None and not options:
            return known
        task = known.task if known is not None else name
        # In the form of the grid file, since a duration would become a number.
        given = {} if known is None else known.model_dump(mode="json", include={*known.options})
        values = {**{key: value for key, value in given.items() if value}, "task": task, "cron": _BY_HAND, **options}
        try:
            return Maintenance.model_validate(values, context={"policies": {MAINTENANCE: list(registered(_GROUP))}})
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            where, context = ".".join(str(part) for part in first["loc"]), first.get("ctx", {})
            message = f"{where or task} {context.get('what', first['msg'])}."
            raise RequestError("bad_task", message, str(context.get("advice", "See docs/maintenance.md."))) from error

    def _by_cron(self, name: str, made_up: bool = False) -> None:
        """Run an entry at its time.

        A run that is made up continues one that was cut off, and repeats nothing that it did. It begins once clusters
        are connected, since most tasks need them, if the run is still missed then.
        """
        if made_up:
            self._await_clusters()
            if name not in self.missed():
                return
        entry, last = self._entries.get(name), self._last.get(name)
        if entry is None:
            return  # the grid file does not have it any more
        began = last.began if made_up and last is not None and last.ended is None else None
        with self._busy:
            if not self._koalad.ending.is_set():
                self._run(
                    entry,
                    self._tasks.get(entry.task) or _load(entry.task),
                    dry=False,
                    recorded=True,
                    guarded=True,
                    began=began,
                )

    def _await_clusters(self) -> None:
        """Return once no cluster has a trouble, after two minutes at most, or when koalad ends."""
        with suppress(KoalaError):
            for _ in range(_LOOKS):
                if all(each.summary.trouble is None for each in self._koalad.clusters()):
                    return
                if self._koalad.ending.wait(_POLL_S):
                    return

    def _run(
        self,
        entry: Maintenance,
        task: Task,
        dry: bool,
        recorded: bool,
        guarded: bool = False,
        began: Instant | None = None,
    ) -> MaintenanceRun:
        """Run the task, and record the result. `began`: when the run began that this one continues."""
        name, now = entry.called, self._koalad.now()
        run = MaintenanceRun(name=name, task=entry.task, began=now if began is None else began, message=_CUT_OFF)
        koalad = replace(self._koalad, began=run.began)
        self._left_out.pop(name, None)
        leap = self._leap(now) if guarded and entry.task.startswith("prune-") else None
        try:
            if recorded:
                self._record(run)
            outcome = leap or task(koalad, entry, dry)
        except KoalaError as error:
            outcome = Outcome(False, str(error))
        except Exception as error:
            _LOG.exception("maintenance_broke", name=name)
            outcome = Outcome(False, f"It broke ({type(error).__name__}: {error}). Report this, with koalad's log.")
        left_out = self._left_out.pop(name, 0)
        if left_out:
            runs = counted_as(left_out, "run was", "runs were")
            longer = f"It took longer than its period: {runs} left out. Let it run less often."
            outcome = Outcome(outcome.well, f"{outcome.message} {longer}")
        run = replace(run, ended=koalad.now(), well=outcome.well, message=outcome.message)
        _LOG.info("maintenance_ran", name=name, well=run.well, message=run.message, dry=dry)
        if recorded and not koalad.ending.is_set():
            try:
                self._record(run)
            except KoalaError as error:
                run = replace(run, well=False, message=f"{run.message} It could not be recorded: {error}")
                self._last[name] = run
        return run

    def _record(self, run: MaintenanceRun) -> None:
        """Record the run on the driver's thread, which alone writes to the store."""
        self._koalad.ask(lambda engine: self._koalad.store.record_maintenance(run))
        self._last[run.name] = run  # reported only after it is stored, so that a kill cannot make it wrong

    def _leap(self, now: Instant) -> Outcome | None:
        """Return the outcome that replaces pruning if the clock may have jumped ahead, else None.

        It does so once, since this run is recorded.
        """
        newest = max((run.began for run in self._last.values()), default=None)
        if newest is None or now - newest <= _LEAP:
            return None
        days = format_duration(Duration((now - newest) // DAY * DAY))
        message = f"Nothing is pruned: by this host's clock the last maintenance was {days} ago."
        return Outcome(False, f"{message} If the clock is right, the next run prunes; if not, set it right before.")

    def _overlapped(self, event: Any) -> None:
        self._left_out[event.job_id] += 1
        _LOG.warning("maintenance_overlaps", name=event.job_id)


_GROUP = f"koalapy.{MAINTENANCE}"


def _load(name: str) -> Task:
    task: Task = load(_GROUP, name)
    return task
