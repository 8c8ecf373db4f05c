"""Files on their way, for a person: a line on a terminal that changes, plain lines when piped."""

import time
from types import TracebackType
from typing import Any, Self

from rich.status import Status
from rich.text import Text

from koalapy.cli.output import errors, say
from koalapy.cli.signals import interruptible
from koalapy.cli.sizes import in_bytes
from koalapy.cli.sweep_progress import wait_for_all
from koalapy.client import Grid

LOOK_S = 1.0
_PIPED_S = 10.0  # between two plain lines
Document = dict[str, Any]


def wait_telling(koalad: Grid, job: int) -> Document:
    """The job once it is over; what of it is on its way, or how far a sweep is, is told meanwhile."""
    try:
        with interruptible():
            return _when_over(koalad, job)
    except KeyboardInterrupt:
        say(f"job {job} goes on: `koala wait {job}` waits for it again, `koala cancel {job}` ends it.")
        raise


def _when_over(koalad: Grid, job: int) -> Document:
    with TransferLines() as lines:
        while True:
            try:
                return koalad.wait([job], LOOK_S)[0]
            except TimeoutError:
                found = koalad.jobs(ids=[job])[0]
            if found["sweep"]:
                return wait_for_all(koalad, [job])[0]
            lines.tell(found)


def moving(job: Document) -> str | None:
    """In a few words, for a table."""
    if not job["transfers"]:
        return None
    parts = [_part(each) for each in job["transfers"]]
    moved, size = (sum(part) for part in zip(*parts, strict=True))
    direction = "out" if job["transfers"][0]["direction"] == "out" else "in"
    return f"staging {direction} {_share(moved, size)}"


def told_of(transfer: Document) -> str:
    """One transfer in a line."""
    way = "staging in to" if transfer["direction"] == "in" else "staging out from"
    if transfer["phase"] == "waiting":
        return f"{way} {transfer['cluster']}: waiting"
    doing = "reading, " if transfer["phase"] == "reading" else ""
    share = _share(*_part(transfer))
    count = f"{transfer['files']} {'file' if transfer['files'] == 1 else 'files'}"
    rate = f"{in_bytes(transfer['bytes_per_second'])}/s"
    if transfer["parameters"] is not None:
        done = f"those of {transfer['parameters_done']} of {transfer['parameters']} parameters"
        return f"{way} {transfer['cluster']}: {done}, {in_bytes(transfer['bytes_moved'])} in {count}, {rate}"
    line = f"{way} {transfer['cluster']}: {doing}{share} of {in_bytes(transfer['bytes'])} in {count}, {rate}"
    return f"{line}, {transfer['file']}" if transfer["file"] else line


class TransferLines:
    """Says of a job what is on its way, whenever it is told of it."""

    def __init__(self) -> None:
        self._status: Status | None = None
        self._said_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def tell(self, job: Document) -> None:
        lines = [f"job {job['id']}: {told_of(each)}" for each in job["transfers"]]
        if errors.is_terminal:
            self._show("\n".join(lines))
        elif lines and time.monotonic() - self._said_at >= _PIPED_S:
            self._said_at = time.monotonic()
            for line in lines:
                say(line)

    def _show(self, text: str) -> None:
        if self._status is None and text:
            self._status = errors.status("")
            self._status.start()
        if self._status is not None:
            self._status.update(Text(text))
            if not text:
                self._status.stop()
                self._status = None


def _part(transfer: Document) -> tuple[int, int]:
    """How much of how much; of a sweep, whose files are known page by page only, in parameters."""
    if transfer["parameters"] is not None:
        return transfer["parameters_done"], transfer["parameters"]
    return transfer["bytes_moved"], transfer["bytes"]


def _share(moved: int, size: int) -> str:
    return f"{100 * min(moved, size) // size if size else 100} %"
