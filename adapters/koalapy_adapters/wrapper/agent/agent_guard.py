"""The guard of a node agent that a launcher started: should the agent be killed, its processes must not survive it."""

import os
import signal
import time
from typing import Callable

from koalapy_adapters.host import descendants, json_lines, private_dir

_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE)
_LOST = 75


def run(index: int, serve: Callable[[str], int]) -> int:
    """Run the agent, given its private directory, in a child; its exit status. Of an agent that died, all is killed."""
    directory = private_dir.make()
    try:
        descendants.become_subreaper()
        pid = os.fork()
        if pid == 0:
            _be_agent(serve, directory)
        os.close(0)
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        status = _await(pid)
        if status == 0:
            return 0
        while not descendants.sweep():
            time.sleep(0.02)
            descendants.reap()
        _report_lost(index)
        return _LOST
    finally:
        private_dir.remove(directory)
        private_dir.sweep(directory, time.time())


def _be_agent(serve: Callable[[str], int], directory: str) -> None:
    status = _LOST
    try:
        descendants.die_with_parent(signal.SIGTERM)
        status = serve(directory)
    except Exception:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(status)


def _await(pid: int) -> int:
    """Orphans of the program are reaped on the way."""
    while True:
        ended, status = os.wait()
        if ended == pid:
            return status


def _report_lost(index: int) -> None:
    try:
        os.write(1, json_lines.pieces(index, {"event": "lost"}))
    except OSError:
        pass  # the launcher's end will report it
