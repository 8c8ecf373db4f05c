"""Answers of a batch system's commands, written down while live tests run, and read again without it."""

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from koalapy_adapters.batch.protocol import BatchSettings
from koalapy_adapters.contract import calls
from koalapy_adapters.contract.calls import Json
from koalapy_adapters.errors import Result
from koalapy_adapters.kcm.execution.batch_system import BatchSystem
from koalapy_adapters.kcm.execution.subprocess_runner import Handle, Ran


@dataclass(frozen=True, slots=True)
class Recording:
    """One call of BatchSystem: `data` has its name, arguments, cluster, the commands' results, and the answer."""

    name: str
    data: Json

    @property
    def results(self) -> list[Result]:
        return [Result(**each) for each in self.data["results"]]

    def answer(self, dialect: Any, results: list[Result]) -> Json:
        """Return the answer of the call if its commands give these results. Further commands do not answer in time."""
        batch = BatchSystem(dialect, BatchSettings(**self.data["cluster"]), runner=_Replay(results))
        return calls.answer(batch, self.data["call"], self.data["arguments"])


class Recorder:
    """Writes each call to a file, if no similar one was written: calls are similar but for numbers and names."""

    def __init__(self, place: Path) -> None:
        self._place = place
        place.mkdir(parents=True, exist_ok=True)

    def __call__(self, recorded: Json) -> None:
        if any(result["exit_status"] is None for result in recorded["results"]):
            return  # what did not answer in time has no output
        statuses = sorted(re.findall(r'"(?:state|ending|stuck|code)": "(\w*)"', json.dumps(recorded["answer"])))
        alike = [recorded["call"], sorted(set(statuses)), sorted(recorded["answer"])]
        digest = hashlib.sha256(json.dumps(alike).encode()).hexdigest()[:8]
        path = self._place / f"{recorded['call']}-{digest}.json"
        if not path.exists():
            path.write_text(json.dumps(recorded, indent=1) + "\n")


class _Replay:
    """Runs no command, and returns the recorded results in order."""

    def __init__(self, results: list[Result]) -> None:
        self._left = list(results)

    def __call__(self, argv: list[str], timeout: float, handle: Handle | None) -> Ran:
        result = self._left.pop(0) if self._left else Result(argv, None, "", "")
        assert argv == result.argv, "the dialect asks otherwise than when this was recorded: record anew"
        if handle is not None:
            handle.begin()
        return Ran(result, 0)
