"""One cluster, check by check, each by a function: a message for what is well, or an exception for what is not."""

import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from koalapy_adapters.connections import bootstrap
from koalapy_adapters.connections.pack import packed
from koalapy_adapters.connections.protocol import Connection
from koalapy_adapters.errors import BatchError

from koalapy.doctor import canary, probing
from koalapy.doctor.checks import BY_ID, CHECKS, TITLES, Check
from koalapy.doctor.environments import of_launchers
from koalapy.doctor.findings import FINE, Finding, Report, Status
from koalapy.doctor.pythons import suggested
from koalapy.doctor.remedies import failure
from koalapy.doctor.trouble import Doubtful, Inapplicable, Trouble, Undecided
from koalapy.doctor.visit import Interrupted, Visit, refusal
from koalapy.link.translate import reason_of_error
from koalapy.model.errors import KoalaError, Reason
from koalapy.model.identity import instance_id

Figures = dict[str, Any]
Found = tuple[str, Figures]  # what is said of a check that is well, and its numbers
Began = Callable[[str, str], None]  # cluster, check
Told = Callable[[str, Finding], None]

_OF_PYTHON = frozenset({"no_python", "python_too_old"})
_OF_SHARED = frozenset({"directory_full", "directory_not_writable"})
_LITTLE = 16 << 20  # bytes, fewer of which are soon used up by staged files and output
_SKEW_NOTED_S, _SKEW_BAD_S = 5.0, 60.0
_ASKS = "Run `koala doctor` on a terminal, and answer there: it logs in by itself, whether koalad is connected or not."


@dataclass(frozen=True, slots=True)
class Patient:
    """A cluster to examine. `config`: the fields of messages.ClusterConfig; `patience_s`: that a job may be queued."""

    name: str
    config: Mapping[str, Any]
    connection: Connection
    patience_s: float


