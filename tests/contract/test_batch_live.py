"""The contract of batch systems, live: every target of the test grid and the embedded queue must keep it."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import pytest
import yaml
from koalapy_adapters.contract.target import ACCOUNT, LOWEST, PROCESSORS, QUEUE, WALLTIME, Target
from koalapy_adapters.contract.test_attempts import *  # noqa: F403  # the suite's own tests
from koalapy_adapters.contract.test_capacity import *  # noqa: F403
from koalapy_adapters.contract.test_commands import *  # noqa: F403
from koalapy_adapters.contract.test_head import *  # noqa: F403

from koalapy.testgrid import Running, layout
from koalapy.testgrid.state import grid_file


def on_grid(cluster: str, **more: Any) -> Callable[[], Mapping[str, Any]]:
    """Return a cluster's settings in the file of the test grid, once the grid is up."""
    return lambda: {**yaml.safe_load(grid_file().read_text())["clusters"][cluster], **more}


def wombat(head: str, shared: str = "/home/wombat/.koala") -> dict[str, str]:
    """The other user, who has no key: by the container."""
    return {"connect": f"docker://wombat@{layout.container_name(head)}", "shared": shared}


def root(head: str) -> dict[str, str]:
    return {"connect": f"docker://root@{layout.container_name(head)}"}


EVERYWHERE = frozenset({QUEUE, PROCESSORS, WALLTIME})
REQUEUE = "scontrol update JobId={id} Requeue=1 && scontrol requeue {id}"
RERUN = "qmod -f -rj {id}"

# The second target of a head node comes after the first targets of all others, since pytest waits for it.
GRID = [
    Target(
        name="slurm-22.05",
        head="alpha",
        settings=on_grid("alpha"),
        neighbour=wombat("alpha"),
        refuses=EVERYWHERE,
        array="--array=0-1",
        restart=REQUEUE,
        operator=root("alpha"),
    ),
    Target(
        name="slurm-24.11",
        head="delta",
        settings=on_grid("delta"),
        neighbour=wombat("delta"),
        refuses=EVERYWHERE,
        array="--array=0-1",
        restart=REQUEUE,
        operator=root("delta"),
    ),
    Target(
        name="sge-commands",
        head="gamma",
        settings=on_grid("gamma", drmaa="off"),
        neighbour=wombat("gamma"),
        refuses=frozenset({QUEUE, ACCOUNT, PROCESSORS}),
        array="-t 1-2",
        restart=RERUN,
        operator=root("gamma"),
    ),
    Target(
        name="torque",
        head="beta",
        settings=on_grid("beta", **layout.TORQUE),
        neighbour=wombat("beta", "/shared/wombat"),
        refuses=EVERYWHERE,
        restart=REQUEUE,
        operator=root("beta"),
    ),
    Target(
        name="sge-drmaa",
        head="gamma",
        settings=on_grid("gamma", drmaa="auto"),
        neighbour=wombat("gamma"),
        refuses=frozenset({QUEUE, ACCOUNT, PROCESSORS}),
        array="-t 1-2",
        restart=RERUN,
        operator=root("gamma"),
    ),
    Target(  # there only with an image of OpenPBS; see docs/test-grid.md
        name="pbs",
        head="epsilon",
        settings=on_grid("epsilon"),
        neighbour=wombat("epsilon"),
        refuses=frozenset({QUEUE, LOWEST}),
        array=". /etc/profile.d/pbs.sh; cd /tmp && qsub -J 1-2 -N array -j oe -o /dev/null -- /bin/sleep 10",
        restart=". /etc/profile.d/pbs.sh; qrerun {id}",
        operator=root("epsilon"),
    ),
]
HERE_SHARED = Path(gettempdir()) / f"koala-contract-{os.getpid()}"
HERE = Target(
    name="local",
    head="here",
    settings=lambda: {
        "batch": "local",
        "connect": "local:",
        "slots": 4,
        "shared": str(HERE_SHARED),
        "python": sys.executable,
    },
    remembers_s=630.0,
)
ALLOCATION_SHARED = Path(gettempdir()) / f"koala-contract-allocation-{os.getpid()}"
_AROUND = (
    f"KOALA_ALLOCATION_JOB=1@{os.getpid()} KOALA_ALLOCATION_HOSTS={os.uname().nodename}:4 KOALA_ALLOCATION_BATCH=local"
)
ALLOCATION = Target(
    name="allocation",
    head="here-too",
    settings=lambda: {
        "batch": "allocation",
        "connect": f"command:env {_AROUND} sh -c",
        "shared": str(ALLOCATION_SHARED),
        "python": sys.executable,
    },
    remembers_s=630.0,
)
TARGETS = [
    HERE,
    ALLOCATION,
    *(pytest.param(target, marks=pytest.mark.grid) for target in GRID if target.head in layout.HEADS),
]

# The fixture may build images or wait for another run, and a test for all that its target's lane has to do before it.
pytestmark = pytest.mark.timeout(900, func_only=True)


@pytest.fixture(scope="session")
def emptied(testgrid_session: Running) -> None:
    """The test grid with all services running and without jobs."""
    testgrid_session.reset()


@pytest.fixture(scope="module", autouse=True)
def removed() -> Iterator[None]:
    """Remove the pushed files and the embedded queue once the target has no jobs any more."""
    yield
    shutil.rmtree(HERE_SHARED, ignore_errors=True)
    shutil.rmtree(ALLOCATION_SHARED, ignore_errors=True)


@pytest.fixture(autouse=True)
def standing(request: pytest.FixtureRequest) -> None:
    """The test grid, for its targets."""
    if request.node.get_closest_marker("grid"):
        request.getfixturevalue("emptied")
