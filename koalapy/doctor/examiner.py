"""The function of each check of one cluster. It returns a message if the check passes, and raises if it does not."""

import json
import secrets
import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from koalapy_adapters.connections import bootstrap
from koalapy_adapters.connections.pack import packed
from koalapy_adapters.connections.protocol import Connection
from koalapy_adapters.errors import BatchError
from koalapy_adapters.isolation import options
from koalapy_adapters.isolation.options import Isolation
from koalapy_adapters.messages.fields import shown

from koalapy.doctor import end_to_end_job, probe_job
from koalapy.doctor.checks import Doubtful, Figures, Found, Inapplicable, Trouble
from koalapy.doctor.interpreters import suggested
from koalapy.doctor.kcm_session import Interrupted, KcmSession, refusal
from koalapy.link.translate import reason_of_error
from koalapy.model.counts import counted_as
from koalapy.model.errors import ClusterError, Reason
from koalapy.model.identity import instance_id

_OF_PYTHON = frozenset({"no_python", "python_incomplete", "python_too_old"})
_OF_SHARED = frozenset({"directory_full", "directory_not_writable", "shared_open_to_others"})
_LITTLE = 16 << 20  # bytes; less space is soon used up by staged files and output
_ASKS = "Run `koala doctor` on a terminal, and answer there: it logs in by itself, whether koalad is connected or not."
_NOTED_SKEW_S, _BAD_SKEW_S = 5.0, 60.0


@dataclass(frozen=True, slots=True)
class ExaminedCluster:
    """A cluster to examine. `config`: the fields of messages.ClusterConfig.

    `patience_s`: the longest time that a job may be queued. `lent`: how borrowers' programs are isolated there; None if
    nothing of it is lent.
    """

    name: str
    config: Mapping[str, Any]
    connection: Connection
    patience_s: float
    lent: Isolation | None = None


