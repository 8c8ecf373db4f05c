"""The wrapper's first steps, slow things begun early: claim, agent, then everything else."""

import os
import sys
import time
from typing import Any, Callable, Dict, List, TypeVar

from koalapy_adapters import layout, start_lock
from koalapy_adapters.files import DISK, Files
from koalapy_adapters.host import private_dir, signals

Json = Dict[str, Any]
T = TypeVar("T")

PATIENCE_S = 60.0  # with a shared directory that does not show the attempt yet, or cannot be written
PAUSE_S = 0.2

# What a start of the wrapper is to do: leave an attempt that was revoked; only report that another start has
# claimed it, and perhaps runs it; or run it.
LEAVE, REPORT, RUN = "leave", "report", "run"


def main(argv: List[str]) -> int:
    """`wrapper ATTEMPT_DIRECTORY`. 0 at once for an attempt that was revoked."""
    if len(argv) != 1:
        sys.stderr.write("usage: wrapper ATTEMPT_DIRECTORY\n")
        return 2
    attempt = os.path.abspath(argv[0])
    own = own_claim(os.uname().nodename, os.getpid(), os.urandom(8).hex())
    try:
        component = _patiently(lambda: read_component(attempt))
        verdict = _patiently(lambda: decide(attempt, own))
    except (OSError, ValueError) as error:
        sys.stderr.write(
            "koala wrapper: the attempt in %s cannot be claimed (%s). Nothing was run.\n" % (attempt, error)
        )
        return 1
    if verdict == LEAVE:
        return 0
    return _run_again(attempt, component) if verdict == REPORT else _run(attempt, component)


def own_claim(node: str, pid: int, unique: str) -> start_lock.StartLock:
    """The claim of this start of the wrapper, and of no other."""
    return start_lock.StartLock(start_lock.TAKEN, "wrapper %s %d %s" % (node, pid, unique))


def read_component(attempt: str, files: Files = DISK) -> Json:
    """component.json. Raises OSError or ValueError while it does not show."""
    component = layout.read_json(layout.inside(attempt, "component.json"), files)
    if not isinstance(component, dict):
        raise FileNotFoundError("there is no component.json")
    return component


def decide(attempt: str, own: start_lock.StartLock, files: Files = DISK) -> str:
    """Decide what this start of the attempt is to do: LEAVE, REPORT or RUN.

    Raises OSError or ValueError if that cannot be known yet.
    """
    held = start_lock.take(attempt, own, files)
    if held.kind == start_lock.VOID:
        return LEAVE
    return RUN if held == own else REPORT


def _run(directory: str, component: Json) -> int:
    signals.hold()  # until the loop, and the agent, can handle them
    from koalapy_adapters.wrapper.agent.fork import fork_agent  # late: a revoked attempt leaves without it

    private_directory = private_dir.make()
    forked = fork_agent(private_directory)
    from koalapy_adapters.wrapper.program import prepare_workdir  # late: the agent imports its own part meanwhile

    workdir = prepare_workdir.prepare(directory, component, private_directory)
    from koalapy_adapters.wrapper import run  # late: the login shell takes as long

    return run.first(directory, component, run.Begun(forked, workdir, private_directory))


def _run_again(directory: str, component: Json) -> int:
    from koalapy_adapters.wrapper import run

    return run.again(directory, component)


def _patiently(act: Callable[[], T]) -> T:
    """Try until PATIENCE_S are over: what one node wrote shows late on another's network file system."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return act()
        except OSError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(PAUSE_S)
