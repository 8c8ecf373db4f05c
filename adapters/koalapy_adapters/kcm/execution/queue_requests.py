"""Runs the commands of an embedded queue as requests to its server, and notices the ends of its jobs."""

import json
import os
import threading
import time
from typing import Callable, List, Optional

from koalapy_adapters.allocation import client, read_line
from koalapy_adapters.errors import Result
from koalapy_adapters.kcm.execution.subprocess_runner import Handle, Ran
from koalapy_adapters.kcm.execution.threads import thread_cpu


def requester(
    command: List[str], place: str, slots: Optional[int]
) -> Callable[[List[str], float, Optional[Handle]], Ran]:
    """Return the function that runs the commands of a queue's dialect. `command` starts the pushed file.

    `place` and `slots` are those of `allocation.client.Client`. A batch id may name another directory, but no queue
    there is asked, or started.
    """

    def run(argv: List[str], timeout: float, handle: Optional[Handle] = None) -> Ran:
        if handle is not None and not handle.begin():
            return Ran(Result(argv, None, "", ""), 0)
        began = thread_cpu()
        by_starter = argv[: len(command)] != command
        words = argv[1:] if by_starter else read_line(argv[len(command) + 1 :]).words
        answer = client.answer(place, command, os.environ, words, slots)
        text = json.dumps(answer) + "\n"
        return Ran(Result(argv, 1 if "error" in answer else 0, text, ""), thread_cpu() - began)

    return run


def watch(place: str, slots: Optional[int], woken: Callable[[], None]) -> None:
    """Call `woken` in a thread of its own whenever jobs of the queue have ended."""
    threading.Thread(target=_watch, args=(place, slots, woken), name="queue-watch", daemon=True).start()


def _watch(place: str, slots: Optional[int], woken: Callable[[], None]) -> None:
    while True:
        try:
            connection = client.watch(place, os.environ, slots)
            if connection is not None:
                with connection:
                    while connection.recv(1 << 16):
                        woken()
                woken()  # the server has ended, and its jobs perhaps with it
        except OSError:
            pass  # it is tried again
        time.sleep(1.0)
