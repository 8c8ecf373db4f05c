"""The probe job, which only looks around on a compute node; see koalapy_adapters.examination.probe_program."""

import json
import secrets
import time
from dataclasses import dataclass
from typing import Any

from koalapy_adapters.batch.protocol import ENDED
from koalapy_adapters.examination import probe_program as program
from koalapy_adapters.messages import files, kcm
from koalapy_adapters.messages.details import probed
from koalapy_adapters.messages.fields import shown

from koalapy.doctor.checks import Trouble
from koalapy.doctor.jobs import patiently, plain_program, stuck
from koalapy.doctor.kcm_session import Bodies, KcmSession
from koalapy.model.errors import ClusterError, Reason
from koalapy.runtime.session.exchange import done, understood

_JOB = 1
_WALLTIME_S = 120
_POLL_S = 0.5  # between two looks for the answer, which is not announced
_LATE_S = 6.0  # delay of a file on a network file system
_NOT_FOUND = (126, 127)


@dataclass(frozen=True, slots=True)
class Seen:
    """The answer of a compute node to the probe job.

    `wrong`: the mistakes it found, as bits that probe_program names. `answer`: its JSON object, {} without one. `sent`
    and `read`: this machine's clock before and after the node read its own, in microseconds since 1970.
    """

    wrong: int
    answer: dict[str, Any]
    sent: int
    read: int

    @property
    def node(self) -> str:
        return str(self.answer.get("node") or "a compute node")

    def has(self, mistake: int) -> bool:
        return bool(self.wrong & mistake)

    def skew_s(self, ahead_s: float) -> float | None:
        """Return the seconds that the node's clock is at least ahead of the head node's, negative if it is behind.

        0 means that no difference shows, None that the node gave no clock. `ahead_s`: seconds that the head node's
        clock is ahead of this machine's.
        """
        if "clock" not in self.answer:
            return None
        clock = self.answer["clock"] / 1e6 - ahead_s
        early, late = self.sent / 1e6, self.read / 1e6
        return float(clock - late if clock > late else clock - early if clock < early else 0.0)


def look(session: KcmSession, relay: dict[str, Any], patience_s: float, python: str) -> Seen:
    """Submit the probe job, and return what it has seen. `relay`: the address of the KCM's relay.

    Raises Trouble if the job ended without an answer, and Undecided if it stays queued for `patience_s`.
    """
    sent, nonce = session.now(), secrets.token_hex(16)
    order = {"addresses": relay["addresses"] if relay["kind"] == "tcp" else [], "port": relay["port"]}
    batch = {"processors": 1, "walltime_s": _WALLTIME_S, "probe": order}
    tag = session.submit(_JOB, batch, plain_program(_JOB, "true", [nonce], walltime_s=_WALLTIME_S / 2))
    ended = patiently(session, tag, patience_s, lambda wait_s: _ended(session, tag, wait_s))
    answer = _answer(session, tag, _LATE_S if _mistakes_in_exit_status(ended) is not None else _LATE_S / 2)
    if answer is not None:
        return Seen(answer["wrong"], answer, sent, session.now())
    wrong = _mistakes_in_exit_status(ended)
    if wrong is None:
        raise Trouble(_no_answer(ended, python))
    return Seen(wrong, {}, sent, session.now())


def _ended(session: KcmSession, tag: str, wait_s: float) -> kcm.BatchStatus | None:
    """Return the batch status once the job has ended or its answer is there; None after `wait_s`."""
    deadline = time.monotonic() + wait_s
    while time.monotonic() < deadline:
        seen = session.wait(tag, _status_of_ended, _POLL_S)
        if seen is not None:
            return seen
        if _answer(session, tag, 0):
            return kcm.BatchStatus(tag, "", 0, ENDED)
    return None


