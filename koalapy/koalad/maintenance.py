"""The parts of koalad that maintenance tasks may use, passed to the runner of the tasks."""

from functools import partial
from pathlib import Path

from koalapy.api.bodies import JobText
from koalapy.api.jobs import Reader
from koalapy.common.locations import read_file
from koalapy.doctor.doctor import examine_quickly
from koalapy.model.identity import JobId
from koalapy.runtime.clock import SystemClock
from koalapy.runtime.current_grid import CurrentGrid
from koalapy.runtime.driver_thread import DriverThread
from koalapy.runtime.maintenance.runner import Runner
from koalapy.runtime.maintenance.task import Koalad
from koalapy.runtime.service import Service
from koalapy.store.contract import Store


def maintenance_of(
    grid: CurrentGrid, store: Store, loop: DriverThread, clock: SystemClock, service: Service, read: Reader, owner: str
) -> Runner:
    """Build the runner of the grid file's tasks. Raises RequestError for a task that cannot be loaded.

    `read` reads job files, which are submitted for `owner`.
    """
    maintained = Koalad(
        grid=grid.file.grid,
        store=store,
        now=clock.now,
        ask=loop.ask,
        do=service.do,
        unknown=service.unknown,
        clusters=service.clusters,
        examine=lambda ending: examine_quickly(grid.file, ending),
        submit=partial(_submit, service, read, owner),
        usage=service.usage,
        charges=service.charges,
    )
    return Runner(grid.file.maintenance, maintained)


def _submit(service: Service, read: Reader, owner: str, path: Path, key: str) -> JobId:
    """Submit a job file, relative to its own directory. Raises KoalaError."""
    text = read_file(path, "job file").decode(errors="surrogateescape")
    job = JobText(text=text, source=str(path), directory=str(path.parent), key=key)
    return service.submit(read(job), owner, key)
