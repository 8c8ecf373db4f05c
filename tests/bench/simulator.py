"""The speed of the simulator, and the memory that it needs.

Jobs a second of the first 5,000 jobs of KTH-SP2 (Parallel Workloads Archive), first come, first served on one cluster
of 100 nodes: every job through the engine's own `handle`, against AccaSim: rounds of both in turn, each in a process of
its own, reading the same file. Both make the same jobs wait as long, which is looked at. The figure is with the
schedule written to a file, as AccaSim does by default; that without stands beside it. Then delegated matchmaking over
DAS-2 and Grid'5000 at 80 % load, and the peak of memory over a trace of a million jobs.

Time is the processor's; the time by the clock stands beside it. `--quick`: fewer jobs and rounds, and the same bounds.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from _accasim import PACKAGE, AccaSim
from _grid import last_line

from koalapy.experiments.interop import catalogue
from koalapy.experiments.interop.architectures import ARCHITECTURES
from koalapy.experiments.interop.architectures.simulation import Options, Simulation
from koalapy.experiments.interop.streams import draw_set
from koalapy.experiments.workloads.reading import TraceJob
from koalapy.experiments.workloads.swf import read_swf, write_swf
from koalapy.model.units import SECOND, Duration

KTH = Path(__file__).resolve().parents[2].parent / "shared/workloads/KTH-SP2-1996-2.1-cln.swf.xz"
BOUND, AIM = 5, 10  # times as many jobs a second
DMM_BOUND, DMM_AIM = 3_000, 10_000
PEAK_BOUND_MB = 1024
LOAD = 0.8
NODES, MANY_NODES = 100, 1000
Ran = dict[str, list[dict[str, Any]]]  # by way, what each round measured
_SIZES = (1, 1, 1, 1, 2, 2, 4, 4, 8, 16, 32, 64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--rounds", type=int, help="of each")
    parser.add_argument("--long", type=int, help="jobs of the long trace, a million by default")
    arguments = parser.parse_args()
    rounds = arguments.rounds or (2 if arguments.quick else 5)
    with tempfile.TemporaryDirectory(prefix="koala-bench-") as place:
        against = against_accasim(Path(place), 1000 if arguments.quick else 5000, rounds)
        dmm = delegated(rounds, most=2000 if arguments.quick else None)
        long = long_trace(Path(place), arguments.long or (20_000 if arguments.quick else 1_000_000))
    detail = {"accasim": against, "dmm": dmm, "long": long}
    holds = against["holds"] is not False and dmm["holds"] and long["holds"]
    last_line("simulator", against.get("times"), "times AccaSim's jobs a second", BOUND, holds, detail)  # type: ignore[arg-type]


# ---- against AccaSim


def against_accasim(place: Path, jobs: int, rounds: int) -> dict[str, Any]:
    if not KTH.exists():
        print(f"skipped: the log {KTH.name} is not in {KTH.parent}")
        return {"holds": None, "skipped": f"no {KTH.name}"}
    trace = place / "kth.swf"
    _write(trace, (_as_both_take_it(job) for job in itertools.islice(read_swf(KTH), jobs)))
    other = AccaSim(place, NODES)
    ways: dict[str, Callable[..., dict[str, Any]]] = {
        "koalapy": lambda *options: replayed(trace, NODES, *options),
        "accasim": lambda *options: other.run(trace, *options),
    }
    counted = replayed(trace, NODES, "count")
    print(f"KTH-SP2, the first {jobs:,} jobs, FCFS on {NODES} nodes, {counted['calls']:,} calls of `handle`; {PACKAGE}")
    found = {}
    for name, options in (("schedule written", ("write",)), ("nothing written", ())):
        ran: Ran = {way: [] for way in ways}
        for number in range(rounds):
            for way in sorted(ways, reverse=bool(number % 2)):
                ran[way].append(ways[way](*options))
        _check(jobs, ran, counted)
        found[name] = _compared(jobs, ran, name)
    times = found["schedule written"]["times"]
    print(f"  at least {BOUND} times, {AIM} aimed at")
    return {
        "times": times, "bound": BOUND, "aim": AIM, "holds": times >= BOUND, "jobs": jobs, "calls": counted["calls"],
    } | found  # fmt: skip


def _check(jobs: int, ran: Ran, counted: dict[str, Any]) -> None:
    """Every job went through `handle`, in every round; and in both the jobs have waited for the same times."""
    found = counted["counted"]
    if found != {"calls": counted["calls"], "jobs": jobs} or found["calls"] < jobs:
        raise SystemExit(f"the engine was called {found} for {jobs} jobs, the world says {counted['calls']} calls")
    if any(each["calls"] != found["calls"] or each["jobs"] != jobs for each in ran["koalapy"]):
        raise SystemExit("a round called the engine another number of times")
    waits = [each["waits"] for each in (*ran["koalapy"], *ran["accasim"])]
    if len(waits[0]) != jobs or any(each != waits[0] for each in waits):
        raise SystemExit(f"the schedules differ: mean waits are {sorted({statistics.mean(each) for each in waits})} s")


def _compared(jobs: int, ran: Ran, name: str) -> dict[str, Any]:
    rates = {way: statistics.median(jobs / each["processor"] for each in rounds) for way, rounds in ran.items()}
    by_clock = {way: statistics.median(jobs / each["clock"] for each in rounds) for way, rounds in ran.items()}
    wait = {way: statistics.mean(rounds[0]["waits"]) for way, rounds in ran.items()}
    times = rates["koalapy"] / rates["accasim"]
    for way, rate in rates.items():
        reported = f"{rate:9,.0f} jobs/s ({by_clock[way]:,.0f} by the clock), mean wait {wait[way]:,.1f} s"
        print(f"  {name}: {way:8}{reported}")
    print(f"  {name}: {times:.2f} times")
    return {
        "times": times, "jobs_per_second": rates, "by_the_clock": by_clock, "mean_wait_s": wait,
        "all": {way: [jobs / each["processor"] for each in rounds] for way, rounds in ran.items()},
    }  # fmt: skip


def replayed(trace: Path, processors: int, *options: str) -> dict[str, Any]:
    argv = [sys.executable, str(Path(__file__).with_name("_replayed.py")), str(trace), str(processors), *options]
    ran = subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def _as_both_take_it(job: TraceJob) -> TraceJob:
    """A second long at least, and never longer than its walltime.

    AccaSim ends nothing at its walltime, and after a job that takes no time it looks at its queue with the next event
    only: three such jobs of the log would make later ones wait for nothing.
    """
    assert job.runtime is not None
    runtime = max(job.runtime, SECOND)
    return TraceJob(
        number=job.number, submitted=job.submitted, processors=job.processors, runtime=runtime,
        requested=max(runtime, job.requested or Duration(0)), user=job.user, group=job.group,
    )  # fmt: skip


# ---- delegated matchmaking


def delegated(rounds: int, most: int | None) -> dict[str, Any]:
    """One day of jobs for the 20 clusters of both grids, at one load; drawing them does not count."""
    system = catalogue.system("das2-grid5000")
    loads = dict.fromkeys(system.grids.values(), LOAD)
    jobs = draw_set(system, loads, seed=1, number=1)[:most]
    rates, by_clock = [], []
    for _ in range(rounds):
        simulation = Simulation(system, jobs, Options(), seed=1)
        processor, clock = time.process_time(), time.perf_counter()
        ARCHITECTURES["dmm"](simulation)
        rates.append(len(jobs) / (time.process_time() - processor))
        by_clock.append(len(jobs) / (time.perf_counter() - clock))
    rate = statistics.median(rates)
    print(f"DMM over {len(system.clusters)} clusters, load {LOAD:.0%}, {len(jobs):,} jobs")
    print(f"  {rate:,.0f} jobs/s a core ({statistics.median(by_clock):,.0f} by the clock); at least {DMM_BOUND:,}")
    return {"jobs_per_second": rate, "bound": DMM_BOUND, "aim": DMM_AIM, "holds": rate >= DMM_BOUND, "jobs": len(jobs)}


# ---- a long trace


def long_trace(place: Path, jobs: int) -> dict[str, Any]:
    trace = place / "long.swf"
    _write(trace, _drawn(jobs))
    ran = replayed(trace, MANY_NODES)
    peak, rate = ran["peak_mb"], jobs / ran["processor"]
    print(f"A trace of {jobs:,} jobs on {MANY_NODES:,} processors, {ran['calls']:,} calls, {rate:,.0f} jobs/s")
    print(f"  {peak:,.0f} MB at its peak; at most {PEAK_BOUND_MB:,}")
    if ran["jobs"] != jobs or ran["never"]:
        raise SystemExit(f"{ran['jobs']} of {jobs} jobs are over, {ran['never']} never started")
    return {
        "peak_mb": peak,
        "bound": PEAK_BOUND_MB,
        "holds": peak < PEAK_BOUND_MB,
        "jobs": jobs,
        "jobs_per_second": rate,
    }


def _drawn(jobs: int) -> Iterator[TraceJob]:
    """Sizes of a few processors, exponential runtimes and gaps, such that they bring the load."""
    rng = Random(1)
    mean_runtime_s = 600.0
    gap_s = statistics.mean(_SIZES) * mean_runtime_s / (MANY_NODES * LOAD)
    at = 0.0
    for number in range(1, jobs + 1):
        at += rng.expovariate(1 / gap_s)
        runtime = Duration(round(rng.expovariate(1 / mean_runtime_s)) * SECOND)
        yield TraceJob(
            number=number, submitted=Duration(round(at) * SECOND), processors=rng.choice(_SIZES), runtime=runtime,
            requested=Duration(2 * runtime), user=str(rng.randrange(100)),
        )  # fmt: skip


def _write(trace: Path, jobs: Iterator[TraceJob]) -> None:
    with trace.open("w") as file:
        file.writelines(write_swf(jobs, {"Version": "2.2"}))


if __name__ == "__main__":
    main()
