"""The canary job, which passes through every step: submitted, started, at its barrier, released, run, ended."""

import time
from collections.abc import Callable
from typing import Any

from koalapy_adapters.batch.protocol import ENDED
from koalapy_adapters.messages import kcm, koalad

from koalapy.doctor.checks import Trouble
from koalapy.doctor.jobs import patiently, plain_program, stuck
from koalapy.doctor.kcm_session import Bodies, KcmSession
from koalapy.link.translate import reason_of
from koalapy.model.errors import Reason

_WALLTIME_S = 60.0
_ENDS_S = 60.0
_CANARY, _SPAN, _ISOLATION = 2, 3, 4
_OF_AGENTS = ("agents_late", "agent_not_started", "agent_lost")
_WORDS = 1000


def run_canary(session: KcmSession, patience_s: float) -> dict[str, float]:
    """Run the canary job. Returns the seconds that each step took.

    Raises Trouble if the job fails, and Undecided if it stays queued.
    """
    began = time.monotonic()
    tag = session.submit(_CANARY, _batch({"processors": 1}), _program(_CANARY, "sleep", ["1"], 1, "once"))
    submitted = time.monotonic()
    ready = _at_barrier(session, tag, patience_s)
    at_barrier = time.monotonic()
    _release(session, tag, ready)
    running = _reported(session, tag, "running", _ENDS_S)
    started = time.monotonic()
    ended = _reported(session, tag, "ended", _ENDS_S) if running.phase != "ended" else running
    _check(ended)
    return {
        "submit_s": submitted - began,
        "barrier_s": at_barrier - submitted,
        "release_s": started - at_barrier,
        "end_s": max(0.0, time.monotonic() - started - 1.0),
        "whole_s": time.monotonic() - began,
    }


def spread(session: KcmSession, options: dict[str, Any], patience_s: float) -> list[str]:
    """Run a job on two nodes. Returns the names of its nodes, sorted, without repetitions.

    `options`: the job's batch options. Raises Trouble if the job fails, and Undecided if it stays queued for
    `patience_s`.
    """
    processors = int(options["processors"])
    program = _program(_SPAN, "uname", ["-n"], processors, "per-node")
    tag = session.submit(_SPAN, _batch(options), program)
    try:
        _release(session, tag, _at_barrier(session, tag, patience_s))
        _check(_reported(session, tag, "ended", _ENDS_S))
    except Trouble as trouble:
        raise _explained(trouble, session.read(tag, "batch")) from trouble
    return sorted(set(session.read(tag, "output").decode(errors="replace").split()))


def isolation(session: KcmSession, command: list[str], patience_s: float) -> bytes:
    """Run this command on a node, and return its output.

    Raises Trouble if the job fails, and Undecided if it stays queued for `patience_s`.
    """
    program = _program(_ISOLATION, command[0], command[1:], 1, "once")
    tag = session.submit(_ISOLATION, _batch({"processors": 1}), program)
    _release(session, tag, _at_barrier(session, tag, patience_s))
    _check(_reported(session, tag, "ended", _ENDS_S))
    return session.read(tag, "output")


def _explained(trouble: Trouble, output: bytes) -> Trouble:
    """Return the trouble, with the output of the batch system's launcher if node agents of other nodes are missing."""
    if trouble.reason.code not in _OF_AGENTS:
        return trouble
    words = "; ".join(output.decode(errors="replace").split("\n"))[:_WORDS].strip("; ")
    advice = (
        "Ask the administrators why jobs start no processes on other nodes: are the batch system's daemons up on all of"
        " them, have they the same keys, and may nodes connect to each other?"
    )
    return Trouble(Reason("agents_not_started", "cluster", trouble.reason.message, advice, words=words))


def _batch(options: dict[str, Any]) -> dict[str, Any]:
    return {**options, "walltime_s": 180}


def _program(job: int, executable: str, arguments: list[str], processors: int, launch: str) -> dict[str, Any]:
    return plain_program(job, executable, arguments, walltime_s=_WALLTIME_S, processors=processors, launch=launch)


def _at_barrier(session: KcmSession, tag: str, patience_s: float) -> kcm.Report:
    report = patiently(session, tag, patience_s, lambda wait_s: session.wait(tag, _phase("at_barrier"), wait_s))
    _check(report)
    return report


def _release(session: KcmSession, tag: str, ready: kcm.Report) -> None:
    hosts = [[0, address, processes] for _, address, processes in ready.nodes]
    session.ask(lambda id: koalad.Release(id, tag, 0, hosts))


def _reported(session: KcmSession, tag: str, phase: str, timeout_s: float) -> kcm.Report:
    report = session.wait(tag, _phase(phase), timeout_s)
    if report is None:
        message = f"The job was released, and reported nothing within {timeout_s:.0f} s."
        raise Trouble(Reason("job_hangs", "cluster", message, "Ask the administrators to look at its compute nodes."))
    return report


def _phase(wanted: str) -> Callable[[Bodies], kcm.Report | None]:
    """Return a function that finds the report of this phase, or of the end.

    It raises Trouble if the job ended without a report.
    """

    def found(bodies: Bodies) -> kcm.Report | None:
        stuck(bodies)
        reports = [body for body in bodies if isinstance(body, kcm.Report)]
        last = next((each for each in reversed(reports) if each.phase in (wanted, "ended")), None)
        if last is None:
            _check_ended(bodies)
        return last

    return found


def _check_ended(bodies: Bodies) -> None:
    """Raises Trouble if the batch job has ended without a wrapper report of its end."""
    seen = [body for body in bodies if isinstance(body, kcm.BatchStatus)]
    if seen and seen[-1].state == ENDED:
        message = "The batch job ended, and its wrapper has reported nothing."
        advice = "Ask the administrators what ended it; the batch system's words may help."
        raise Trouble(
            Reason(
                "wrapper_silent", "cluster", message, advice, exit_status=seen[-1].exit_status, words=seen[-1].reason
            )
        )


def _check(report: kcm.Report) -> None:
    """Raises Trouble if the report is of an end without success."""
    if report.phase != "ended" or (report.ending == "exited" and report.exit_status == 0):
        return
    if report.error is not None:
        raise Trouble(reason_of(report.error))
    message = f"The job ended otherwise than it should: {report.ending}, exit status {report.exit_status}."
    raise Trouble(Reason("canary_ended", "cluster", message, "Ask the administrators what happened to it."))
