"""Means of breaking the test grid that are more than one call of the engine, and of mending what they broke."""

from collections.abc import Sequence
from typing import Literal

from koalapy.testgrid.containers import Containers
from koalapy.testgrid.layout import USER

DISK = "/shared"  # beta's shared disk, which is small enough to be filled
_BALLAST = f"{DISK}/ballast"

Which = Literal["all", "oldest", "newest"]
_OPTIONS: dict[Which, Sequence[str]] = {"all": (), "oldest": ("--oldest",), "newest": ("--newest",)}


def kill_command(containers: Containers, host: str, pattern: str, which: Which = "all", user: str = USER) -> None:
    """`kill -9` of the user's processes whose command lines match the pattern; there must be one."""
    containers.check(host, ["pkill", "-KILL", *_OPTIONS[which], "--uid", user, "--full", pattern])


def start_services(containers: Containers, host: str) -> None:
    """Start what should run on the host and does not; in the end it runs."""
    containers.check(host, ["/opt/testgrid/start"])


def fill_disk(containers: Containers, host: str = "beta") -> None:
    """Leave not a byte on beta's shared disk, for anybody."""
    script = f"set +e; dd if=/dev/zero of={_BALLAST} bs=1M; dd if=/dev/zero of={_BALLAST}.rest bs=1; true"
    containers.check(host, ["bash", "-c", f"({script}) 2>/dev/null"])


def free_disk(containers: Containers, host: str = "beta") -> None:
    """Give back what `fill_disk` took; nothing, if it took nothing."""
    containers.check(host, ["rm", "-f", _BALLAST, f"{_BALLAST}.rest"])
