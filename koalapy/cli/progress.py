"""Shows the progress of jobs to a person: states, reasons, transfers, and the jobs of a flow."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from koalapy.cli.output import errors, print_message
from koalapy.cli.times import in_text
from koalapy.client import Grid
from koalapy.model.counts import counted_as
from koalapy.model.textfile.words import visible

if TYPE_CHECKING:
    from rich.status import Status

    from koalapy.answers.jobs import FlowProgress, Job, Transfer
from koalapy.cli.output import in_bytes

POLL_S = 1.0
_EXPLAIN_S = 5.0  # seconds in one state before the first explanation, and between two
_QUIET_S = 2.0  # a job that ends within this time is not reported
_MOST_LISTED = 20  # jobs that are reported one by one
_RUNS = "It is running."  # an explanation that only repeats the state
_NUMBER = re.compile(r"\d+(\.\d+)?")
_PIPED_S = 10.0  # between two plain lines


class StateLines:
    """Prints the changes of jobs' states, and after a while the reasons why they wait.

    For more than `_MOST_LISTED` jobs it prints only how many are final.
    """

    def __init__(self, koalad: Grid) -> None:
        self._koalad = koalad
        self._begun = time.monotonic()
        self._states: dict[int, str] = {}
        self._printed: dict[int, str] = {}
        self._asked_at: dict[int, float] = {}
        self._explained: dict[int, str] = {}
        self._reasons: dict[int, str] = {}
        self._counted: tuple[float, int] = (time.monotonic(), 0)

    def print_changes(self, *jobs: Job) -> None:
        """Print the changes since the last call. Each call must have all jobs of the wait."""
        if len(jobs) > _MOST_LISTED:
            return self._count(jobs)
        for job in jobs:
            self._print_change(job)
        return None

    def _count(self, jobs: Sequence[Job]) -> None:
        final, (printed_at, before) = sum(job["finished_at"] is not None for job in jobs), self._counted
        if final != before and time.monotonic() - printed_at >= _PIPED_S:
            self._counted = (time.monotonic(), final)
            print_message(f"{final} of {counted_as(len(jobs), 'job')} {'is' if final == 1 else 'are'} final")

    def _print_change(self, job: Job) -> None:
        """Print the change of a job that is not final. A job's end is printed after the wait."""
        identity, state, now = job["id"], job["state"], time.monotonic()
        if job["finished_at"] is not None:
            return
        if state != self._printed.get(identity, "waiting") and now - self._begun >= _QUIET_S:
            self._printed[identity] = state
            clusters = ", ".join(dict.fromkeys(each["cluster"] for each in job["components"] if each["cluster"]))
            why = self._why_not_tried_on(job)
            shown_state = "ending" if state == "stopping" and not why else state  # all is well, or it was cancelled
            print_message(f"job {identity} is {shown_state}{f' ({clusters})' if clusters else ''}{why}")
        if state != self._states.get(identity):
            self._states[identity], self._asked_at[identity] = state, now
        elif now - self._asked_at[identity] >= _EXPLAIN_S:
            self._asked_at[identity] = now
            self._explain(identity)

    def _why_not_tried_on(self, job: Job) -> str:
        """Return why a try of the job is over, after a colon; '' if nothing is wrong, or it was printed before."""
        reason = job["reason"] if job["state"] in ("stopping", "waiting") else None
        if reason is None or reason == self._reasons.get(job["id"]):
            return ""
        self._reasons[job["id"]] = reason
        return f": {in_text(reason)}"

    def _explain(self, job: int) -> None:
        """Print the explanation once, and again if its text changes in more than numbers, such as seconds."""
        summary = self._koalad.explain(job)["summary"]
        kind = _NUMBER.sub("", summary)
        if summary != _RUNS and kind != self._explained.get(job):
            self._explained[job] = kind
            print_message(f"job {job}: {in_text(summary)}")


def progress_of(flow: FlowProgress) -> str:
    """Return the progress of a flow, such as `3/5 done, 1 failed`."""
    more = "".join(f", {flow[name]} {name}" for name in ("failed", "cancelled") if flow[name])
    return f"{flow['done']}/{flow['jobs']} done{more}"


def transfers_in_words(job: Job) -> str | None:
    """Describe a job's transfers in a few words for a table; None without transfers."""
    if not job["transfers"]:
        return None
    parts = [_part(each) for each in job["transfers"]]
    moved, size = (sum(part) for part in zip(*parts, strict=True))
    direction = "out" if job["transfers"][0]["direction"] == "out" else "in"
    return f"staging {direction} {_share(moved, size)}"


def transfer_line(transfer: Transfer) -> str:
    """Describe one transfer in a line."""
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
    """Prints the transfers of jobs; on a terminal its lines are updated in place."""

    def __init__(self) -> None:
        self._status: Status | None = None
        self._printed_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def show(self, *jobs: Job) -> None:
        """Show the present transfers of the jobs."""
        lines = [f"job {job['id']}: {transfer_line(each)}" for job in jobs for each in job["transfers"]]
        if errors.is_terminal:
            self._draw("\n".join(lines))
        elif lines and time.monotonic() - self._printed_at >= _PIPED_S:
            self._printed_at = time.monotonic()
            for line in lines:
                print_message(line)

    def _draw(self, text: str) -> None:
        if self._status is None and text:
            self._status = errors.status("")
            self._status.start()
        if self._status is not None:
            from rich.text import Text

            self._status.update(Text(visible(text)))
            if not text:
                self._status.stop()
                self._status = None


def _part(transfer: Transfer) -> tuple[int, int]:
    """Return (moved, total) in bytes, or in parameters for a sweep, whose total size is not known in advance."""
    if transfer["parameters"] is not None:
        return transfer["parameters_done"] or 0, transfer["parameters"]
    return transfer["bytes_moved"], transfer["bytes"]


def _share(moved: int, size: int) -> str:
    return f"{100 * min(moved, size) // size if size else 100} %"
