"""Starts the Launcher with the settings of its attempt's component.json and its environment."""

import os
import sys
from typing import Any, Dict, List

from koalapy_adapters import clock, layout
from koalapy_adapters.host import descendants
from koalapy_adapters.launcher.loop import Loop
from koalapy_adapters.launcher.machine import Settings
from koalapy_adapters.launcher.program import Program, limits
from koalapy_adapters.launcher.slot import Limits
from koalapy_adapters.launcher.slots import Setting, SlotBroken

Json = Dict[str, Any]

_DRAIN_S = 5.0
_BROKEN, _USAGE = 70, 2


def main(argv: List[str]) -> int:
    """Run `launcher ATTEMPT_DIRECTORY SOCKET HOST`, as the node agent starts it.

    SOCKET is where the wrapper listens; HOST is the batch system's name of this node. Returns 0 after a signal to end,
    or when nothing more fits into the walltime.
    """
    if len(argv) != 3:
        sys.stderr.write("usage: launcher ATTEMPT_DIRECTORY SOCKET HOST\n")
        return _USAGE
    attempt, path, host = os.path.abspath(argv[0]), argv[1], argv[2]
    component = layout.read_json(layout.inside(attempt, "component.json"))
    if component is None:
        sys.stderr.write("koala launcher: there is no component.json in %s.\n" % attempt)
        return _USAGE
    descendants.become_subreaper()
    try:
        Loop(_settings(component, host), _setting(attempt, component["program"], host), path).run()
    except (SlotBroken, OSError, ValueError) as error:
        sys.stderr.write("koala launcher: %s\n" % error)
        return _BROKEN
    return 0


def _settings(component: Json, host: str) -> Settings:
    program = component["program"]
    sweep = program["sweep"]
    drain_s = sweep.get("drain_s")
    return Settings(
        host=host,
        slots=sweep["slots"],
        orphan_timeout=clock.microseconds(component["orphan_timeout"]),
        grace=clock.microseconds(_grace_s(program)),
        ends_at=clock.now() + clock.microseconds(program["walltime"]),
        drain=clock.microseconds(_DRAIN_S if drain_s is None else drain_s),
    )


def _setting(attempt: str, program: Json, host: str) -> Setting:
    work = layout.inside(attempt, "work")
    walltime_s, output = limits(program["sweep"])
    template = Program(program, os.environ, work)
    return Setting(attempt, work, host, template, Limits(walltime_s, output, _grace_s(program)))


def _grace_s(program: Json) -> float:
    """A grace shorter than the node agent's: parameters must be returned before the agent ends the Launcher."""
    grace = float(program["grace"])
    return grace - min(1.0, grace / 4)
