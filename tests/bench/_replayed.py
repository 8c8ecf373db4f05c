"""A replay in a process of its own: `_replayed.py TRACE PROCESSORS [count|write]` prints what it took, and its waits.

`count` has the engine's own `handle` counted, from outside of the world that calls it; `write` writes the schedule.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from koalapy.engine import Engine
from koalapy.experiments.replay.record import Ran, ReplayJob
from koalapy.experiments.replay.world import Replay
from koalapy.experiments.workloads.reading import TraceJob
from koalapy.experiments.workloads.swf import read_swf, write_swf
from koalapy.model.cluster import ClusterSettings
from koalapy.model.events import Event, WorkSubmitted
from koalapy.model.settings import Settings
from koalapy.model.units import SECOND, Duration, Instant
from koalapy.policies.placement import worst_fit
from koalapy.policies.queueing import fcfs
from koalapy.scheduler.schedule import Policies

_KEPT = 10_000  # waits, so that a long trace needs no memory for them


def main() -> None:
    trace, processors = Path(sys.argv[1]), int(sys.argv[2])
    counted = _count() if sys.argv[3:] == ["count"] else Counter()
    print(json.dumps(replayed(trace, processors, sys.argv[3:] == ["write"]) | {"counted": counted}))


def replayed(trace: Path, processors: int, writes: bool = False) -> dict[str, Any]:
    waits: list[float] = []
    written: list[TraceJob] = []
    never = 0

    def ended(ran: Ran) -> None:
        nonlocal never
        if ran.started is None:
            never += 1
        elif len(waits) < _KEPT:
            waits.append((ran.started - ran.submitted) / SECOND)
        if writes:
            written.append(_as_written(ran))

    processor, clock = time.process_time(), time.perf_counter()
    settings = Settings(clusters=(ClusterSettings(name="one", batch="slurm"),), queue="fcfs")
    world = Replay(settings, Policies(worst_fit, fcfs), {"one": processors}, _jobs(trace), ended)
    for _ in world.run():
        pass
    if writes:
        trace.with_suffix(".schedule").write_text("".join(write_swf(written, {"Version": "2.2"})))
    return {
        "processor": time.process_time() - processor, "clock": time.perf_counter() - clock, "waits": sorted(waits),
        "jobs": world.ended, "never": never, "calls": world.calls, "events": world.happened,
        "peak_mb": _peak_mb(),
    }  # fmt: skip


def _jobs(trace: Path) -> Iterator[ReplayJob]:
    for job in read_swf(trace):
        assert job.runtime is not None
        assert job.requested is not None
        yield ReplayJob(
            number=job.number, submitted=job.submitted, components=((job.processors, None),),
            runtime=job.runtime, walltime=Duration(max(job.runtime, job.requested)),
        )  # fmt: skip


def _peak_mb() -> float:
    """Peak memory of this program. getrusage would count that of its parent at the fork, too."""
    (line,) = [each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def _as_written(ran: Ran) -> TraceJob:
    assert ran.started is not None
    assert ran.ended is not None
    return TraceJob(
        number=ran.number, submitted=ran.submitted, waited=Duration(ran.started - ran.submitted),
        runtime=Duration(ran.ended - ran.started), processors=ran.processors, requested=ran.requested,
        user=ran.user, group=ran.group, queue=ran.queue,
    )  # fmt: skip


def _count() -> Counter[str]:
    counted: Counter[str] = Counter()
    handle = Engine.handle

    def counting(engine: Engine, now: Instant, events: Sequence[Event]) -> Any:
        counted["calls"] += 1
        counted["jobs"] += sum(isinstance(event, WorkSubmitted) for event in events)
        return handle(engine, now, events)

    Engine.handle = counting  # type: ignore[method-assign, assignment]
    return counted


if __name__ == "__main__":
    main()
