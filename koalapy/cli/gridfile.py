"""Reads a grid file as koalad would, without what else koalad takes: commands that only read one start soon."""

from pathlib import Path

from koalapy.config import SWEEP_POLICIES, GridFile, read_grid
from koalapy.locations import read_file
from koalapy.runtime.registry import registered


def read_grid_file(path: Path) -> GridFile:
    """Raises RequestError with file, line and what to do."""
    return read_grid(
        read_file(path, "grid file"),
        str(path),
        list(registered("koalapy.batch_systems")),
        queueing=list(registered("koalapy.queueing")),
        placement=list(registered("koalapy.placement")),
        policies={group: list(registered(f"koalapy.{group}")) for group in SWEEP_POLICIES},
    )
