"""The KCM's BatchSystem on a head node, for the tests: an agent there, JSON lines over the real connection."""

import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from koalapy_adapters.batch.protocol import BatchJob, BatchSettings, Capacity, Description, JobStatus
from koalapy_adapters.connections import bootstrap
from koalapy_adapters.connections.pack import Packed, pack, packed
from koalapy_adapters.contract.calls import Json, plain
from koalapy_adapters.contract.target import Login
from koalapy_adapters.errors import BatchError, ClusterError, RequestError, Result, TransientError, UnreadableError
from koalapy_adapters.kcm.execution.batch_system import TIMEOUT, Found, SubmitDoubt

Record = Callable[[Json], None]
_TRAVELS = ("__init__.py", "calls.py", "remote_agent.py")
_MAIN = b"""\
import sys
from koalapy_adapters import __main__ as pushed
pushed._PARTS["remote-agent"] = "koalapy_adapters.contract.remote_agent"
sys.exit(pushed.main())
"""
_ERRORS: dict[str, type[BatchError]] = {
    kind.whose: kind for kind in (TransientError, ClusterError, RequestError, UnreadableError)
}


class RemoteBatch:
    """One user's BatchSystem. Its methods block, and raise the same errors. Only one thread at a time may use it."""

    def __init__(self, login: Login, record: Record | None = None) -> None:
        self._login, self._record = login, record
        self.error_lines: list[str] = []  # on standard error
        config = login.config
        target = bootstrap.Target(config["shared"], config["python"], ("remote-agent",))
        self._channel = bootstrap.start(login.connection, _with_remote_agent(), target, self.error_lines.append)
        self._read = b""
        self.ran: list[Result] = []  # by the last call
        self.cluster = self.begin()

    def begin(self, timeout: float = TIMEOUT) -> BatchSettings:
        """Begin anew, with `timeout` seconds for each command. Returns the cluster's settings."""
        return BatchSettings(**_value(self._ask(do="begin", config=self._login.config, timeout=timeout), "cluster"))

    # ---- BatchSystem

    def describe(self) -> Description:
        return Description(**self._call("describe"))

    def submit(self, job: BatchJob) -> str:
        """Submit a job and return its batch id; see BatchSystem.submit.

        A script of its own is written into the job's directory, which is made.
        """
        script = _value(self._ask(do="script", job=plain(job)))
        path = f"{job.directory}/script"
        self.write(path, script, 0o700)
        return self.submit_script(job, path)

    def submit_script(self, job: BatchJob, path: str) -> str:
        return str(self._call("submit", plain(job), path))

    def look(self, tag: str, batch_id: str = "") -> Found:
        found = self._call("look", tag, batch_id)
        return Found(*(JobStatus(**each) if each else None for each in (found["listed"], found["accounted"])))

    def check(self, *batch_ids: str) -> dict[str, JobStatus]:
        return {name: JobStatus(**each) for name, each in self._call("check", list(batch_ids)).items()}

    def cancel(self, batch_id: str) -> None:
        self._call("cancel", batch_id)

    def hold(self, batch_id: str) -> bool:
        return bool(self._call("hold", batch_id))

    def release(self, batch_id: str) -> bool:
        return bool(self._call("release", batch_id))

    def capacity(self) -> Capacity:
        fields = self._call("capacity")
        statuses = {name: JobStatus(**each) for name, each in fields.pop("statuses").items()}
        return Capacity(statuses=statuses, **fields)

    def queue_fingerprint(self) -> list[str] | None:
        reply = self._call("queue_fingerprint")
        return None if reply is None else list(reply)

    # ---- the head node

    def run(self, *argv: str, timeout: float = TIMEOUT) -> Result:
        """Run a command on the head node, as the KCM runs commands. `timeout` in seconds."""
        return Result(**self._ask(do="run", argv=list(argv), timeout=timeout)["result"])

    def output(self, *argv: str) -> str:
        """Standard output of a command that must succeed."""
        result = self.run(*argv)
        assert result.exit_status == 0, result
        return result.stdout

    def write(self, path: str, text: str, mode: int = 0o600) -> None:
        self._ask(do="write", path=path, text=text, mode=mode)

    @contextmanager
    def environment(self, **changes: str | None) -> Iterator[None]:
        """Change the environment of the commands while the block runs; None removes a variable."""
        before = self._ask(do="environment", changes=changes)["before"]
        try:
            yield
        finally:
            self._ask(do="environment", changes=before)

    def close(self) -> None:
        self._channel.close()

    # ---- below

    def _call(self, name: str, *arguments: Any) -> Any:
        reply = self._ask(do="call", name=name, arguments=list(arguments))
        ran = reply.pop("ran")
        self.ran = [Result(**each) for each in ran]
        if self._record is not None and ran:
            asked = {"batch": self._login.config["batch"], "call": name, "arguments": list(arguments)}
            self._record({**asked, "cluster": plain(self.cluster), "results": ran, "answer": reply})
        return _value(reply)

    def _ask(self, **request: Any) -> Json:
        self._channel.write(json.dumps(request).encode() + b"\n")
        while b"\n" not in self._read:
            more = self._channel.read(1 << 16)
            assert more, f"The agent on {self._login.connection.where} ended: {' '.join(self.error_lines[-3:])}"
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        answer: Json = json.loads(line)
        return answer


def _value(reply: Mapping[str, Any], key: str = "value") -> Any:
    if "doubt" in reply:
        raise SubmitDoubt(_error(reply["doubt"]))
    if "error" in reply:
        raise _error(reply["error"])
    return reply[key]


def _error(failure: Mapping[str, Any]) -> BatchError:
    result = Result(failure["command"].split(), failure["exit_status"], "", failure["words"])
    return _ERRORS[failure["whose"]](failure["code"], failure["message"], failure["advice"], result)


def _with_remote_agent() -> Packed:
    """The pushed file of this installation, with the few files of the agent."""
    with zipfile.ZipFile(io.BytesIO(packed().data)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    here = Path(__file__).parent
    files.update({f"koalapy_adapters/contract/{name}": (here / name).read_bytes() for name in _TRAVELS})
    return pack({**files, "__main__.py": _MAIN})
