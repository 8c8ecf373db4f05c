"""Puts the wrapper together around its loop, and cleans up behind it: nothing that it started is left."""

import os
import sys
import time
import traceback
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

from koalapy_adapters.errors import BatchError
from koalapy_adapters.host import descendants
from koalapy_adapters.host.private_dir import remove, sweep
from koalapy_adapters.wrapper import events, failure_texts
from koalapy_adapters.wrapper.agent.fork import Forked
from koalapy_adapters.wrapper.allocation import Allocation, as_failure, read_allocation
from koalapy_adapters.wrapper.attempt import Attempt, read_attempt, write_broken
from koalapy_adapters.wrapper.loop import Loop
from koalapy_adapters.wrapper.program.prepare_workdir import Workdir
from koalapy_adapters.wrapper.relay.address import read_relay_address
from koalapy_adapters.wrapper.shared_directory import read_record

Json = Dict[str, Any]

LINGER_S = 0.3  # for the relay to read the last report: the batch job is not over before
AGENTS_LEAVE_S = 2.0
SHELL_LEAVES_S = 1.0
_BROKEN = 70  # EX_SOFTWARE


class Begun(NamedTuple):
    """The parts begun before anything else: the agent on this node, the login shell, their private directory."""

    forked: Forked
    workdir: Workdir
    private: str


def first(directory: str, component: Json, begun: Begun) -> int:
    """Run the attempt, whose claim is ours, to its end; the exit status."""
    try:
        return _supervise(read_attempt(directory, component), begun)
    except Exception as error:
        traceback.print_exc()
        write_broken(directory, component, error)
        return _BROKEN
    finally:
        remove(begun.private)
        sweep(begun.private, time.time())


def again(directory: str, component: Json) -> int:
    """Report a second start of an attempt, and run nothing."""
    attempt = read_attempt(directory, component)
    sys.stderr.write("koala wrapper: %s was started before; its program is not run again.\n" % attempt.tag)
    loop = Loop(attempt, None)
    loop.found_relay(read_relay_address(attempt.relay_file))
    loop.handle(events.ClaimedBefore(read_record(directory)))
    try:
        return loop.run()
    finally:
        loop.close_relay(LINGER_S)


def _supervise(attempt: Attempt, begun: Begun) -> int:
    allocation, error = _allocation(attempt)
    if begun.workdir.error is not None:
        error = failure_texts.no_room("the attempt's directory", begun.workdir.error)
    loop = Loop(attempt, allocation, begun.private, begun.workdir.sandbox)
    try:
        loop.nodes.add_forked(allocation.names[0] if allocation else os.uname().nodename, begun.forked)
        loop.found_relay(read_relay_address(attempt.relay_file))
        if begun.workdir.capture is not None:
            loop.capturing.begin(begun.workdir.capture)
        if allocation is not None and error is None:
            error = _launch(loop, allocation, attempt)
        descendants.become_subreaper()
        if error is not None:
            loop.handle(events.PreparationFailed(error))
        loop.handle(events.Claimed(allocation.nodes if allocation else []))
        if begun.workdir.environment is not None:
            loop.captured(begun.workdir.environment)
        return loop.run()
    finally:
        _clean_up(loop, attempt.program["grace"] + AGENTS_LEAVE_S)


def _allocation(attempt: Attempt) -> Tuple[Optional[Allocation], Optional[Json]]:
    try:
        return read_allocation(attempt.batch, attempt.program, attempt.batch_id), None
    except BatchError as error:
        return None, as_failure(error)


def _launch(loop: Loop, allocation: Allocation, attempt: Attempt) -> Optional[Json]:
    try:
        loop.nodes.launch(allocation.launches(attempt.command), allocation.others, os.environ, attempt.directory)
    except BatchError as error:
        return as_failure(error)
    return None


def _clean_up(loop: Loop, patience_s: float) -> None:
    """The agents leave when nobody sends to them any more; what does not is killed."""
    loop.nodes.close()
    loop.close_relay(LINGER_S)
    loop.capturing.end()
    _wait(loop, patience_s, lambda: not loop.nodes.pids())
    _wait(loop, SHELL_LEAVES_S, lambda: not loop.capturing.pids)
    _wait(loop, AGENTS_LEAVE_S, descendants.sweep)


def _wait(loop: Loop, patience_s: float, ended: Callable[[], bool]) -> None:
    deadline = time.monotonic() + patience_s
    while not ended() and time.monotonic() < deadline:
        time.sleep(0.005)
        loop.reap()
