"""The Poisson program as a job, and its result beside that of one process."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from koalapy.common.data import data_path

PROGRAM = data_path("configs") / "examples" / "poisson" / "poisson.py"
STAGED = {"stage_in": [str(PROGRAM)], "stage_out": ["result.npy"]}  # fields of the job
EXACT = 1e-10
_ARGUMENTS = ["--grid", "96", "--tolerance", "1e-6"]


def poisson(processors: int, **fields: Any) -> dict[str, Any]:
    """Return a component that runs it."""
    command = {"executable": "./poisson.py", "arguments": _ARGUMENTS}
    return {"processors": processors, **command, "walltime": "5m", **fields}


def difference(result: Path, place: Path) -> float:
    """Return the largest difference of the result to that of one process, which runs in a directory of `place`."""
    single = place / "single"
    single.mkdir()
    alone = [sys.executable, str(PROGRAM), *_ARGUMENTS]
    subprocess.run(alone, cwd=single, check=True, env={"PATH": os.environ["PATH"]})
    return float(np.abs(np.load(result) - np.load(single / "result.npy")).max())