class Examination:
    """Of one cluster. `run` blocks, and leaves nothing on the cluster, even if it is interrupted."""

    def __init__(self, patient: Patient, began: Began, told: Told) -> None:
        self._patient, self._began, self._told = patient, began, told
        self._findings: dict[str, Finding] = {}
        self._stop = threading.Event()
        self._visit: Visit | None = None
        self._refused: Reason | None = None  # why no agent could be started on the head node
        self._said: deque[str] = deque(maxlen=20)  # by the head node, on its standard error
        self._python = ""
        self._ahead_s = 0.0
        self._shared = patient.config["shared"] or "~/.koala"
        self._seen: probing.Seen | None = None

    def run(self) -> Report:
        left: list[str] = []
        try:
            for check in CHECKS:
                self._perform(check)
        except Interrupted:
            pass
        finally:
            if self._visit is not None:
                left = self._visit.end()
        return Report(self._patient.name, tuple(self._findings.values()), tuple(left))

    @property
    def may_leave_something(self) -> bool:
        """Whether it is on the cluster. Once interrupted before that, it never will be. Any thread."""
        return self._visit is not None

    def unended(self) -> Report:
        """What is known of one whose end nobody waits for any longer. Any thread."""
        left = "perhaps a batch job and a directory of this examination, whose end took too long"
        return Report(self._patient.name, tuple(self._findings.values()), (left,))

    def interrupt(self) -> None:
        """End it soon. Any thread."""
        self._stop.set()
        if (visit := self._visit) is not None:
            visit.interrupt()

    # ---- one check

    def _perform(self, check: Check) -> None:
        if self._stop.is_set():
            raise Interrupted
        self._began(self._patient.name, check.id)
        started = time.monotonic()
        status, message, figures, reason, value = self._outcome(check)
        wrong = failure(self._patient.name, reason, value) if reason is not None else None
        took = time.monotonic() - started
        finding = Finding(check.id, status, message, took, figures, wrong)
        self._findings[check.id] = finding
        self._told(self._patient.name, finding)

    def _outcome(self, check: Check) -> tuple[Status, str, Figures, Reason | None, str]:
        if (why := self._hindrance(check)) is not None:
            return Status.NOT_EXAMINED, why, {}, None, ""
        try:
            message, figures = _FUNCTIONS[check.id](self)
            return Status.OK, message, figures, None, ""
        except Inapplicable as why_not:
            return Status.NOT_APPLICABLE, str(why_not), {}, None, ""
        except Undecided as waiting:
            return Status.NOT_EXAMINED, str(waiting), {}, None, ""
        except Doubtful as doubt:
            return Status.WARNING, str(doubt), {}, None, ""
        except Trouble as trouble:
            return Status.FAILED, trouble.reason.message, {}, trouble.reason, trouble.value
        except KoalaError as error:
            return Status.FAILED, error.reason.message, {}, error.reason, ""
        except Interrupted:
            raise
        except Exception as error:  # the other checks, and the cleaning up, are not to suffer
            reason = _broken(error)
            return Status.FAILED, reason.message, {}, reason, ""

    def _hindrance(self, check: Check) -> str | None:
        """Why it cannot be examined: what it depends on, from the beginning."""
        if (before := self._first_hindrance(check)) is not None:
            return f"It depends on “{TITLES[before]}”."
        if check.agent and self._visit is None:
            return "No agent could be started on the head node."
        return None

    def _first_hindrance(self, check: Check) -> str | None:
        """The check at the root of it; None where all that it depends on is fine."""
        for before in check.after:
            if self._findings[before].status not in FINE:
                return self._first_hindrance(BY_ID[before]) or before
        return None

    @property
    def _agent(self) -> Visit:
        assert self._visit is not None, "checks that need it are not performed without"
        return self._visit

    def _diagnosed(self, check: str) -> Figures:
        """What the head node finds. Raises Trouble."""
        details = self._agent.diagnose(check)
        reason = refusal(details)
        if reason is not None:
            raise Trouble(reason, details.get("value", ""))
        return details

    # ---- the checks

    def _login(self) -> Found:
        """All that one login brings: Python, the pushed file, the agent. What fails of it is told where it belongs."""
        connection, config = self._patient.connection, self._patient.config
        try:
            target = bootstrap.Target(config["shared"], config["python"])
            channel = bootstrap.start(connection, packed(), target, self._said.append)
        except BatchError as error:
            self._refused = _at_login(reason_of_error(error))
            if error.code in _OF_PYTHON | _OF_SHARED:
                return f"{connection.where} lets us in.", {"host": connection.where}
            raise Trouble(self._refused) from error
        self._said.clear()  # what the login said: from now on it is the agent
        self._visit = Visit(channel, dict(config), instance_id(secrets.token_bytes(5)), self._said)
        if self._stop.is_set():
            raise Interrupted
        welcome = self._visit.begin()
        self._python = welcome.python
        return f"{welcome.host} lets us in.", {"host": welcome.host}

    def _check_python(self) -> Found:
        named = self._patient.config["python"]
        if self._refused is not None and self._refused.code in _OF_PYTHON:
            raise Trouble(self._refused, suggested(self._patient.connection))
        if self._visit is None:
            return f"{named} starts.", {}
        path = self._diagnosed("head")["python"]
        return f"{path} is Python {self._python}.", {"path": path, "version": self._python}

    def _clock(self) -> Found:
        self._ahead_s = self._agent.skew()
        return _judged("The head node's clock", self._ahead_s, "this machine's")

    def _shared_directory(self) -> Found:
        if self._refused is not None:
            raise Trouble(self._refused)
        found = self._diagnosed("shared")
        self._shared = found["path"]
        room = _size(found["free_bytes"])
        if found["free_bytes"] < _LITTLE:
            raise Doubtful(f"{self._shared} can be written, but only {room} are left there.")
        return f"{self._shared} can be written; {room} are left.", found

    def _batch(self) -> Found:
        found = self._diagnosed("batch")
        name = self._patient.config["batch"]
        where = f" ({found['command']})" if found["command"] else ""
        way = f" Jobs are submitted by {found['submits_by']}." if "submits_by" in found else ""
        return f"{name} {found['version']} answers{where}.{way}", found

    def _queue(self) -> Found:
        found = self._diagnosed("queue")
        if "name" not in found:
            return f"{found['processors']} processors, {found['idle']} of them idle.", found
        limit = found["walltime_s"]
        most = f", for {limit // 60} min at most" if limit else ""
        return f"The queue {found['name']} takes jobs{most}.", found

    def _access(self) -> Found:
        found = self._diagnosed("access")
        if found["words"] is None:
            raise Inapplicable("The batch system cannot be asked without submitting: the next jobs show it.")
        launchers = found["launchers"]
        more = "" if launchers is None else " " + of_launchers(launchers)
        return f"The batch system would take a job of ours.{more}", found

    def _drmaa(self) -> Found:
        wanted = self._patient.config["drmaa"]
        library = self._diagnosed("drmaa")["library"]
        if library is None and wanted == "off":
            raise Inapplicable("It is off; the batch system's commands are used.")
        if library is None:
            raise Doubtful("No native libdrmaa is found on the head node; the batch system's commands are used.")
        return f"{library} opens a session.", {"library": library}

    def _node(self) -> Found:
        relay = self._diagnosed("relay")
        python = self._patient.config["python"]
        self._seen = probing.look(self._agent, relay, self._patient.patience_s, python)
        version = self._seen.answer.get("python")
        said = f", with Python {version}" if version else ""
        return f"A job has run on {self._seen.node}{said}.", {"node": self._seen.answer.get("node"), "python": version}

    def _node_shared(self) -> Found:
        seen = self._looked()
        if (reason := probing.shared_trouble(seen, self._shared)) is not None:
            raise Trouble(reason)
        return f"{seen.node} sees what the head node writes, and can write itself.", {}

    def _node_relay(self) -> Found:
        if self._patient.config["relay"] != "tcp":
            raise Inapplicable("It is by files; the canary uses them.")
        seen = self._looked()
        if (reason := probing.relay_trouble(seen)) is not None:
            raise Trouble(reason, "files")
        reached = seen.answer.get("reached")
        return f"{seen.node} reaches the head node" + (f" at {reached}." if reached else "."), {"address": reached}

    def _node_clock(self) -> Found:
        seen = self._looked()
        skew = seen.skew_s(self._ahead_s)
        assert skew is not None, "a node that sees the shared directory has answered"
        return _judged(f"The clock of {seen.node}", skew, "the head node's", bound=True)

    def _looked(self) -> probing.Seen:
        assert self._seen is not None, "it is examined after the node"
        return self._seen

    def _canary(self) -> Found:
        figures = canary.fly(self._agent, self._patient.patience_s)
        message = (
            "Submitted in {submit_s:.1f} s, at its barrier {barrier_s:.1f} s later, released in {release_s:.1f} s."
        )
        return message.format(**figures), {name: round(value, 3) for name, value in figures.items()}

    def _launch(self) -> Found:
        wishes = self._diagnosed("span")["wishes"]
        if wishes is None:
            raise Inapplicable("No job of this cluster can be made to lie on two nodes.")
        names = canary.spread(self._agent, wishes, self._patient.patience_s)
        if len(names) < 2:
            raise Doubtful(f"The job that should have lain on two nodes ran on {' and '.join(names)} only.")
        return f"Processes were started on {' and '.join(names)}.", {"nodes": names}


