"""AccaSim, a simulator of workload managers: from the package index, in an environment of its own.

Of its dependencies those are installed that simulating needs; matplotlib and scipy serve its diagrams. Nothing is
written but the figures: no schedule, no statistics.
"""

import json
import subprocess
import sys
import venv
from pathlib import Path

PACKAGE = "accasim==1.1.3"
_NEEDED = (PACKAGE, "sortedcontainers==2.4.0", "psutil")
_PROGRAM = """
import collections, collections.abc, json, sys, time
collections.Mapping = collections.abc.Mapping  # Python 3.10 took it away
from accasim.base.allocator_class import FirstFit
from accasim.base.scheduler_class import FirstInFirstOut
from accasim.base.simulator_class import Simulator

processor, clock = time.process_time(), time.perf_counter()
simulator = Simulator(
    sys.argv[1], sys.argv[2], FirstInFirstOut(FirstFit()), scheduling_output=False, statistics_output=False,
    show_statistics=False, LOG_LEVEL="ERROR", RESULTS_FOLDER_PATH=sys.argv[3],
)
simulator.start_simulation()
processor, clock = time.process_time() - processor, time.perf_counter() - clock
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

    def run(self, trace: Path) -> dict[str, object]:
        """Simulates a file in SWF. Seconds of the processor and of the clock, and all waits in seconds, sorted."""
        argv = [self._python, "simulate.py", str(trace), "system.json", "results"]
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
