"""The behaviour of a simulated program, written as arguments of its component: run time, files that it leaves, end."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from koalapy.model.units import SECOND, Duration

EXECUTABLE = "./program"
WAITING = "sleep"  # the program of a pilot that holds a lease, with its seconds
MISSING = "./missing"  # an executable that no attempt has, which a node finds out before its barrier
AT_HOME = "/home/me/program"  # an executable that no lease has


class Behaviour(NamedTuple):
    """`runs` is its run time; `files` are written to its working directory if it ends by itself.

    A `deaf` program ignores SIGTERM: it runs on until it is killed. `wide`: so much longer for each cluster
    beyond the first that its job lies on.
    """

    runs: Duration = Duration(10 * SECOND)
    exit_status: int = 0
    deaf: bool = False
    files: tuple[str, ...] = ()
    wide: Duration = Duration(0)


def arguments_of(behaviour: Behaviour) -> tuple[str, ...]:
    deaf = "deaf" if behaviour.deaf else "obeys"
    runs = f"{behaviour.runs}+{behaviour.wide}" if behaviour.wide else f"{behaviour.runs}"
    return (runs, f"{behaviour.exit_status}", deaf, *behaviour.files)


def behaviour_of(arguments: Sequence[str]) -> Behaviour:
    """The inverse of `arguments_of`."""
    lasts, status, deaf, *files = arguments
    runs, _, wide = lasts.partition("+")
    return Behaviour(Duration(int(runs)), int(status), deaf == "deaf", tuple(files), Duration(int(wide or 0)))


@dataclass(frozen=True, slots=True)
class ProgramPlan:
    """The behaviour of a program on a node. `found`: its executable exists."""

    found: bool
    duration: Duration = Duration(0)
    exit_status: int = 0
    stubborn: bool = False
    writes: tuple[str, ...] = ()
    wide: Duration = Duration(0)

    def lasts(self, clusters: int) -> Duration:
        """Return the run time in a job that uses this many clusters."""
        return Duration(self.duration + (clusters - 1) * self.wide)


def program_plan_of(program: dict[str, Any]) -> ProgramPlan:
    """`program`: messages.Program as JSON. A Launcher is not what it runs: it is found, and ends by itself."""
    if program.get("sweep"):
        return ProgramPlan(True)
    if program["executable"] == WAITING:
        return ProgramPlan(True, Duration(int(program["arguments"][0]) * SECOND))
    if program["executable"] not in (EXECUTABLE, AT_HOME):
        return ProgramPlan(False)
    behaviour = behaviour_of(program["arguments"])
    return ProgramPlan(True, *behaviour)