def _status_of_ended(bodies: Bodies) -> kcm.BatchStatus | None:
    """Return the batch status of a job that has ended, else None.

    A probe job has no wrapper. Therefore an end may also be the KCM's report of a wrapper that never started.
    """
    stuck(bodies)
    for body in reversed(bodies):
        if isinstance(body, kcm.BatchStatus) and body.state == ENDED:
            return body
        if isinstance(body, kcm.Report) and body.phase == "ended":
            words = str((body.error or {}).get("words", ""))
            return kcm.BatchStatus(body.tag, body.batch_id, 0, ENDED, words, exit_status=body.exit_status)
    return None


def _answer(session: KcmSession, tag: str, patience_s: float) -> dict[str, Any] | None:
    deadline = time.monotonic() + patience_s
    while True:
        if done(session.ask(lambda id: files.Stat(id, tag, [program.ANSWER]))).details:
            return _read(session.read(tag, "work", program.ANSWER))
        if time.monotonic() >= deadline:
            return None
        session.wait(tag, lambda bodies: None, _POLL_S)


def _read(data: bytes) -> dict[str, Any]:
    """Return the node's answer. Raises ClusterError if the data is not an answer."""
    try:
        return understood(probed, json.loads(data))
    except (ValueError, RecursionError) as error:
        raise ClusterError("garbled", f"What the job has written is not an answer: {shown(data)}.", "") from error


def _mistakes_in_exit_status(ended: kcm.BatchStatus) -> int | None:
    """Return the mistakes in the exit status, as bits; None if it is not one of probe_program."""
    status = ended.exit_status
    if status is None or not program.OURS <= status < program.TOO_OLD:
        return None
    return status - program.OURS


def _no_answer(ended: kcm.BatchStatus, python: str) -> Reason:
    words = ended.reason
    if ended.exit_status == program.TOO_OLD:
        message = f"{python} of the compute nodes is older than 3.6."
        return Reason("no_python_on_node", "cluster", message, _PYTHON, exit_status=ended.exit_status, words=words)
    if ended.exit_status in _NOT_FOUND:
        message = f"The compute nodes have no {python}."
        return Reason("no_python_on_node", "cluster", message, _PYTHON, exit_status=ended.exit_status, words=words)
    how = "" if ended.exit_status is None else f" with exit status {ended.exit_status}"
    message = f"The batch job ended{how} before it could report anything."
    advice = "Ask the administrators what its nodes do to a job that prints nothing; the batch system's words may help."
    return Reason("job_silent", "cluster", message, advice, exit_status=ended.exit_status, words=words)


_PYTHON = "Name with `python:` one of version 3.6 or later that is at the same path on head and nodes."


def shared_trouble(seen: Seen, path: str) -> Reason | None:
    """Return why the node does not share the shared directory with the head node; None if it does."""
    if seen.has(program.NOT_SEEN):
        message = f"{path} on {seen.node} is not the directory of that name on the head node: it lacks what is there."
        return Reason("shared_not_seen", "cluster", message, _SHARED)
    if seen.has(program.OTHER_CONTENT):
        message = f"{path} has other content on {seen.node} than on the head node."
        return Reason("shared_not_seen", "cluster", message, _SHARED)
    if seen.has(program.NOT_WRITABLE):
        message = f"{path} cannot be written on {seen.node}."
        return Reason("shared_not_writable", "cluster", message, _SHARED)
    return None


_SHARED = "Name with `shared:` a directory that head and nodes have in common, as on the cluster's scratch file system."


def relay_trouble(seen: Seen) -> Reason | None:
    """Return why the node does not reach the KCM's relay; None if it does."""
    if not seen.has(program.NO_RELAY):
        return None
    refusals = "; ".join(f"{address}: {words}" for address, words in seen.answer.get("errors", {}).items())
    message = f"The head node cannot be reached from {seen.node}: no connection to the relay."
    advice = (
        "Ask the administrators to let its nodes connect to unprivileged ports of the head node, or use files instead."
    )
    return Reason("relay_blocked", "cluster", message, advice, words=refusals)
