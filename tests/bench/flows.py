"""The processor time that koalad's engine and store need for each job of a flow, beside that for single jobs.

10,000 jobs in 100 levels, each job after three of the level before, submitted in one event; and the same jobs by
themselves, 100 in an event. Engine and store (SQLite) are the real ones; the cluster's reports are made here, without
programs, and its commands are not kept. Rounds of both in turn. `--quick`: 20 levels. Then a chain of 1,000 jobs,
beside as many that are submitted one after the other. `--dagman CONTAINER`: HTCondor's DAGMan on the same graph, of
nodes that do nothing (tests/bench/condor-container makes the container).
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from _condor import Condor
from _grid import last_line

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from engine_play import Play, component, from_its_own

from koalapy.model.commands import Command
from koalapy.model.events import AttemptCleanedUp, AttemptSubmitted, Event, WorkSubmitted
from koalapy.model.identity import JobId
from koalapy.model.request import FlowJob, Request
from koalapy.model.states import JobState
from koalapy.model.units import SECOND, Duration, Instant
from koalapy.store.open import open_store

WIDTH, CHAIN, BOUND = 100, 1_000, 1.3


class Timed(Play):
    """A grid played by hand whose engine and store are timed. `seconds`: of their processor time."""

    def __init__(self, place: Path) -> None:
        self.seconds = 0.0
        self._store = open_store("sqlite", place)
        super().__init__(sizes={"alpha": 4 * WIDTH})

    def show(self, *events: Event, after: Duration = Duration(1000)) -> list[Command]:
        """Handle and commit the events. Keeps the last record of each job."""
        self.now = Instant(self.now + after)
        events = tuple(from_its_own(self.engine, event) for event in events)
        begun = time.process_time()
        step = self.engine.handle(self.now, events)
        self._store.commit(step)
        self.seconds += time.process_time() - begun
        self.jobs |= {job.id: job for job in step.jobs}
        return list(step.commands)

    def play(self, jobs: Sequence[JobId]) -> None:
        """Let these jobs run to their ends, each report of all of them in one batch."""
        attempts = [attempt for job in jobs for attempt in self.attempts(job)]
        assert len(attempts) == len(jobs), [self.job(job).state for job in jobs[:3]]
        self.show(*(AttemptSubmitted(attempt=each, batch_id=str(each)) for each in attempts))
        self.show(*(self.report(each, "at_barrier", at_barrier_at=self.now) for each in attempts))
        self.show(*(self.report(each, "running", released_at=self.now, started_at=self.now) for each in attempts))
        ended = {"exit_status": 0, "ending": "exited"}
        self.show(*(self.report(each, "ended", ended_at=self.now, **ended) for each in attempts))
        self.show(*(AttemptCleanedUp(attempt=each) for each in attempts))
        self.now = Instant(self.now + SECOND)
        self.show(self.measurement("alpha"))

    def close(self) -> None:
        self._store.close()


def one(number: int) -> Request:
    return Request(name=f"j{number}", components=(component(1),))


def prerequisites(number: int, width: int) -> tuple[int, ...]:
    """Return up to three jobs of the level before, by their numbers."""
    before = (number // width - 1) * width
    return tuple(before + (7 * number + more) % width for more in range(min(3, width))) if number >= width else ()


def single(place: Path, levels: int, width: int = WIDTH) -> float:
    """Return the seconds for jobs that are submitted by themselves, a level at a time."""
    play = Timed(place)
    for level in range(levels):
        numbers = range(level * width, (level + 1) * width)
        play.show(*(WorkSubmitted(request=one(number), owner="me", key=str(number)) for number in numbers))
        play.play([JobId(number + 1) for number in numbers])
    return over(play, levels * width)


def flow(place: Path, levels: int, width: int = WIDTH) -> float:
    """Return the seconds for the same jobs in one flow."""
    play = Timed(place)
    jobs = tuple(FlowJob(request=one(number), after=prerequisites(number, width)) for number in range(levels * width))
    play.show(WorkSubmitted(request=Request(name="flow", components=(), jobs=jobs), owner="me", key="flow"))
    for level in range(levels):
        play.play([JobId(number + 2) for number in range(level * width, (level + 1) * width)])
    return over(play, levels * width)


def both(levels: int, width: int = WIDTH) -> tuple[float, float]:
    """Return the seconds for single jobs, and for the same jobs in a flow; print those of each job."""
    with tempfile.TemporaryDirectory() as alone, tempfile.TemporaryDirectory() as together:
        by_itself, in_flow = single(Path(alone), levels, width), flow(Path(together), levels, width)
    per_job = [f"{1000 * each / (levels * width):.3f} ms" for each in (by_itself, in_flow)]
    shape = "chain" if width == 1 else "flow"
    print(f"a single job {per_job[0]}, a job of a {shape} {per_job[1]}: {in_flow / by_itself:.2f} x", flush=True)
    return by_itself, in_flow


def over(play: Timed, jobs: int) -> float:
    assert len(play.jobs) == jobs
    assert {job.state for job in play.jobs.values()} == {JobState.DONE}
    assert not play.engine.records.flows
    play.close()
    return play.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dagman", metavar="CONTAINER", help="with HTCondor")
    arguments = parser.parse_args()
    levels = 20 if arguments.quick else 100
    ratios, seconds = [], []
    for _ in range(arguments.rounds):
        by_itself, in_flow = both(levels)
        ratios.append(in_flow / by_itself)
        seconds.append([round(by_itself, 3), round(in_flow, 3)])
    chain = [both(CHAIN, width=1) for _ in range(arguments.rounds)]
    figure = round(statistics.median(ratios), 3)
    detail: dict[str, object] = {"jobs": levels * WIDTH, "levels": levels, "seconds": seconds, "chain_seconds": chain}
    if arguments.dagman:
        graph = {number: prerequisites(number, WIDTH) for number in range(levels * WIDTH)}
        elapsed, work = Condor(arguments.dagman).graph(graph)
        print(f"DAGMan, for nodes that do nothing: {elapsed:.0f} s, of which {work:.1f} s at work", flush=True)
        detail["dagman_seconds"] = [elapsed, work]
    else:
        print("DAGMan is not compared: no --dagman CONTAINER is given", flush=True)
    last_line("flows", figure, "times a single job's processor time", BOUND, figure <= BOUND, detail)


if __name__ == "__main__":
    main()
