"""AccaSim, a simulator of workload managers: from the package index, in an environment of its own.

Of its dependencies those are installed that simulating needs; matplotlib and scipy serve its diagrams.
"""

import json
import subprocess
import sys
import venv
from pathlib import Path

PACKAGE = "accasim==1.1.3"
_NEEDED = (PACKAGE, "sortedcontainers==2.4.0", "psutil")
_PROGRAM = """
import collections, collections.abc, json, os, sys, time
collections.Mapping = collections.abc.Mapping  # Python 3.10 took it away
from accasim.base.allocator_class import FirstFit
from accasim.base.scheduler_class import FirstInFirstOut
from accasim.base.simulator_class import Simulator

def spent():
    return sum(os.times()[:4])  # its writer is a process of its own

processor, clock, writes = spent(), time.perf_counter(), sys.argv[4:] == ["write"]
simulator = Simulator(
    sys.argv[1], sys.argv[2], FirstInFirstOut(FirstFit()), scheduling_output=writes, statistics_output=writes,
    show_statistics=writes, LOG_LEVEL="ERROR", RESULTS_FOLDER_PATH=sys.argv[3],
)
simulator.start_simulation()
processor, clock = spent() - processor, time.perf_counter() - clock
waits = simulator.mapper.wtimes
print(json.dumps({"processor": processor, "clock": clock, "waits": sorted(waits)}))
"""


class AccaSim:
    """Installed below `place`. One cluster of so many nodes of one processor, first come, first served."""

    def __init__(self, place: Path, processors: int) -> None:
        self._place = place
        venv.create(place / "venv", with_pip=True)
        self._python = str(place / "venv" / "bin" / "python")
        pip = [self._python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, *_NEEDED], check=True, stdout=sys.stderr)
        (place / "simulate.py").write_text(_PROGRAM)
        (place / "system.json").write_text(json.dumps(_system(processors)))
        (place / "results").mkdir()

    def run(self, trace: Path, *options: str) -> dict[str, object]:
        """Simulates a file in SWF. Seconds of the processor and of the clock, and all waits in seconds, sorted.

        With the option `write` it writes the schedule, as it does by default; without it nothing.
        """
        argv = [self._python, "simulate.py", str(trace), "system.json", "results", *options]
        ran = subprocess.run(argv, cwd=self._place, check=True, capture_output=True, text=True)
        found: dict[str, object] = json.loads(ran.stdout.splitlines()[-1])
        return found


def _system(processors: int) -> dict[str, object]:
    return {
        "groups": {"node": {"core": 1}},
        "resources": {"node": processors},
        "equivalence": {"processor": {"core": 1}},
        "start_time": 0,
    }
