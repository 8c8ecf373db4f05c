"""Faults of the test grid that need more than one call of the engine, and their repair."""

from collections.abc import Sequence
from typing import Literal

from koalapy.testgrid.containers import Containers
from koalapy.testgrid.layout import USER

DISK = "/shared"  # beta's shared disk, which is small enough to fill
_BALLAST = f"{DISK}/ballast"

Which = Literal["all", "oldest", "newest"]
_OPTIONS: dict[Which, Sequence[str]] = {"all": (), "oldest": ("--oldest",), "newest": ("--newest",)}


def kill_command(containers: Containers, host: str, pattern: str, which: Which = "all", user: str = USER) -> None:
    """Kill the user's processes whose command lines match. Raises ContainersError if there is none."""
    containers.check(host, ["pkill", "-KILL", *_OPTIONS[which], "--uid", user, "--full", pattern])


def start_services(containers: Containers, host: str) -> None:
    """Start the services of the host that do not run. Raises ContainersError."""
    containers.check(host, ["/opt/testgrid/start"])


def fill_disk(containers: Containers, host: str = "beta") -> None:
    """Fill the host's shared disk to the last byte, for all users."""
    script = f"set +e; dd if=/dev/zero of={_BALLAST} bs=1M; dd if=/dev/zero of={_BALLAST}.rest bs=1; true"
    containers.check(host, ["bash", "-c", f"({script}) 2>/dev/null"])


def free_disk(containers: Containers, host: str = "beta") -> None:
    """Remove the files of `fill_disk`, if there are any."""
    containers.check(host, ["rm", "-f", _BALLAST, f"{_BALLAST}.rest"])
