"""The engine's cost: events, the scheduling pass, recovery, memory. Medians of several runs, each with its bound.

Time is the process's own processor time: it is the engine's share of a core, whoever else is on the machine. The time
by the clock stands beside it. `--json` prints one JSON object and nothing else.
"""

import argparse
import gc
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from _grid import last_line
from _mix import INSTANCE, START, Tape, engine_of, kinds_of, record, settings
from _stage import CLUSTERS, LATER, PROCESSORS, SETTINGS, busy_grid, fill, measured, names, recover, waiting_jobs

from koalapy.engine import Engine
from koalapy.model.change import Snapshot
from koalapy.model.units import Instant


class Time(NamedTuple):
    """Seconds."""

    processor: float
    clock: float


@dataclass(frozen=True)
class Figure:
    """All runs of one figure, which is to be at most its bound, or `at_least`. `clock`: by the clock on the wall."""

    name: str
    unit: str
    bound: float
    runs: Sequence[float]
    clock: Sequence[float] = ()
    at_least: bool = False

    @property
    def median(self) -> float:
        return statistics.median(self.runs)

    @property
    def holds(self) -> bool:
        return self.median >= self.bound if self.at_least else self.median <= self.bound

    @property
    def row(self) -> str:
        return " | ".join(
            (
                f"| {self.name}",
                f"{self.median:,.5g} {self.unit}",
                f"{min(self.runs):,.5g} to {max(self.runs):,.5g}",
                f"{statistics.median(self.clock):,.5g}" if self.clock else "",
                f"{'at least' if self.at_least else 'at most'} {self.bound:,g}",
                f"{'holds' if self.holds else 'BROKEN'} |",
            )
        )

    @property
    def document(self) -> dict[str, Any]:
        return {
            "figure": round(self.median, 3), "unit": self.unit, "bound": self.bound, "at_least": self.at_least,
            "holds": self.holds, "least": round(min(self.runs), 3), "most": round(max(self.runs), 3),
            "by_the_clock": round(statistics.median(self.clock), 3) if self.clock else None,
        }  # fmt: skip


def timed(act: Callable[[], object]) -> Time:
    gc.collect()
    processor, clock = time.process_time(), time.perf_counter()
    act()
    return Time(time.process_time() - processor, time.perf_counter() - clock)


def events_per_second(tape: Tape, runs: int) -> Figure:
    """`handle` alone, and after each call the question when to wake up."""
    events, batch = sum(len(events) for _, events in tape), len(tape[0][1])
    times = [timed(partial(_play, engine_of(settings()), tape)) for _ in range(runs)]
    processor, clock = ([events / each for each in column] for column in zip(*times, strict=True))
    name = "events, one a call" if batch == 1 else f"events, {batch} a call"
    return Figure(name, "/s", 20_000, processor, clock, at_least=True)


def _play(engine: Engine, tape: Tape) -> None:
    for now, events in tape:
        engine.handle(now, events)
        engine.next_wakeup()
    if engine.records.jobs:
        raise SystemExit(f"{len(engine.records.jobs)} jobs are not over: the tape is of another engine")


def passes(waiting: int, runs: int) -> list[Figure]:
    """FPFS over the whole queue when a cluster has become idle: the first pass of an engine, and one of all others."""
    times = [_two_passes(waiting) for _ in range(runs)]
    figures = []
    for number, name in enumerate(("first pass after a start", "pass")):
        processor, clock = (
            [1000 * each for each in column] for column in zip(*(t[number] for t in times), strict=True)
        )
        figures.append(Figure(f"{name}, {waiting:,} waiting, {CLUSTERS} clusters", "ms", 100, processor, clock))
    return figures


def _two_passes(waiting: int) -> list[Time]:
    engine = busy_grid(waiting)
    moments = zip(names(), (START, LATER), strict=False)
    return [timed(partial(_claim, engine, now, measured(name, now, PROCESSORS))) for name, now in moments]


def _claim(engine: Engine, now: Instant, event: Any) -> None:
    waiting = len(engine.core.queue)
    engine.handle(now, [event])
    if len(engine.core.queue) == waiting:
        raise SystemExit("the pass claimed nothing: there was nothing to measure")


def recovery(waiting: int, running: int, runs: int) -> Figure:
    with tempfile.TemporaryDirectory(prefix="koala-bench-") as name:
        path = Path(name) / "store.sqlite"
        fill(path, waiting, running)
        times = []
        for _ in range(runs):
            again = path.with_name("again.sqlite")
            again.write_bytes(path.read_bytes())
            times.append(timed(partial(recover, again)))
    processor, clock = zip(*times, strict=True)
    return Figure(f"recovery, {waiting:,} waiting, {running:,} running", "s", 5, processor, clock)


def memory(waiting: int) -> Figure:
    """All that is allocated for the engine and its jobs (tracemalloc), after the first pass, by the jobs."""
    gc.collect()
    tracemalloc.start()
    engine = engine_of(SETTINGS, Snapshot(instance=INSTANCE, jobs=waiting_jobs(waiting, components=3)))
    engine.handle(START, [measured(name, START, 0) for name in names()])
    gc.collect()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return Figure("memory of a waiting job of 3 components", "KB", 10, [used / len(engine.core.queue) / 1000])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=1000, help="that the events are about")
    parser.add_argument("--waiting", type=int, default=10_000)
    parser.add_argument("--running", type=int, default=1_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    tapes = [record(arguments.jobs, 1, batch) for batch in (1, 10, 100)]
    figures = [events_per_second(tape, arguments.runs) for tape in tapes]
    figures += passes(arguments.waiting, arguments.runs)
    figures.append(recovery(arguments.waiting, arguments.running, arguments.runs))
    figures.append(memory(arguments.waiting))
    kinds = kinds_of(tapes[0])
    if not arguments.json:
        print("| figure | median | runs | by the clock | bound | |\n|---|---|---|---|---|---|")
        print("\n".join(figure.row for figure in figures))
        print(
            f"\nThe mix: {sum(kinds.values()):,} events: "
            + ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
        )
    detail = {"runs": arguments.runs, "mix": kinds, "figures": {each.name: each.document for each in figures}}
    last_line("engine", round(figures[0].median), "events/s", 20_000, all(each.holds for each in figures), detail)


if __name__ == "__main__":
    main()
