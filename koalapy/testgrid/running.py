"""The running test grid for tests and benchmarks: commands as a user, faults, and a reset."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from koalapy.testgrid import layout, repair
from koalapy.testgrid.containers import Containers, Executed

POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Running:
    """The test grid after `up`. Faults are injected through `containers`; `reset` undoes them all."""

    grid_file: Path
    clusters: tuple[str, ...]
    containers: Containers

    def grid(self, *clusters: str) -> dict[str, Any]:
        """Return the content of a grid file of these clusters, or of all if none is named."""
        found: dict[str, Any] = yaml.safe_load(self.grid_file.read_text())
        found["clusters"] = {name: found["clusters"][name] for name in clusters or found["clusters"]}
        return found

    def exec(self, host: str, argv: Sequence[str], user: str = layout.USER) -> Executed:
        """Run a command on a host in the user's login environment and home."""
        return self.containers.exec(host, argv, user, login=True)

    def check(self, host: str, argv: Sequence[str], user: str = layout.USER) -> str:
        """Return the output of a command that must succeed, with standard error. Raises ContainersError if it fails."""
        return self.containers.check(host, argv, user, login=True)

    def shell(self, host: str, script: str, user: str = layout.USER) -> str:
        """Return the output of a bash script that must succeed. Raises ContainersError if it fails."""
        return self.check(host, ["bash", "-euo", "pipefail", "-c", script], user)

    def pause(self, *hosts: str) -> None:
        for host in hosts:
            self.containers.pause(host)

    def unpause(self, *hosts: str) -> None:
        for host in hosts:
            self.containers.unpause(host)

    def eventually(self, condition: Callable[[], bool], what: str, timeout_s: float = 180) -> None:
        """Poll until the condition is true. Raises AssertionError, which quotes `what`, after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"within {timeout_s:.0f} s it did not happen that {what}")
            time.sleep(POLL_S)

    def reset(self) -> None:
        """Undo faults, cancel all jobs, remove users' files, and wait for idle nodes. Raises ContainersError."""
        repair.reset(self.containers)
