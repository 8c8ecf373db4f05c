"""The common part of the doctor's jobs: their description, and the time to wait for them."""

import time
from collections.abc import Callable
from typing import Any, TypeVar

from koalapy_adapters.batch.protocol import RUNNING
from koalapy_adapters.messages import kcm, koalad

from koalapy.doctor.checks import Trouble, Undecided
from koalapy.doctor.kcm_session import Bodies, KcmSession
from koalapy.model.errors import Reason

T = TypeVar("T")

BARRIER_S = 60.0
_RUNS_S = 60.0  # time for a running job to do its work


def plain_program(
    job: int, executable: str, arguments: list[str], *, walltime_s: float, processors: int = 1, launch: str = "once"
) -> dict[str, Any]:
    """Return the fields of messages.Program for a job of one component."""
    return koalad.Program(
        job=job,
        component=0,
        components=1,
        attempt=1,
        executable=executable,
        arguments=arguments,
        environment=[],
        setup=[],
        launch=launch,
        processors=processors,
        threads=1,
        walltime=walltime_s,
        barrier_timeout=BARRIER_S,
        grace=2.0,
    )._asdict()


def patiently(session: KcmSession, tag: str, patience_s: float, wait: Callable[[float], T | None]) -> T:
    """Call `wait` with a time-out in seconds until it returns something, and return that.

    It waits `patience_s` while the job is queued, and another 60 s once the job runs. Raises Undecided if the job does
    not start in time, and Trouble if it runs for too long.
    """
    deadline = time.monotonic() + patience_s
    while (left := deadline - time.monotonic()) > 0:
        found = wait(min(left, 1.0))
        if found is not None:
            return found
        if session.wait(tag, _runs, 0.01):
            return _while_running(wait)
    why = session.wait(tag, _why, 0.01)
    stated = f": {why}" if why else ""
    raise Undecided(f"The job has waited for {patience_s:.0f} s in the queue{stated}. Try again with more --patience.")


def stuck(bodies: Bodies) -> None:
    """Raises Trouble if the job can never start."""
    seen = [body for body in bodies if isinstance(body, kcm.BatchStatus)]
    if seen and seen[-1].stuck:
        message = "The batch system took a job of one processor that it can never start."
        advice = "Change what its reason names, or ask the administrators."
        raise Trouble(Reason(seen[-1].stuck, "cluster", message, advice, words=seen[-1].reason))


def _while_running(wait: Callable[[float], T | None]) -> T:
    found = wait(_RUNS_S)
    if found is not None:
        return found
    message = f"The job runs, and has not done its part after {_RUNS_S:.0f} s."
    raise Trouble(Reason("job_hangs", "cluster", message, "Ask the administrators to look at its compute nodes."))


def _runs(bodies: Bodies) -> bool | None:
    seen = [body for body in bodies if isinstance(body, kcm.BatchStatus)]
    return True if seen and seen[-1].state == RUNNING else None


def _why(bodies: Bodies) -> str | None:
    seen = [body.reason for body in bodies if isinstance(body, kcm.BatchStatus)]
    return seen[-1] if seen else None