class Examiner:
    """Performs checks on one cluster in the order of `checks`, and keeps what later checks need of their results.

    `session`: the session with the KCM on the head node, None until one could be started. Once `stop` is set, none is
    started.
    """

    def __init__(self, cluster: ExaminedCluster, stop: threading.Event) -> None:
        self._cluster, self._stop = cluster, stop
        self.session: KcmSession | None = None
        self._refused: Reason | None = None  # why no KCM could be started on the head node
        self._error_lines: deque[str] = deque(maxlen=20)  # lines of the head node's standard error
        self._python = ""
        self._ahead_s = 0.0
        self._shared = cluster.config["shared"] or "~/.koala"
        self._seen: probe_job.Seen | None = None

    def perform(self, check: str) -> Found:
        """Perform the check of this id.

        Raises Trouble, Undecided, Inapplicable, Doubtful, KoalaError or Interrupted; see check_result.
        """
        return FUNCTIONS[check](self)

    @property
    def _agent(self) -> KcmSession:
        assert self.session is not None, "checks that need it are not performed without"
        return self.session

    def _diagnosed(self, check: str) -> Figures:
        """Return what the head node finds in this check; see messages.Diagnose.

        Raises Trouble if it reports a failure.
        """
        details = self._agent.diagnose(check)
        reason = refusal(details)
        if reason is not None:
            raise Trouble(reason, details.get("value", ""))
        return details

    # ---- the checks

    def _login(self) -> Found:
        """Log in, push the packed file, and start the KCM.

        An error of Python or of the shared directory is kept for the check of that name. Any other error raises
        Trouble.
        """
        connection, config = self._cluster.connection, self._cluster.config
        try:
            target = bootstrap.Target(config["shared"], config["python"])
            channel = bootstrap.start(connection, packed(), target, self._error_lines.append)
        except BatchError as error:
            self._refused = _at_login(reason_of_error(error))
            if error.code in _OF_PYTHON | _OF_SHARED:
                return f"{connection.where} lets us in.", {"host": connection.where}
            raise Trouble(self._refused) from error
        self._error_lines.clear()  # drop the login's output: from now on the KCM writes
        self.session = KcmSession(channel, dict(config), instance_id(secrets.token_bytes(5)), self._error_lines)
        if self._stop.is_set():
            raise Interrupted
        welcome = self.session.begin()
        self._python = welcome.python
        return f"{welcome.host} lets us in.", {"host": welcome.host}

    def _check_python(self) -> Found:
        named = self._cluster.config["python"]
        if self._refused is not None and self._refused.code in _OF_PYTHON:
            raise Trouble(self._refused, suggested(self._cluster.connection))
        if self.session is None:
            return f"{named} starts.", {}
        path = self._diagnosed("head")["python"]
        return f"{path} is Python {self._python}.", {"path": path, "version": self._python}

    def _clock(self) -> Found:
        self._ahead_s = self._agent.skew()
        return judge_clock("The head node's clock", self._ahead_s, "this machine's")

    def _shared_directory(self) -> Found:
        if self._refused is not None:
            raise Trouble(self._refused)
        found = self._diagnosed("shared")
        self._shared = found["path"]
        room = _size(found["free_bytes"])
        if found["free_bytes"] < _LITTLE:
            raise Doubtful(f"{self._shared} is writable, but has only {room} left.")
        return f"{self._shared} is writable; {room} left.", found

    def _batch(self) -> Found:
        found = self._diagnosed("batch")
        name = self._cluster.config["batch"]
        where = f" ({found['command']})" if found["command"] else ""
        return f"{name} {found['version']} answers{where}.", found

    def _queue(self) -> Found:
        found = self._diagnosed("queue")
        if "name" not in found:
            idle = f"{found['idle']} {'is' if found['idle'] == 1 else 'are'} idle"
            return f"{counted_as(found['processors'], 'processor')}, of which {idle}.", found
        limit = found["walltime_s"]
        most = f", for {limit // 60} min at most" if limit else ""
        return f"The queue {found['name']} takes jobs{most}.", found

    def _access(self) -> Found:
        found = self._diagnosed("access")
        if found["words"] is None:
            raise Inapplicable("The batch system has no dry run. The test jobs below will show it.")
        launchers = found["launchers"]
        more = "" if launchers is None else " " + launcher_environment_message(launchers)
        return f"The batch system would take a job of ours.{more}", found

    def _lowest(self) -> Found:
        return lowest_priority(self._diagnosed("lowest")["lowest"])

    def _drmaa(self) -> Found:
        wanted = self._cluster.config["drmaa"]
        library = self._diagnosed("drmaa")["library"]
        if library is None and wanted == "off":
            raise Inapplicable("DRMAA is off; the batch system's commands are used.")
        if library is None:
            raise Doubtful("No native libdrmaa is found on the head node; the batch system's commands are used.")
        return f"{library} opens a session.", {"library": library}

    def _node(self) -> Found:
        relay = self._diagnosed("relay")
        python = self._cluster.config["python"]
        self._seen = probe_job.look(self._agent, relay, self._cluster.patience_s, python)
        version = self._seen.answer.get("python")
        sentence = f", with Python {version}" if version else ""
        return f"A job has run on {self._seen.node}{sentence}.", {
            "node": self._seen.answer.get("node"),
            "python": version,
        }

    def _node_shared(self) -> Found:
        seen = self._looked()
        if (reason := probe_job.shared_trouble(seen, self._shared)) is not None:
            raise Trouble(reason)
        return f"{seen.node} sees what the head node writes, and can write itself.", {}

    def _node_relay(self) -> Found:
        if self._cluster.config["relay"] != "tcp":
            raise Inapplicable("The relay works by files; the canary job tests it.")
        seen = self._looked()
        if (reason := probe_job.relay_trouble(seen)) is not None:
            raise Trouble(reason, "files")
        reached = seen.answer.get("reached")
        return f"{seen.node} reaches the head node" + (f" at {reached}." if reached else "."), {"address": reached}

    def _node_clock(self) -> Found:
        seen = self._looked()
        skew = seen.skew_s(self._ahead_s)
        assert skew is not None, "a node that sees the shared directory has answered"
        return judge_clock(f"The clock of {seen.node}", skew, "the head node's", bound=True)

    def _looked(self) -> probe_job.Seen:
        assert self._seen is not None, "it is examined after the node"
        return self._seen

    def _canary(self) -> Found:
        figures = end_to_end_job.run_canary(self._agent, self._cluster.patience_s)
        message = (
            "Submitted in {submit_s:.1f} s, at its barrier {barrier_s:.1f} s later, released in {release_s:.1f} s."
        )
        return message.format(**figures), {name: round(value, 3) for name, value in figures.items()}

    def _launch(self) -> Found:
        options = self._diagnosed("span")["options"]
        if options is None:
            raise Inapplicable("This cluster cannot run one job on two nodes.")
        names = end_to_end_job.spread(self._agent, options, self._cluster.patience_s)
        if len(names) < 2:
            raise Doubtful(f"The job that should have lain on two nodes ran on {' and '.join(names)} only.")
        return f"Processes were started on {' and '.join(names)}.", {"nodes": names}

    def _isolation(self) -> Found:
        lent = self._cluster.lent
        if lent is None:
            raise Inapplicable("Nothing of this cluster is lent.")
        if lent.method == options.NONE:
            raise Doubtful("`site.lend.isolation` is none: borrowers' programs may do there whatever you may.")
        pushed = f"{self._shared}/bin/{packed().digest}.pyz"
        command = [self._cluster.config["python"], "-I", "-S", pushed, "isolation", lent.method, *lent.visible]
        return judge_isolation(end_to_end_job.isolation(self._agent, command, self._cluster.patience_s))


