"""The replay of a trace under one pair of policies, from its first job to its files; several replays in parallel."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import NamedTuple

from koalapy.experiments.replay.background import BackgroundRules, background
from koalapy.experiments.replay.comparison import BusyFigures, Figures, busy_figures, figures
from koalapy.experiments.replay.gantt import By, draw
from koalapy.experiments.replay.jobs import Jobs, Survey
from koalapy.experiments.replay.record import Record
from koalapy.experiments.replay.rules import ReplayRules
from koalapy.experiments.replay.schedule import Origin, schedule
from koalapy.experiments.replay.world import Replay
from koalapy.experiments.workers import leave_signals_to_parent, signals_held
from koalapy.model.errors import KoalaError, OurError, Reason, RequestError
from koalapy.model.request import WhenBusy
from koalapy.model.settings import Settings
from koalapy.model.units import Duration, format_duration
from koalapy.scheduler.schedule import Policies


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTask:
    """One replay. `settings` name the `policies`.

    `base`: the path of its files without their suffixes; `by`: what the figure's colours stand for. `local`: the jobs
    of other users; None without any.
    """

    trace: Path
    rules: ReplayRules
    survey: Survey
    settings: Settings
    policies: Policies
    base: Path
    by: By
    local: BackgroundRules | None = None

    @property
    def queue(self) -> str:
        """The queueing policy with its bound: `fpfs:20`. FCFS allows no overtakes, so that it has none."""
        return label_of(self.settings.queue, self.settings.max_overtakes)

    @property
    def name(self) -> str:
        name = f"{self.queue}, {self.settings.placement}"
        return name if self.local is None else f"{name}, {self.when_busy}"

    @property
    def when_busy(self) -> str:
        """The conduct of jobs that find no idle processors: `wait`, or `queue, 15m, race 3`.

        The latter has their wait at barriers, and in how many queues each component may be.
        """
        if self.rules.when_busy is WhenBusy.WAIT:
            return str(WhenBusy.WAIT)
        wait, most = format_duration(self.settings.barrier_wait), self.settings.race.most
        return f"{self.rules.when_busy}, {wait}, race {most}"


def label_of(queue: str, max_overtakes: int) -> str:
    return queue if queue == "fcfs" else f"{queue}:{max_overtakes}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOutcome:
    """The outcome of a replay. `calls` of the engine's `handle`; `files` by their names.

    `reasons`: the number of jobs that never started, by reason. `busy`: None without local jobs.
    """

    queue: str
    max_overtakes: int
    placement: str
    when_busy: str
    barrier_wait: Duration
    race: int
    busy: BusyFigures | None
    figures: Figures
    calls: int
    reasons: dict[str, int]
    files: tuple[str, ...]


def run(task: ReplayTask, report: Callable[[int], None]) -> ReplayOutcome:
    """Replay the trace, and write the files. `report` is called repeatedly with the number of jobs that have ended.

    Raises RequestError if the trace or the log of local jobs has an error, and OSError if a file cannot be written.
    """
    settings, record = task.settings, Record(dict(task.rules.sizes))
    sizes, last = task.rules.sizes, task.survey.last
    local = None if task.local is None else background(task.local, sizes, last)
    replay = Replay(settings, task.policies, sizes, Jobs(task.trace, task.rules), record.add, local)
    for ended in replay.run():
        report(ended)
    files = _write(task, record)
    return ReplayOutcome(
        queue=settings.queue,
        max_overtakes=settings.max_overtakes,
        placement=settings.placement,
        when_busy=task.when_busy,
        barrier_wait=settings.barrier_wait,
        race=settings.race.most,
        busy=None if local is None else busy_figures(record, replay.local_waits, replay.local_waiting),
        figures=figures(record),
        calls=replay.calls,
        reasons=record.reasons,
        files=tuple(file.name for file in files),
    )


def _write(task: ReplayTask, record: Record) -> list[Path]:
    survey, settings = task.survey, task.settings
    origin = Origin(
        trace=task.trace.name,
        comments=survey.comments,
        begun=survey.begun,
        queue=task.queue,
        placement=settings.placement,
        note="" if task.local is None else f"when_busy {task.when_busy}, beside jobs of {task.local.log.name}",
    )
    swf = task.base.with_name(f"{task.base.name}.swf")
    title = f"{task.trace.name}: {survey.jobs:,} jobs, queueing {task.queue}, placement {settings.placement}"
    if task.local is not None:
        title = f"{title}, when_busy {task.when_busy}, beside {task.local.log.name}"
    with swf.open("w", encoding="utf-8") as file:
        file.writelines(schedule(record, origin))
    return [swf, *draw(record, title, task.by, task.base, survey.logged if len(survey.logged) else None)]


# ---- side by side


class Progress(NamedTuple):
    """The progress of one run. `finished`: the number of jobs that have ended; `outcome` once the run is complete."""

    task: int
    finished: int
    outcome: ReplayOutcome | None = None


def side_by_side(tasks: Sequence[ReplayTask], workers: int) -> Iterator[Progress]:
    """Run the replays in a process each, at most `workers` at a time, and yield their progress.

    If the iteration ends early, the processes are ended. Raises the first error of a replay.
    """
    ours, theirs = zip(*(get_context("fork").Pipe() for _ in tasks), strict=True)
    children: list[BaseProcess] = []
    try:
        with signals_held():
            for task, end in zip(tasks, theirs, strict=True):
                children.append(_child(task, end, ours, theirs))
        for end in theirs:
            end.close()
        yield from _progress(tasks, ours, workers)
    finally:
        for child in children:
            child.terminate()
            child.join()


def _progress(tasks: Sequence[ReplayTask], ends: Sequence[Connection], workers: int) -> Iterator[Progress]:
    waiting = list(ends)
    running: list[Connection] = []
    while waiting or running:
        while waiting and len(running) < workers:
            running.append(waiting.pop(0))
            running[-1].send(None)
        for end in wait(running):
            assert isinstance(end, Connection)
            index = ends.index(end)
            received = _receive(end, tasks[index])
            if isinstance(received, ReplayOutcome):
                running.remove(end)
                yield Progress(index, received.figures.jobs, received)
            else:
                yield Progress(index, received)


def _receive(end: Connection, task: ReplayTask) -> int | ReplayOutcome:
    try:
        received = end.recv()
    except EOFError as error:
        message = f"The process that replayed {task.name} has ended without a word."
        raise OurError("replay_ended", message, "Was it killed, as for want of memory?") from error
    if isinstance(received, Reason):
        raised = RequestError if received.whose == RequestError.whose else OurError
        raise raised(received.code, received.message, received.advice)
    if isinstance(received, OSError):
        raise received
    assert isinstance(received, int | ReplayOutcome)
    return received


def _child(task: ReplayTask, end: Connection, ours: Sequence[Connection], theirs: Sequence[Connection]) -> BaseProcess:
    process = get_context("fork").Process(target=_play, args=(task, end, [*ours, *theirs]), daemon=True)
    process.start()
    return process


def _play(task: ReplayTask, end: Connection, inherited: Sequence[Connection]) -> None:
    """Run a replay in a child process.

    The child closes the inherited pipe ends of the others, so that it ends when its parent has ended.
    """
    leave_signals_to_parent()
    for other in inherited:
        if other is not end:
            other.close()
    try:
        end.recv()
        end.send(run(task, end.send))
    except (EOFError, BrokenPipeError):
        os._exit(1)
    except KoalaError as error:
        end.send(error.reason)
    except OSError as error:
        end.send(error)
