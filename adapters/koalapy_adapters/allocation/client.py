"""Requests to a queue from a KCM or a command: by its socket, after its server was started if need be.

Queues lie in one place of the shared directory. Each has a directory that is named for its batch job or its machine.
The queue of the batch job around this process, or of this machine, takes jobs. Of the others only the ends of their
jobs are read.
"""

import fcntl
import json
import os
import socket
import sys
import time
from typing import Any, Dict, List, Mapping, Optional, Sequence

from koalapy_adapters.allocation import jobs, journal, outer_job, requests, script
from koalapy_adapters.errors import BatchError, ClusterError, RequestError, TransientError

Json = Dict[str, Any]

ANSWER_S = 28.0
_SILENT_S = 60.0  # after which a server on another host counts as gone
_OTHERS = 20  # queues of earlier allocations that `find` looks into
_ALLOCATION_ENDED = "the allocation has ended"


class Client:
    """The queues below a place. `command` starts the pushed file, in case a server must be started.

    `slots`: the processors of this machine, if its own queue is meant; 0: as before. None: that of a batch job.
    """

    def __init__(
        self, place: str, command: Sequence[str], environment: Mapping[str, str], slots: Optional[int] = None
    ) -> None:
        self._place, self._command, self._environment = os.path.abspath(place), list(command), environment
        self._slots = slots

    def run(self, words: Sequence[str]) -> Json:
        """The answer to one command. Raises BatchError."""
        do, arguments = words[0], list(words[1:])
        try:
            return _COMMANDS[do](self, arguments)
        except OSError as error:
            raise requests.unusable(self._place, error) from error

    def write_starter(self) -> None:
        """Write the file `queue`, which starts a command for those that know its path only. Raises OSError."""
        own = [] if self._slots is None else ["--slots", "0"]
        command = [*self._command, "allocation", self._place, *own]
        words = " ".join("'%s'" % word.replace("'", "'\\''") for word in command)
        text = '#!/bin/sh\nexec %s "$@"\n' % words
        path = os.path.join(self._place, "queue")
        try:
            with open(path) as file:
                if file.read() == text:
                    return
        except OSError:
            os.makedirs(self._place, mode=0o700, exist_ok=True)
        new = "%s.%d" % (path, os.getpid())
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o700), "w") as file:
            file.write(text)
        os.rename(new, path)

    def _describe(self, words: List[str]) -> Json:
        self.write_starter()
        return self._ask(self._current(), {"do": "describe"})

    def _capacity(self, words: List[str]) -> Json:
        return self._ask(self._current(), {"do": "capacity"})

    def _submit(self, words: List[str]) -> Json:
        path = os.path.abspath(words[0])
        return self._ask(self._current(), {"do": "submit", "path": path, "script": script.read(words)})

    def _status(self, words: List[str]) -> Json:
        found: List[Json] = []
        for directory, ids in self._by_directory(words).items():
            if self._is_served(directory):
                found += self._ask(directory, {"do": "status", "ids": ids})["jobs"]
            else:
                wanted = set(map(requests.number_of, ids))
                known = [job for number, job in journal.read(directory).items() if number in wanted]
                found += [_ended(directory, job) for job in known if self._has_ended(job)]
        return {"jobs": found}

    def _cancel(self, words: List[str]) -> Json:
        return self._control("cancel", words)

    def _suspend(self, words: List[str]) -> Json:
        return self._control("suspend", words)

    def _resume(self, words: List[str]) -> Json:
        return self._control("resume", words)

    def _control(self, action: str, batch_ids: List[str]) -> Json:
        """Let the queues do this with jobs. A queue without a server has no job that runs."""
        for directory, ids in self._by_directory(batch_ids).items():
            if self._is_served(directory):
                self._ask(directory, {"do": action, "ids": ids})
        return {}

    def _find(self, words: List[str]) -> Json:
        """Look in the queue of this allocation, then in the journals of all."""
        current = self._current_or_none()
        if current is not None:
            found = self._ask(current, {"do": "find", "name": words[0]})["jobs"]
            if found:
                return {"jobs": found}
        for directory in self._directories():
            named = [job for job in journal.read(directory).values() if job.name == words[0]]
            if named and (directory == current or not self._is_served(directory)):
                newest = max(named)
                if not self._has_ended(newest):
                    raise _elsewhere("The job is in %s, which has no server now." % directory)
                return {"jobs": [_ended(directory, newest)]}
        return {"jobs": []}

    def _has_ended(self, job: jobs.Job) -> bool:
        """Return whether a job of a queue without a server is over. In a machine's own queue it may go on without."""
        return self._slots is None or job.state == jobs.ENDED

    def _by_directory(self, batch_ids: Sequence[str]) -> Dict[str, List[str]]:
        """The ids by their queue, without those of queues elsewhere: whoever wrote these could have made the queue."""
        found: Dict[str, List[str]] = {}
        for batch_id in batch_ids:
            directory = batch_id.partition("@")[2]
            if os.path.dirname(directory) == self._place and os.path.basename(directory) not in ("", ".", ".."):
                found.setdefault(directory, []).append(batch_id)
        return found

    def _directories(self) -> List[str]:
        """The queues, the ones used last first."""
        found = [os.path.join(self._place, name) for name in os.listdir(self._place)]
        dated = [(os.path.getmtime(path), path) for path in found if os.path.isdir(path)]
        return [path for _, path in sorted(dated, reverse=True)[:_OTHERS]]

    def _current(self) -> str:
        return _current(self._place, self._environment, self._slots)

    def _current_or_none(self) -> Optional[str]:
        try:
            return self._current()
        except ClusterError:
            return None

    def _is_served(self, directory: str) -> bool:
        """Return whether the queue may have a server. Of one on another host only its sign of life is seen."""
        if directory == self._current_or_none():
            return True
        address = journal.read_address(directory)
        if address is None:
            return False
        return address.lives if address.is_here else not journal.is_silent(directory, time.time(), _SILENT_S)

    def _ask(self, directory: str, request: Json) -> Json:
        """The server's answer; a server is started if there is none, and this is the current allocation."""
        if self._slots:
            request = dict(request, slots=self._slots)
        answer = _exchange(directory, request)
        if answer is None:
            self._start(directory)
            answer = _exchange(directory, request)
        if answer is None:
            raise TransientError("no_answer", "The server of the queue has ended.", "Try again.")
        if "error" in answer:
            raise error_of(answer["error"])
        return answer

    def _start(self, directory: str) -> None:
        """Start the server, unless another process has done so meanwhile. Raises BatchError if it cannot run."""
        os.makedirs(directory, mode=0o700, exist_ok=True)
        with open(os.path.join(directory, "lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            address = journal.read_address(directory)
            if address is not None and address.lives and _connected(address.socket) is not None:
                return
            if address is not None and not address.is_here and not journal.is_silent(directory, time.time(), _SILENT_S):
                raise _elsewhere("The queue is served on %s, and this is %s." % (address.host, os.uname().nodename))
            _start_server(directory, self._command, self._environment, self._slots)


def answer(
    place: str, command: Sequence[str], environment: Mapping[str, str], words: Sequence[str], slots: Optional[int]
) -> Json:
    """The answer to a command as a document; it holds the error of a command that failed."""
    try:
        return Client(place, command, environment, slots).run(words)
    except BatchError as error:
        return requests.refusal(error)


def watch(place: str, environment: Mapping[str, str], slots: Optional[int]) -> Optional[socket.socket]:
    """A connection on which the server sends a byte when jobs have ended; None while there is no server."""
    try:
        directory = _current(os.path.abspath(place), environment, slots)
    except ClusterError:
        return None
    address = journal.read_address(directory)
    connection = _connected(address.socket) if address is not None and address.is_here else None
    if connection is not None:
        connection.sendall(b'{"do": "watch"}\n')
    return connection


def error_of(described: Json) -> BatchError:
    kinds = {"transient": TransientError, "cluster": ClusterError, "request": RequestError}
    kind = kinds.get(described["whose"], BatchError)
    return kind(described["code"], described["message"], described["advice"])


def _exchange(directory: str, request: Json) -> Optional[Json]:
    """Send a request. Returns None if no server took it; raises TransientError if it did not answer."""
    address = journal.read_address(directory)
    connection = _connected(address.socket) if address is not None and address.is_here else None
    if connection is None:
        return None
    with connection:
        try:
            connection.settimeout(ANSWER_S)
            connection.sendall(json.dumps(request).encode() + b"\n")
            data = b""
            while not data.endswith(b"\n"):
                part = connection.recv(1 << 16)
                if not part:
                    raise OSError("it hung up")
                data += part
        except OSError as error:
            message = "The server of the queue did not answer: %s." % error
            raise TransientError("no_answer", message, "Look into %s." % journal.log_path(directory)) from error
    answered: Json = json.loads(data.decode())
    return answered


def _connected(path: str) -> Optional[socket.socket]:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
        return connection
    except OSError:
        connection.close()
        return None


def _start_server(directory: str, command: List[str], environment: Mapping[str, str], slots: Optional[int]) -> None:
    """Start the server as a process of its own session, and wait until it takes requests. Raises BatchError."""
    from koalapy_adapters.host.spawn import spawn

    reading, writing = os.pipe()
    null = os.open(os.devnull, os.O_RDONLY)
    log = os.open(journal.log_path(directory), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    own = [] if slots is None else ["--slots", str(slots)]
    pid = spawn([*command, "allocation", directory, *own, "serve", *command], environment, [null, writing, log], "/")
    for descriptor in (null, log, writing):
        os.close(descriptor)
    with open(reading, "rb") as file:
        text = file.read()
    os.waitpid(pid, 0)
    if text.strip() == b"{}":
        return
    try:
        raise error_of(json.loads(text.decode())["error"])
    except ValueError as broken:
        message = "The server of the queue did not start."
        raise ClusterError("no_server", message, "Look into %s." % journal.log_path(directory)) from broken


def serve(directory: str, slots: Optional[int], command: List[str]) -> int:
    """In the process that `_start_server` has started: leave the server behind in a session of its own."""
    from koalapy_adapters.allocation import server

    if os.fork() > 0:
        return 0
    os.setsid()

    def answered(error: Optional[BatchError]) -> None:
        sys.stdout.write(json.dumps({} if error is None else requests.refusal(error)) + "\n")
        sys.stdout.flush()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)

    return server.serve(directory, slots, command, answered)


def _current(place: str, environment: Mapping[str, str], slots: Optional[int]) -> str:
    """The directory of the queue that takes jobs. Raises ClusterError outside of an allocation."""
    found = outer_job.find(environment) if slots is None else outer_job.own_queue()
    return os.path.join(place, found.name)


def _elsewhere(message: str) -> ClusterError:
    return ClusterError("queue_elsewhere", message, "Let `connect:` always lead to the same host, or end that server.")


def _ended(directory: str, job: jobs.Job) -> Json:
    """A job of a queue without a server. One that had not ended is lost with the allocation."""
    if job.state != jobs.ENDED:
        job = job._replace(state=jobs.ENDED, ending="lost", reason=_ALLOCATION_ENDED)
    return requests.view(directory, job)


_COMMANDS = {
    "describe": Client._describe,
    "capacity": Client._capacity,
    "submit": Client._submit,
    "status": Client._status,
    "cancel": Client._cancel,
    "suspend": Client._suspend,
    "resume": Client._resume,
    "find": Client._find,
}