FUNCTIONS: dict[str, Callable[[Examiner], Found]] = {
    "login": Examiner._login,
    "python": Examiner._check_python,
    "clock": Examiner._clock,
    "shared": Examiner._shared_directory,
    "batch": Examiner._batch,
    "queue": Examiner._queue,
    "access": Examiner._access,
    "lowest": Examiner._lowest,
    "drmaa": Examiner._drmaa,
    "node": Examiner._node,
    "node_shared": Examiner._node_shared,
    "node_relay": Examiner._node_relay,
    "node_clock": Examiner._node_clock,
    "canary": Examiner._canary,
    "launch": Examiner._launch,
    "isolation": Examiner._isolation,
}


def lowest_priority(found: Mapping[str, Any] | None) -> Found:
    """Return a message that others' jobs precede Launchers of sweeps. `found`: the fields of a Lowest, or None.

    Raises Doubtful if Launchers may precede others' jobs, and Inapplicable if the batch system gives no answer.
    """
    if found is None:
        raise Inapplicable("The batch system does not report how the job ends.")
    if not found["is_last"]:
        effect = "So Launchers of sweeps may start before others' jobs; they still leave when those wait."
        raise Doubtful(f"It has no effect. {found['words']} {effect} {found['advice']}")
    return f"It has an effect: Launchers of sweeps come after others' jobs. {found['words']}", dict(found)


def _at_login(reason: Reason) -> Reason:
    """Return the reason of a failed login.

    Its advice is to run `koala doctor` on a terminal if the login asks a question.
    """
    return replace(reason, advice=_ASKS) if reason.code in ("asks", "answer_refused") else reason


def _size(size: int) -> str:
    for unit, name in ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size // 1024} KiB"


def judge_clock(whose: str, skew_s: float, than: str, bound: bool = False) -> Found:
    """Return a message on a clock and its skew.

    `whose` and `than` name the clocks; `skew_s`: seconds that the first is ahead. `bound`: the clocks differ by at
    least `skew_s`. Raises Trouble if they differ by 60 s or more, and Doubtful if by 5 s or more.
    """
    apart = abs(skew_s)
    at_least = "at least " if bound else ""
    sentence = f"{whose} is {at_least}{apart:.1f} s {'ahead of' if skew_s > 0 else 'behind'} {than}."
    if apart >= _BAD_SKEW_S:
        advice = "Ask the administrator to have it set by NTP: batch systems refuse what comes from another time."
        raise Trouble(Reason("clock_skew", "cluster", sentence, advice))
    if apart >= _NOTED_SKEW_S:
        raise Doubtful(f"{sentence} koalapy maps all times, but file times and credentials may suffer.")
    return (f"{whose} agrees with {than}." if apart < 1 else sentence), {"ahead_s": round(skew_s, 3)}


def judge_isolation(printed: bytes) -> Found:
    """Return by which methods a node isolates programs. `printed`: see koalapy_adapters.isolation.probe.

    Raises Trouble if there is none, and ClusterError if it is no answer.
    """
    try:
        found = json.loads(printed)
        node, methods, refused = str(found["node"]), list(map(str, found["methods"])), dict(found["refused"])
    except (ValueError, LookupError, TypeError) as error:
        message = f"What the job has printed is no answer: {shown(printed)}."
        raise ClusterError("garbled", message, "") from error
    why = "; ".join(f"{name}: {words}" for name, words in refused.items())
    if not methods:
        message = f"{node} cannot isolate programs, so that nothing of this cluster is lent."
        raise Trouble(Reason("no_isolation", "cluster", message, _ISOLATE, words=why))
    rest = f" Not by {why}." if why else ""
    return f"{node} isolates programs by {' and '.join(methods)}.{rest}", {"node": node, "methods": methods}


_ISOLATE = (
    "Ask the administrators for bubblewrap, or for user namespaces without privileges. Only if you trust the borrowers"
    " as yourself: `isolation: none` in `site.lend`."
)


def launcher_environment_message(found: Mapping[str, Any]) -> str:
    """Return sentences on the parallel environment that Launchers use, and on a better one if there is any.

    `found` has three keys. `environment`: the name of that in use, or None. `named`: whether the grid file names it.
    `loose`: the best environment that does not control slaves, or None.
    """
    used, loose = found["environment"], found["loose"]
    if used is None:
        return "Sweeps find no parallel environment, and no node of several processors: ask the administrators for one."
    sentence = f"Sweeps use {used}" + (", as `scavenge.parallel_environment` sets" if found["named"] else "")
    if used == loose:
        return f"{sentence}."
    if loose is not None:
        return f"{sentence}; in {loose} their nodes would be free a second sooner."
    wanted = "`allocation_rule $pe_slots` and `control_slaves FALSE`"
    return f"{sentence}; in one with {wanted} their nodes would be free a second sooner: ask the administrators for it."
