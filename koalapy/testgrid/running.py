"""The test grid in the hands of tests and benches: commands as a user, faults, and back to the beginning."""

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
    """The test grid as `up` leaves it. Faults are injected on `containers`; `reset` undoes them all."""

    grid_file: Path
    clusters: tuple[str, ...]
    containers: Containers

    def grid(self, *clusters: str) -> dict[str, Any]:
        """The content of a grid file of these clusters alone; of all, where none is named."""
        found: dict[str, Any] = yaml.safe_load(self.grid_file.read_text())
        found["clusters"] = {name: found["clusters"][name] for name in clusters or found["clusters"]}
        return found

    def exec(self, host: str, argv: Sequence[str], user: str = layout.USER) -> Executed:
        """Runs a command on a host in the user's login environment, in the user's home."""
        return self.containers.exec(host, argv, user, login=True)

    def check(self, host: str, argv: Sequence[str], user: str = layout.USER) -> str:
        """The same for a command that must succeed: its output, standard error included."""
        return self.containers.check(host, argv, user, login=True)

    def shell(self, host: str, script: str, user: str = layout.USER) -> str:
        """The output of a bash script that must succeed."""
        return self.check(host, ["bash", "-euo", "pipefail", "-c", script], user)

    def pause(self, *hosts: str) -> None:
        for host in hosts:
            self.containers.pause(host)

    def unpause(self, *hosts: str) -> None:
        for host in hosts:
            self.containers.unpause(host)

    def eventually(self, condition: Callable[[], bool], what: str, timeout_s: float = 180) -> None:
        """For what nothing announces: asks until it is so, else raises AssertionError with `what` did not come."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"within {timeout_s:.0f} s it did not happen that {what}")
            time.sleep(POLL_S)

    def reset(self) -> None:
        """Everything runs as composed, nothing of anybody's is on it, every node is idle."""
        repair.reset(self.containers)
