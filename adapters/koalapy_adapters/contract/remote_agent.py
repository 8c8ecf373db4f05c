"""The agent on the head node, beside all that is pushed: JSON lines in and out, the KCM's own BatchSystem between.

    {"do": "begin", "config": ClusterConfig, "timeout": S}    -> {"cluster": BatchSettings}
    {"do": "call", "name": NAME, "arguments": […]}            -> an answer of `calls`, with "ran": the Results
    {"do": "script", "job": BatchJob}                         -> {"value": TEXT} or {"error": …}
    {"do": "run", "argv": […], "timeout": S}                  -> {"result": Result}
    {"do": "write", "path": PATH, "text": TEXT, "mode": MODE} -> {}, with the directories above it
    {"do": "environment", "changes": {NAME: VALUE or null}}   -> {"before": {NAME: VALUE or null}}

It needs Python 3.6 and the standard library only, as everything that runs there.
"""

import json
import os
import sys
from typing import Any, Callable, Dict, List, Optional

from koalapy_adapters.batch.protocol import BatchJob
from koalapy_adapters.contract import calls
from koalapy_adapters.errors import BatchError, Result
from koalapy_adapters.kcm.execution import job_spec
from koalapy_adapters.kcm.execution.batch_system import BatchSystem, failure_of, load
from koalapy_adapters.kcm.execution.drmaa.client import DrmaaSessions
from koalapy_adapters.kcm.execution.drmaa.helper import find_library
from koalapy_adapters.kcm.execution.subprocess_runner import Handle, Ran, run
from koalapy_adapters.messages.koalad import ClusterConfig

Json = Dict[str, Any]


def main(argv: List[str]) -> int:
    """Serve requests until the end of the input. `argv` is empty."""
    agent = RemoteAgent()
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints, prints elsewhere
    for line in sys.stdin:
        out.write(json.dumps(agent.perform(json.loads(line))) + "\n")
        out.flush()
    agent.end()
    return 0


class RemoteAgent:
    """One batch system, and the results of its commands since the last call began."""

    def __init__(self) -> None:
        self._batch: Any = None
        self._dialect: Any = None
        self._drmaa: Optional[DrmaaSessions] = None
        self._ran: List[Result] = []

    def perform(self, request: Json) -> Json:
        """Return the answer to one request."""
        return _REQUESTS[request.pop("do")](self, **request)

    def end(self) -> None:
        if self._drmaa is not None:
            self._drmaa.close()

    def _begin(self, config: Json, timeout: float) -> Json:
        self.end()
        described = ClusterConfig(**config)
        shared = os.path.expanduser(described.shared or "~/.koala")
        cluster = job_spec.batch_settings(described, shared, os.path.abspath(sys.argv[0]))
        try:
            self._dialect = load(described.batch)
        except BatchError as error:
            return {"error": failure_of(error)}
        library = find_library(described.drmaa, self._dialect)
        self._drmaa = (
            DrmaaSessions([*cluster.command, "drmaa-helper"], library, lambda event: None) if library else None
        )
        self._batch = BatchSystem(self._dialect, cluster, self._drmaa, timeout, self._noted)
        return {"cluster": calls.plain(cluster)}

    def _noted(self, argv: List[str], timeout: float, handle: Optional[Handle]) -> Ran:
        ran = run(argv, timeout, handle)
        self._ran.append(ran.result)
        return ran

    def _call(self, name: str, arguments: List[Any]) -> Json:
        del self._ran[:]
        document = calls.answer(self._batch, name, arguments)
        return dict(document, ran=calls.plain(self._ran))

    def _script(self, job: Json) -> Json:
        try:
            return {"value": self._dialect.script(BatchJob(**job))}
        except BatchError as error:
            return {"error": failure_of(error)}

    def _run(self, argv: List[str], timeout: float) -> Json:
        return {"result": calls.plain(run(argv, timeout).result)}

    def _write(self, path: str, text: str, mode: int) -> Json:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, mode)
        return {}

    def _environment(self, changes: Dict[str, Optional[str]]) -> Json:
        before = {name: os.environ.get(name) for name in changes}
        for name, value in changes.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        return {"before": before}


_REQUESTS: Dict[str, Callable[..., Json]] = {
    "begin": RemoteAgent._begin,
    "call": RemoteAgent._call,
    "script": RemoteAgent._script,
    "run": RemoteAgent._run,
    "write": RemoteAgent._write,
    "environment": RemoteAgent._environment,
}
