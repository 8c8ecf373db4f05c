"""Passing a job's output through while it runs, try after try."""

import threading
from typing import BinaryIO

from koalapy.client import Document, Grid
from koalapy.model.errors import KoalaError

_FINAL = frozenset({"done", "failed", "cancelled"})
_STARTED = frozenset({"running", "suspended", "unknown", "done", "failed"})
_LOOK_S = 0.3


def follow_output(koalad: Grid, job: int, output: BinaryIO, errors: BinaryIO) -> None:
    """Write what the job's processes write, as it comes, until the job is over."""
    lock = threading.Lock()
    followed: dict[tuple[int, int, str], threading.Thread] = {}
    over = False
    while not over:
        found = _look(koalad, job)
        over = found["state"] in _FINAL
        for component in found["components"]:
            if component["state"] not in _STARTED or not component["attempt"]:
                continue
            for stream, target in (("output", output), ("errors", errors)):
                key = (component["index"], component["attempt"], stream)
                if key not in followed:
                    arguments = (koalad, job, component["index"], stream, target, lock)
                    followed[key] = threading.Thread(target=_pass_on, args=arguments, daemon=True)
                    followed[key].start()
    for thread in followed.values():
        thread.join()


def _look(koalad: Grid, job: int) -> Document:
    try:
        return koalad.wait([job], _LOOK_S)[0]
    except TimeoutError:
        return koalad.jobs(ids=[job])[0]


def _pass_on(koalad: Grid, job: int, component: int, stream: str, target: BinaryIO, lock: threading.Lock) -> None:
    """Every piece is written whole. A cluster out of reach cuts the output, not the job."""
    try:
        for piece in koalad.output(job, stream=stream, component=component, follow=True):
            with lock:
                target.write(piece)
                target.flush()
    except KoalaError:
        return
