"""The test grid: real Slurm and Grid Engine clusters in containers, for trials and tests."""

from koalapy.testgrid import sites
from koalapy.testgrid.containers import Containers, Executed
from koalapy.testgrid.layout import ContainersError
from koalapy.testgrid.lifecycle import Status, down, reset, status, up
from koalapy.testgrid.running import Running
from koalapy.testgrid.state import reserved

__all__ = [
    "Containers",
    "ContainersError",
    "Executed",
    "Running",
    "Status",
    "down",
    "reserved",
    "reset",
    "sites",
    "status",
    "up",
]