_FUNCTIONS: dict[str, Callable[[Examination], Found]] = {
    "login": Examination._login,
    "python": Examination._check_python,
    "clock": Examination._clock,
    "shared": Examination._shared_directory,
    "batch": Examination._batch,
    "queue": Examination._queue,
    "access": Examination._access,
    "drmaa": Examination._drmaa,
    "node": Examination._node,
    "node_shared": Examination._node_shared,
    "node_relay": Examination._node_relay,
    "node_clock": Examination._node_clock,
    "canary": Examination._canary,
    "launch": Examination._launch,
}


def _broken(error: Exception) -> Reason:
    message = f"The examination itself broke: {type(error).__name__}: {error}."
    return Reason("doctor_broken", "ours", message, "Report it to koalapy's authors.")


def _at_login(reason: Reason) -> Reason:
    """What koalad's login would do about it, this one cannot."""
    return replace(reason, advice=_ASKS) if reason.code in ("asks", "answer_refused") else reason


def _judged(whose: str, skew_s: float, than: str, bound: bool = False) -> Found:
    """`bound`: the clocks are at least so far apart."""
    apart = abs(skew_s)
    at_least = "at least " if bound else ""
    said = f"{whose} is {at_least}{apart:.1f} s {'ahead of' if skew_s > 0 else 'behind'} {than}."
    if apart >= _SKEW_BAD_S:
        advice = "Ask the administrator to have it set by NTP: batch systems refuse what comes from another time."
        raise Trouble(Reason("clock_skew", "site", said, advice))
    if apart >= _SKEW_NOTED_S:
        raise Doubtful(f"{said} koalapy maps all times, but file times and credentials may suffer.")
    return (f"{whose} agrees with {than}." if apart < 1 else said), {"ahead_s": round(skew_s, 3)}


def _size(size: int) -> str:
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size // 1024} KiB"
